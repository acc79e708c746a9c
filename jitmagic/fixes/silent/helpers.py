"""A function or setting that the notebook changes: taken as a static argument, or the caller compiled anew."""

from __future__ import annotations

import ast
import contextlib
import keyword
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence, Variable
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import FunctionNode, Text, add_argument, add_parameter, calls_in
from jitmagic.report import Finding, Fix
from jitmagic.rules.base import root as path_root
from jitmagic.rules.words import listed

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """What no array can stand for, as a static argument where the function names it, else `f.clear_cache()`."""
    stale = [
        v.path
        for v in evidence.variables
        if v.stale and v.path in finding.culprits and not _dynamic(v, prover)
    ]
    sources, history = trial.call_sources(prover), trial.history(prover)
    if not stale or not sources:
        return
    past = list(_as_it_was(evidence, stale))
    found = _as_argument(evidence, prover, stale, past, history) or _cleared(
        evidence, prover, stale, past, history
    )
    if found is not None:
        yield found


def _as_it_was(evidence: Evidence, stale: Sequence[str]) -> Iterator[str]:
    """Assignments that bring back what the notebook's variables were when the function was compiled."""
    for v in evidence.variables:
        if v.path in stale and v.type != "function" and v.origin in ("global", "helper", "attribute"):
            with contextlib.suppress(ValueError, SyntaxError):
                ast.literal_eval(v.before)
                if path_root(v.path) not in evidence.function.parameters:
                    yield f"{v.path} = {v.before}"


def _dynamic(variable: Variable, prover: Prover) -> bool:
    """`--dyn` is the better fix: for numbers that decide no shape and no branch."""
    if variable.type not in ("array", "scalar") or variable.dtype in ("str", "bool", "bytes"):
        return False
    return any(prover.dynamic([p]).holds for p in dict.fromkeys((variable.path, path_root(variable.path))))


def _wanted(prover: Prover, history: Sequence[str]) -> trial.Played:
    return trial.original(prover, history, jit=False)


def _as_argument(
    evidence: Evidence, prover: Prover, stale: Sequence[str], past: Sequence[str], history: Sequence[str]
) -> Fix | None:
    """`f(x, act)` with `act` static: each new value is one compilation, and none is missed."""
    sources = trial.call_sources(prover)
    cell, calls = evidence.function.cell, {s: s for s in sources}
    node = Text(cell).function(evidence.function.name)
    if node is None or node.decorator_list:
        return None  # numbers in the options of a decorator would be wrong
    taken, lengths = list[str](), list[str]()
    for path in stale:
        text = Text(cell)
        uses = _uses(text, evidence, path)
        measured = [text.parents[u] for u in uses]
        if uses and all(isinstance(c, ast.Call) and ast.unparse(c) == f"len({path})" for c in measured):
            uses, path = [c for c in measured if isinstance(c, ast.expr)], f"len({path})"  # noqa: PLW2901
        if not uses:
            return None
        name = _parameter(_function(text, evidence), path)
        # Beside declared numbers, jax takes a name as static where it is passed by name only.
        by_name = add_parameter(text, _function(text, evidence), name) or bool(
            prover.checker.options.static_argnums
        )
        for use in uses if name != path else ():
            text.replace(use, name)
        cell = text.result()
        calls = {s: _passing(c, evidence, path, name, by_name) for s, c in calls.items()}
        (lengths if path.startswith("len(") else taken).append(name)
    options = prover.checker.options
    if lengths and not taken:  # a number, which need not be static
        with contextlib.suppress(Exception):
            got = trial.play(prover, cell, [*past, *(calls.get(s, s) for s in history)])
            if trial.same(_wanted(prover, [*past, *history]).results, got.results):
                return Fix(
                    title=f"pass {listed(lengths)} as an argument at each call",
                    applicability="unsafe", verified=True, cell=cell, calls=tuple(calls[s] for s in sources),
                    evidence=f"the results without jit, also after the change, with {_traces(got.traces)}",
                )  # fmt: skip
    taken += lengths
    made = replace(options, static_argnames=tuple(dict.fromkeys((*options.static_argnames, *taken))))
    with contextlib.suppress(Exception):
        got = trial.play(prover, cell, [*past, *(calls.get(s, s) for s in history)], options=made)
        wanted = _wanted(prover, [*past, *history])
        # What cannot be written down (an enum's member, `jnp.sin`) is from the start what it is now.
        if got.traces > (1 if past or _word(evidence, stale) == "function" else 0) and trial.same(
            wanted.results, got.results
        ):
            names = listed(taken)
            return Fix(
                title=f"take {names} as a static argument: each new {_word(evidence, stale)} compiles again",
                applicability="unsafe", verified=True,
                evidence=f"the results without jit, also after the change, with {_traces(got.traces)}",
                cell=cell, calls=tuple(calls[s] for s in sources), static_argnames=made.static_argnames,
            )  # fmt: skip
    return None


def _word(evidence: Evidence, stale: Sequence[str]) -> str:
    functions = all(v.type == "function" for v in evidence.variables if v.path in stale)
    return "function" if functions else "value"


def _function(text: Text, evidence: Evidence) -> FunctionNode:
    function = text.function(evidence.function.name)
    if function is None:
        raise LookupError("the cell does not define it")
    return function


def _uses(text: Text, evidence: Evidence, path: str) -> list[ast.expr]:
    """Where the function reads the path; nothing where it binds it, or a name in it, itself."""
    function = _function(text, evidence)
    wanted, root = ast.unparse(ast.parse(path, mode="eval")), path_root(path)
    own = function.args.args[:1] if evidence.function.is_method else []
    receiver = root in [a.arg for a in own]
    bound = {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}
    bound |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    if root in bound and not receiver:
        return []
    found = [n for n in ast.walk(function) if isinstance(n, ast.expr) and ast.unparse(n) == wanted]
    loads = all(isinstance(getattr(n, "ctx", None), ast.Load) for n in found)
    return found if loads else []


def _parameter(function: FunctionNode, path: str) -> str:
    """`act` for `act`, `activation` for `config['activation']` and `self.activation`."""
    if path.isidentifier():
        return path
    if path.startswith("len("):
        path = f"n_{re.findall(r'[A-Za-z_]+', path)[-1]}"
    taken = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    taken |= {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    name: str = re.findall(r"[A-Za-z_]\w*", path)[-1]
    while name in taken or keyword.iskeyword(name):
        name = f"the_{name}"
    return name


def _passing(source: str, evidence: Evidence, path: str, name: str, by_name: bool) -> str:
    """The calls of a source with what the path leads to as one more argument."""
    for call in calls_in(ast.parse(source), evidence.function.name):
        given = path
        if evidence.function.is_method and isinstance(call.func, ast.Attribute):
            given = re.sub(
                rf"^{re.escape(evidence.function.parameters[0])}\b", ast.unparse(call.func.value), path
            )
        return add_argument(source, evidence.function.name, name, given, keyword=by_name)
    return source


def _traces(number: int) -> str:
    return "1 trace" if number == 1 else f"{number} traces"


def _cleared(
    evidence: Evidence, prover: Prover, stale: Sequence[str], past: Sequence[str], history: Sequence[str]
) -> Fix | None:
    """`f.clear_cache()` after each cell that changes what is stale."""
    if not prover.checker.settings.compile:
        return None
    clear = f"{evidence.function.name}.clear_cache()"
    for new in _with_clear(evidence, stale, history, clear):
        with contextlib.suppress(Exception):
            got = trial.play(prover, evidence.function.cell, [*past, *new])
            wanted = _wanted(prover, [*past, *history])
            if got.traces > 1 and trial.same(wanted.results, got.results):
                names = " or ".join(f"`{n}`" for n in stale)
                return Fix(
                    title=f"compile `{evidence.function.name}` again after {names} changes", applicability="unsafe",
                    # A plain function has no `clear_cache`: only where nothing else can do is it worth that.
                    verified=_word(evidence, stale) == "function",
                    evidence=f"the results without jit, with {_traces(got.traces)}", calls=tuple(new),
                )  # fmt: skip
    return None


def _binder(source: str) -> Callable[[str], bool]:
    """Whether a source binds a name, or changes what the name leads to."""
    targets = [
        n
        for n in ast.walk(ast.parse(source))
        if isinstance(n, ast.Name | ast.Attribute | ast.Subscript) and isinstance(n.ctx, ast.Store)
    ]
    names = {path_root(ast.unparse(n)) for n in targets} | trial.bound_by(source)
    return names.__contains__


def _with_clear(
    evidence: Evidence, stale: Sequence[str], history: Sequence[str], clear: str
) -> Iterator[list[str]]:
    """The cells with that line after those that bind what is stale; then after all that call something else."""
    heads = [path_root(n) for n in stale]
    called = [bool(calls_in(ast.parse(s), evidence.function.name)) for s in history]
    first = called.index(True) if True in called else len(history)
    binding = [
        i for i, s in enumerate(history) if i > first and not called[i] and any(map(_binder(s), heads))
    ]
    others = [i for i in range(first + 1, len(history)) if not called[i]]
    for places in (binding, others):
        if places:
            yield [line for i, s in enumerate(history) for line in ([s, clear] if i in places else [s])]
