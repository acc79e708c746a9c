"""State that a function writes while its own `jax.jit` traces it: a compiled function takes and returns it."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jitmagic.evidence import Evidence
from jitmagic.fixes import inline
from jitmagic.fixes.dynamic import bound_to_others
from jitmagic.fixes.silent import trial, wholes
from jitmagic.fixes.silent.states import alias
from jitmagic.fixes.silent.text import FunctionNode, Text
from jitmagic.options import JitOptions
from jitmagic.report import Finding, Fix
from jitmagic.rules.words import listed
from jitmagic.source.expressions import dotted_name
from jitmagic.source.tree import first_line

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_OUT = ("out", "result", "returned")


@dataclass(frozen=True)
class State:
    """A place that the function writes or reads (`count`, `self.n`), and its name inside the compiled function."""

    place: str
    name: str
    written: bool


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """`step` calls `_step`, which is compiled, takes the state as arguments and returns what is new."""
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    if function is None or ("." in evidence.function.name and not function.decorator_list):
        if not prover.checker.settings.compile:
            yield from _bound(finding, evidence, prover, text)
        return
    method, own = "." in evidence.function.name, function.decorator_list
    decorators: list[str] = []
    if prover.checker.settings.compile:
        jax = alias(prover, "jax")
        if own or not jax or prover.checker.options != JitOptions():
            return
        if not bound_to_others(evidence, prover):
            return  # there, `--dyn` does the same
        decorators = [f"{jax}.jit"]
    elif not any(map(compiles, own)):
        return
    if prover.parts is None and not trial.history(prover) and inline.view(evidence, prover) is not None:
        return  # the calls in the cell itself tell more than one of them again
    receiver = _static_receiver(function) if method else ""
    with contextlib.suppress(ValueError):
        states = _states(function, method, _data(finding, prover) if receiver else None)
        receiver = receiver if _uses_more(function, receiver, states) else ""
        decorators = decorators or [_decorator(text, d, method and not receiver) for d in own]
        cell = _rewritten(text, function, states, decorators, receiver)
        words = proved(evidence, prover, cell, [s.place for s in states if s.written])
        if words:
            yield Fix(
                title=_title(states), applicability="unsafe", verified=True, evidence=words, cell=cell,
            )  # fmt: skip


def _bound(finding: Finding, evidence: Evidence, prover: Prover, text: Text) -> Iterator[Fix]:
    """`step = jax.jit(model.step)` as `step = model.step`, where the method calls what is compiled; so too
    `self.step = jax.jit(self._step)` in a method of the class."""
    line = text.line_of(finding)
    method = next(
        (n for n in ast.walk(text.tree) if isinstance(n, FunctionNode) and n.lineno <= line <= (n.end_lineno or 0)
         and isinstance(text.parents[n], ast.ClassDef) and not n.decorator_list), None,
    )  # fmt: skip
    inside = ast.walk(text.parents[method]) if method is not None else ()
    made = [
        s for s in (*text.tree.body, *inside)
        if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name | ast.Attribute)
        and isinstance(s.value, ast.Call) and compiles(s.value.func) and len(s.value.args) == 1
        and method is not None and getattr(s.value.args[0], "attr", "") == method.name and not s.value.keywords
    ]  # fmt: skip
    calls = trial.later(prover) or trial.call_sources(prover)
    if method is None or len(made) != 1 or not calls or not wholes.may_run(prover, text.source):
        return
    call = made[0].value
    assert isinstance(call, ast.Call)
    with contextlib.suppress(Exception):
        states = _states(method, True, reads=finding.kind == "stale-constant")
        text.replace(call, text.code(call.args[0]))
        cell = _rewritten(text, method, states, [text.code(call.func)])
        got = wholes.run(prover, cell, calls, jit=True)
        if got and wholes.agree(got, wholes.run(prover, evidence.function.cell, calls, jit=False)):
            yield Fix(
                title=_title(states), applicability="unsafe", verified=True, cell=cell,
                evidence=f"compiled; the state goes on over {len(got)} call{'s' * (len(got) > 1)} as without jit",
            )  # fmt: skip


def _title(states: Sequence[State]) -> str:
    written = listed(s.place for s in states if s.written)
    if not written:
        return f"compile a function that takes {listed(s.place for s in states)}"
    return f"compile a function that takes and returns {written}, and store it after the call"


def compiles(decorator: ast.expr) -> bool:
    """It names a `jit`: `jax.jit`, `partial(jax.jit, ...)`."""
    return any(
        dotted_name(n).rpartition(".")[2] == "jit"
        for n in ast.walk(decorator) if isinstance(n, (ast.Name, ast.Attribute))
    )  # fmt: skip


# --- what is carried


def _static_receiver(function: FunctionNode) -> str:
    """`self` where the decorator declares it static: what of the object is no state can stay there."""
    first = next((a.arg for a in (*function.args.posonlyargs, *function.args.args)), "")
    given = {k.arg: k.value for d in function.decorator_list if isinstance(d, ast.Call) for k in d.keywords}
    said = [n.value for v in given.values() for n in ast.walk(v) if isinstance(n, ast.Constant)]
    return (
        first if {"static_argnums", "static_argnames"} & given.keys() and (0 in said or first in said) else ""
    )


def _data(finding: Finding, prover: Prover) -> set[str]:
    """Attributes of the object that hold arrays, or numbers that are told of; not sizes, functions, optimizers."""
    import jax

    held = next((s.args[0] for s in prover.samples if s.args), None)
    told = {c.rpartition(".")[2] for c in finding.culprits}
    plain = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)
    attributes = getattr(held, "__dict__", {}).items()
    found = {n: jax.tree.leaves(v) for n, v in attributes}
    return {
        n for n, leaves in found.items()
        if all(isinstance(x, plain[:3] if n not in told else plain) for x in leaves)
    }  # fmt: skip


def _uses_more(function: FunctionNode, receiver: str, states: Sequence[State]) -> bool:
    """Whether the function needs the object for something else than these states."""
    places = {s.place for s in states}
    uses = [
        n for n in ast.walk(function) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == receiver
    ]
    return any(ast.unparse(n) not in places for n in uses)


def _states(
    function: FunctionNode, method: bool, data: set[str] | None = None, *, reads: bool = False
) -> list[State]:
    """Globals that it assigns, attributes of `self` that it reads or assigns. Raises ValueError where it does more.

    With `data`, all other attributes stay where they are; with `reads`, nothing has to be written."""
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    if function.args.vararg or function.args.kwarg:
        raise ValueError("its parameters have no names")
    own = own_nodes(function)
    declared = [n for s in own if isinstance(s, ast.Global) for n in s.names]
    stored = {n.id for n in own if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    states = [State(n, n, True) for n in declared if n in stored]
    if method and parameters:
        taken = {n.id for n in own if isinstance(n, ast.Name)} | set(parameters)
        states += _attributes(function, parameters[0], taken, data)
    if not any(s.written or reads for s in states):
        raise ValueError("it writes no such state")
    return states


def _attributes(function: FunctionNode, receiver: str, taken: set[str], data: set[str] | None) -> list[State]:
    uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == receiver]
    whole = [n for n in ast.walk(function) if isinstance(n, ast.Attribute) and n.value in uses]
    called = [n.func for n in ast.walk(function) if isinstance(n, ast.Call)]
    if len(whole) < len(uses) or (data is None and any(w in called for w in whole)):
        raise ValueError("it needs the object itself")
    stored = {w.attr for w in whole if not isinstance(w.ctx, ast.Load)}
    whole = [w for w in whole if data is None or w.attr in data | stored]
    names = list(dict.fromkeys(n.attr for n in whole))
    written = stored | {
        s.value.attr for s in ast.walk(function)
        if isinstance(s, ast.Subscript) and isinstance(s.ctx, ast.Store) and isinstance(s.value, ast.Attribute)
    }  # fmt: skip
    return [
        State(
            f"{receiver}.{n}",
            n.lstrip("_") if n.lstrip("_") not in taken else f"{n.lstrip('_')}_",
            n in written,
        )
        for n in names
    ]


def own_nodes(function: FunctionNode) -> list[ast.AST]:
    """Nodes of the function without those of functions in it."""
    found: list[ast.AST] = []

    def walk(node: ast.AST) -> None:
        found.append(node)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, _NESTED):
                walk(child)

    for statement in function.body:
        if not isinstance(statement, _NESTED):
            walk(statement)
    return found


# --- the two functions


def _rewritten(
    text: Text, function: FunctionNode, states: Sequence[State], decorators: Sequence[str], receiver: str = ""
) -> str:
    """The cell with a compiled function above and the old one around it; `receiver` is handed on to it."""
    method = isinstance(text.parents[function], ast.ClassDef)
    bare = function.name.lstrip("_")  # a name with two underscores is another one inside a class
    inner = text.fresh(*[f"_{bare}"] * (bare == function.name), f"_{bare}_compiled", f"_{bare}_traced")
    lines = inside(text, function, states)
    taken = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][1 if method else 0 :]
    named = [a.arg for a in function.args.kwonlyargs]
    arguments = _parameters(text, function, method)
    first = [receiver] if receiver else []
    parameters = [
        *first,
        *arguments[: len(taken)],
        *(s.name for s in states),
        *(["*"] if named else []),
        *arguments[len(taken) :],
    ]
    indent = " " * function.col_offset
    compiled = [*(f"@{d}" for d in decorators), f"def {inner}({', '.join(parameters)}):", *lines, "", ""]
    passed = [*first, *taken, *(s.place for s in states), *(f"{n}={n}" for n in named)]
    outer = _outer(text, function, states, f"{inner}({', '.join(passed)})", indent)
    top = text.parents[function] if method else function
    above = min([top.lineno, *(d.lineno for d in getattr(top, "decorator_list", ()))])  # type: ignore[attr-defined]
    start = text.starts[above - 1]
    text.changes.append((start, start, "\n".join(compiled) + "\n"))
    begin = text.starts[first_line(function) - 1]
    end = text.span(function)[1]
    body = text.body_start(function, docstring=not documented(function))
    head = text.source[text.starts[function.lineno - 1] : body]
    text.changes.append((begin, end, head + outer))
    return text.result()


def _parameters(text: Text, function: FunctionNode, method: bool) -> list[str]:
    """Names of the parameters for the compiled function, which gets every value: without defaults."""
    every = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][1 if method else 0 :]
    return every + [a.arg for a in function.args.kwonlyargs]


def _decorator(text: Text, decorator: ast.expr, method: bool) -> str:
    """The decorator for a function without a receiver. Raises ValueError where its numbers would be wrong."""
    code = text.code(decorator)
    if not method or not isinstance(decorator, ast.Call):
        return code
    numbers = [k for k in decorator.keywords if k.arg in ("static_argnums", "donate_argnums")]
    if [ast.unparse(k.value) for k in numbers] not in ([], ["0"], ["(0,)"]):
        raise ValueError("arguments by number")
    kept = [k for k in decorator.keywords if k not in numbers]
    if isinstance(decorator.func, ast.Name | ast.Attribute) and not kept and decorator.args:
        return text.code(decorator.args[0])
    given = ", ".join([*map(text.code, decorator.args), *map(text.code, kept)])
    return f"{text.code(decorator.func)}({given})"


def inside(text: Text, function: FunctionNode, states: Sequence[State]) -> list[str]:
    """Lines of the compiled function's body, at one indentation."""
    inner = Text(text.source)
    node = next(n for n in ast.walk(inner.tree) if _same_place(n, function))
    assert isinstance(node, FunctionNode)
    names = {s.place: s.name for s in states}
    new = ", ".join(s.name for s in states if s.written)
    returns = [n for n in own_nodes(node) if isinstance(n, ast.Return)]
    for use in ast.walk(node):
        if isinstance(use, ast.Attribute | ast.Subscript | ast.Name) and ast.unparse(use) in names:
            inner.replace(use, names[ast.unparse(use)])
        elif isinstance(use, ast.Global):
            kept = [n for n in use.names if n not in names]
            inner.replace(use, f"global {', '.join(kept)}") if kept else inner.remove(use)
    for statement in returns if new else ():
        if statement.value is None:
            inner.replace(statement, f"return None, {new}")
            continue
        start, end = inner.span(statement.value)
        bare = isinstance(statement.value, ast.Tuple) and inner.source[start] != "("
        inner.changes += [(start, start, "("), (end, end, f"), {new}")] if bare else [(end, end, f", {new}")]
    start, end = inner.body_start(node, docstring=not documented(node)), inner.span(node)[1]
    if new and not isinstance(node.body[-1], (ast.Return, ast.Raise)):
        empty = "None, " if returns else ""
        inner.changes.append((end, end, f"\n{' ' * node.body[-1].col_offset}return {empty}{new}"))
    before = len(inner.source) - end
    result = inner.result()
    body = result[start : len(result) - before].splitlines()
    cut = node.body[0].col_offset - 4
    return [line[cut:] if line[:cut].isspace() or not cut else line for line in body]


def documented(function: FunctionNode) -> bool:
    """A docstring comes first, and more after it."""
    return ast.get_docstring(function) is not None and len(function.body) > 1


def _same_place(node: ast.AST, other: FunctionNode) -> bool:
    return isinstance(node, FunctionNode) and (node.lineno, node.name) == (other.lineno, other.name)


def _outer(text: Text, function: FunctionNode, states: Sequence[State], call: str, indent: str) -> str:
    """Body of the function that stays: it calls the compiled one and stores what comes back."""
    written = [s.place for s in states if s.written]
    if not written:
        return f"{indent}    return {call}"
    lines = [f"global {', '.join(p for p in written if '.' not in p)}"] if "." not in written[0] else []
    if any(isinstance(n, ast.Return) for n in own_nodes(function)):
        out = text.fresh(*_OUT)
        lines += [f"{out}, {', '.join(written)} = {call}", f"return {out}"]
    else:
        lines.append(f"{', '.join(written)} = {call}")
    return "\n".join(f"{indent}    {line}" for line in lines)


# --- the proof


def proved(evidence: Evidence, prover: Prover, cell: str, places: Sequence[str]) -> str:
    """The same results and the same state after each call as without jit, over the calls seen."""
    history = trial.history(prover)
    watch = functools.partial(look, places)
    with contextlib.suppress(Exception):
        got = trial.play(prover, cell, history, jit=None, watch=watch)
        wanted = trial.play(prover, evidence.function.cell, history, jit=False, watch=watch)
        if got.results and trial.same(wanted.results, got.results) and trial.same(wanted.states, got.states):
            number = len(got.results)
            return f"compiled; results and state as without jit over {number} call{'s' * (number > 1)}"
    return ""


def look(places: Sequence[str], namespace: dict[str, Any], args: Sequence[Any]) -> list[Any]:
    """The state after a call; `self` is the first argument."""
    import jax

    def kept(value: Any) -> Any:
        is_key = jax.dtypes.issubdtype(getattr(value, "dtype", None), jax.dtypes.prng_key)
        return (
            np.array(jax.random.key_data(value) if is_key else value)
            if hasattr(value, "__array__")
            else value
        )

    names = {**namespace, "self": args[0] if args else None}
    found = [eval(compile(p, "<jitmagic fix>", "eval"), names) for p in places]
    return list(jax.tree.map(kept, found))
