"""State that a trace loses: arrays of a framework's object as its variables, the object as an argument of its jit."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.rewrite.names import wrapped
from jitmagic.fixes.silent import hoisting, trial, wholes
from jitmagic.fixes.silent.text import FunctionNode, Text, calls_in
from jitmagic.options import JitOptions
from jitmagic.report import Finding, Fix
from jitmagic.rules.base import root
from jitmagic.rules.words import listed
from jitmagic.source.expressions import dotted_name
from jitmagic.state.adapters import trace_holders

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

VARIABLES = {"brainpy.math": "Variable", "brainstate": "State", "flax.nnx": "Variable"}
"""What holds state in each framework; its content is `.value`."""
OWN_JIT = ("brainpy.math", "brainstate.transform")
"""Where the `jit` is that knows the variables of a framework."""


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For state-write, leaked-tracer and stale constants of objects of BrainPy, brainstate and flax."""
    yield from _as_argument(finding, evidence, prover)
    yield from _by_framework(finding, evidence, prover)
    yield from by_own_jit(finding, evidence, prover)
    yield from as_variables(finding, evidence, prover)


# --- the object as an argument of the framework's jit


def _as_argument(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """`@nnx.jit def run(counter, x)` where a function writes variables of an object that it reaches by name."""
    written = [v for v in evidence.variables if v.framework.startswith("flax") and v.written]
    roots = list(dict.fromkeys(v.path.partition(".")[0] for v in written))
    nnx = alias(prover, "flax.nnx")
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    if not roots and function is not None:
        roots = _objects(function, prover.checker.namespace)
    sources = trial.history(prover) if trial.call_sources(prover) else []
    if not roots or not nnx or function is None or not sources or "." in evidence.function.name:
        return
    if not all(r.isidentifier() and r in prover.checker.namespace for r in roots):
        return
    options = prover.checker.options
    if options.static_argnames or options.static_argnums:
        return
    decorate(text, function, f"{nnx}.jit")
    _insert_first(text, function, roots)
    cell = text.result()
    calls = [_with_first(s, evidence.function.name, roots) for s in sources]
    shown = calls if len(calls) > 1 else [*calls, *calls]  # that the state goes on shows at a second call
    before = sources if len(sources) > 1 else [*sources, *sources]
    with contextlib.suppress(Exception):
        got = trial.play(prover, cell, shown, jit=None)
        wanted = trial.original(prover, before, jit=False)
        if got.results and trial.same(wanted.results, got.results):
            names = listed(roots)
            yield Fix(
                title=f"pass {names} through `{nnx}.jit`, which follows its variables", applicability="unsafe",
                verified=True, evidence=f"traced; the state goes on over {len(got.results)} calls as without jit",
                cell=cell, calls=tuple(shown if prover.parts is None else calls),
            )  # fmt: skip


def _objects(function: FunctionNode, namespace: Mapping[str, Any]) -> list[str]:
    """Names of modules, optimizers and the like of flax that the function reads from the notebook."""
    own = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    read = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    names = (n for n in dict.fromkeys(read) if n not in own and n in namespace)
    return [n for n in names if any(trace_holders(namespace[n]))]


def _by_framework(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """`@nnx.jit` in place of `@jax.jit` where a function writes variables of an object that it is given."""
    text, nnx = Text(evidence.function.cell), alias(prover, "flax.nnx")
    function = text.function(evidence.function.name)
    given = set(evidence.function.parameters) & {root(c) for c in finding.culprits}
    sources = trial.history(prover)
    if function is None or not nnx or not given or not sources:
        return
    old = [d for d in function.decorator_list if any(map(wholes.is_jit, ast.walk(d)))]
    if any(isinstance(d, ast.Call) or text.code(d) == f"{nnx}.jit" for d in old) or len(old) > 1:
        return
    if not old and (not prover.checker.settings.compile or prover.checker.options != JitOptions()):
        return
    decorate(text, function, f"{nnx}.jit")
    cell = text.result()
    with contextlib.suppress(Exception):
        got = trial.play(prover, cell, sources, jit=None, watch=_variables)
        wanted = trial.play(prover, evidence.function.cell, sources, jit=False, watch=_variables)
        same = trial.same(wanted.results, got.results) and trial.same(wanted.states, got.states)
        if got.results and same and any(got.states):
            yield Fix(
                title=f"compile with `{nnx}.jit`, which follows the variables of its arguments", applicability="safe",
                verified=True, evidence=f"traced; results and state as without jit over {len(got.results)} calls",
                cell=cell,
            )  # fmt: skip


def by_own_jit(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """`bm.jit` in place of `jax.jit`, which does not know the variables that the function reads and writes."""
    if prover.checker.settings.compile or prover.checker.framework:
        return
    for module in OWN_JIT:
        where, text = alias(prover, module), Text(evidence.function.cell)
        plain = [n for n in ast.walk(text.tree) if wholes.is_jit(n) and dotted_name(n) in ("jax.jit", "jit")]
        if not where or not plain:
            continue
        for node in plain:
            text.replace(node, f"{where}.jit")
        cell = text.result()
        words, _ = _proved(evidence, prover, cell)
        if words:
            yield Fix(
                title=f"compile with `{where}.jit`, which follows variables", applicability="safe",
                verified=True, evidence=words, cell=cell,
            )  # fmt: skip
            return


def _variables(namespace: dict[str, Any], args: Sequence[Any]) -> list[Any]:
    """The content of every variable of flax among the arguments."""
    import jax
    import numpy as np
    from flax import nnx

    modules = [a for a in args if isinstance(a, nnx.Module)]
    return [np.array(v) for m in modules for v in jax.tree.leaves(nnx.state(m)) if hasattr(v, "shape")]


def decorate(text: Text, function: FunctionNode, decorator: str) -> None:
    """Put the decorator in the place of one that compiles, or above the function."""
    old = next((d for d in function.decorator_list if any(map(wholes.is_jit, ast.walk(d)))), None)
    if old is not None:
        text.replace(old, decorator)
        return
    first = function.decorator_list[0] if function.decorator_list else function
    at = text.starts[first.lineno - 1]
    text.changes.append((at, at, f"{' ' * function.col_offset}@{decorator}\n"))


def _insert_first(text: Text, function: FunctionNode, names: Sequence[str]) -> None:
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    comma = ", " if every or function.args.vararg or function.args.kwarg else ""
    at = text.source.index("(", text.span(function)[0] + len("def ")) + 1
    text.changes.append((at, at, ", ".join(names) + comma))


def _with_first(source: str, function: str, names: Sequence[str]) -> str:
    text = Text(source)
    for call in calls_in(text.tree, function):
        at = text.span(call.func)[1] + 1
        comma = ", " if call.args or call.keywords else ""
        text.changes.append((at, at, ", ".join(names) + comma))
    return text.result()


# --- plain arrays as variables


def as_variables(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """`self.v = bm.zeros(n)` as `self.v = bm.Variable(bm.zeros(n))`, and `self.v.value = …` where it is written."""
    text = Text(evidence.function.cell)
    line = text.line_of(finding)
    found = _written_at(text, line, finding)
    if found is None:
        return
    kind, names = found
    made = _maker(prover, kind.name)
    if not made:
        return
    cell = _declared(evidence.function.cell, kind.name, names, made, alias(prover, "jax.numpy"))
    if cell is None:
        return
    if finding.kind == "recompile-static":
        words, calls = hoisting.compared_whole(prover, cell, trial.later(prover)), None
    else:
        words, calls = _proved(evidence, prover, cell)
    if words:
        owned = listed(f"self.{n}" for n in names)
        yield Fix(
            title=f"make {owned} a `{made}`, whose value is followed", applicability="safe", verified=True,
            evidence=words, cell=cell, calls=calls,
        )  # fmt: skip


def _written_at(text: Text, line: int, finding: Finding) -> tuple[ast.ClassDef, list[str]] | None:
    """The class around the line, and its attributes that a method other than `__init__` writes."""
    kind = next(
        (
            n
            for n in ast.walk(text.tree)
            if isinstance(n, ast.ClassDef) and n.lineno <= line <= (n.end_lineno or 0)
        ),
        None,
    )
    if kind is None:
        return None
    names: list[str] = []
    for method in (
        m for m in kind.body if isinstance(m, FunctionNode) and m.name != "__init__" and m.args.args
    ):
        own = method.args.args[0].arg
        for n in ast.walk(method):
            if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and ast.unparse(n.value) == own:
                names.append(n.attr)
    told = {c.rpartition(".")[2] for c in finding.culprits}
    names = list(dict.fromkeys(names))
    if finding.kind == "recompile-static":  # others may well be settings
        names = [n for n in names if n in told]
    return (kind, names) if names and (told & set(names) or not told) else None


def alias(prover: Prover, module: str) -> str:
    """How the notebook calls a module: `nnx` for `flax.nnx`, `bp.math` for `brainpy.math`; empty where it does not."""
    import types

    for name, value in prover.checker.namespace.items():
        if isinstance(value, types.ModuleType) and not name.startswith("_") and value.__name__ == module:
            return name
    head, _, rest = module.partition(".")
    return f"{alias(prover, head)}.{rest}" if rest and alias(prover, head) else ""


def _maker(prover: Prover, kind: str) -> str:
    """The framework's variable as the notebook writes it, for a class that the framework's own is a base of."""
    value = prover.checker.namespace.get(kind)
    modules = [b.__module__ for b in value.__mro__] if isinstance(value, type) else []
    for module, name in VARIABLES.items():
        if any(m == module or m.startswith((f"{module}.", f"{module.partition('.')[0]}.")) for m in modules):
            where = alias(prover, module)
            return f"{where}.{name}" if where else ""
    return ""


def _declared(source: str, kind: str, names: Sequence[str], made: str, numpy: str) -> str | None:
    text = Text(source)
    node = next(n for n in ast.walk(text.tree) if isinstance(n, ast.ClassDef) and n.name == kind)
    making = {"__init__", *_called_by_init(node)}
    for method in (m for m in node.body if isinstance(m, FunctionNode) and m.args.args):
        own = method.args.args[0].arg
        for statement in (
            s for s in ast.walk(method) if isinstance(s, (ast.Assign, ast.AugAssign, ast.Return))
        ):
            _rewrite(text, statement, own, names, (made, numpy), method.name in making)
    return text.result() if text.changes else None


def _called_by_init(node: ast.ClassDef) -> set[str]:
    """Methods that `__init__` calls, which make attributes as it does."""
    init = next((m for m in node.body if isinstance(m, FunctionNode) and m.name == "__init__"), None)
    own = init.args.args[0].arg if init is not None else ""
    return {
        n.func.attr for n in (ast.walk(init) if init is not None else ())
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and ast.unparse(n.func.value) == own
    }  # fmt: skip


def _rewrite(
    text: Text, statement: ast.stmt, own: str, names: Sequence[str], made: tuple[str, str], init: bool
) -> None:
    attributes = {f"{own}.{n}" for n in names}
    if isinstance(statement, ast.Return):
        value = statement.value
        for part in value.elts if isinstance(value, ast.Tuple) else [value]:
            if part is not None and ast.unparse(part) in attributes:
                text.replace(part, f"{text.code(part)}.value")
        return
    target: Any = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target  # type: ignore[attr-defined]
    if ast.unparse(target) not in attributes:
        return
    value = statement.value  # type: ignore[attr-defined]
    if init and isinstance(statement, ast.Assign):
        variable, numpy = made
        code = text.code(value)
        if isinstance(value, ast.Constant) and numpy:
            code = f"{numpy}.array({code})"
        if not code.startswith(variable):
            text.replace(value, f"{variable}({code})")
    elif isinstance(statement, ast.AugAssign):
        sign = text.source[text.span(target)[1] : text.span(value)[0]].strip().removesuffix("=")
        text.replace(
            statement, f"{text.code(target)}.value = {text.code(target)} {sign} {wrapped(text.code(value))}"
        )
    else:
        text.replace(target, f"{text.code(target)}.value")


def _proved(evidence: Evidence, prover: Prover, cell: str) -> tuple[str, tuple[str, ...] | None]:
    """The whole cell gives the same compiled and plain, and what the user's gives plain, over the calls seen."""
    if not wholes.may_run(prover, cell):
        return "", None
    sources = trial.history(prover)
    names = _compiled_names(cell) | {evidence.function.name}
    calls = [s for s in sources if any(calls_in(ast.parse(s), n) for n in names)]
    with contextlib.suppress(Exception):
        jit = bool(_compiled_names(cell)) or not prover.checker.settings.compile
        if not jit:
            return _proved_compiled(prover, cell, calls)
        got, plain = (wholes.run(prover, cell, calls, jit=j) for j in (True, False))
        wanted = wholes.run(prover, evidence.function.cell, calls, jit=False)
        if got and wholes.agree(got, plain) and wholes.agree(got, wanted):
            return f"compiled; the state goes on over {len(got)} calls as without jit", tuple(calls)
    return "", None


def _proved_compiled(prover: Prover, cell: str, calls: Sequence[str]) -> tuple[str, tuple[str, ...] | None]:
    """Under `%%jit`, where jitmagic's own `jit` follows variables."""
    return "", None


def _compiled_names(cell: str) -> set[str]:
    """Names that the cell gives to compiled functions."""
    return {
        t.id for s in ast.parse(cell).body
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) and wholes.is_jit(s.value.func)
        for t in s.targets if isinstance(t, ast.Name)
    }  # fmt: skip
