"""What the notebook makes and does not use: an executable that nobody calls, a new state that nobody binds."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import jax

from jitmagic.evidence import Evidence, Function, Where
from jitmagic.report import Finding
from jitmagic.rules.unused_result import RULE
from jitmagic.silent.code import code_of
from jitmagic.source.tree import walk
from jitmagic.tracing.compat import is_jitted

_TIMED = re.compile(r"^(\s*%timeit|\s*%time)\b((?:\s+-[a-zA-Z]\S*(?:\s+\d+)?)*)\s+(?=\S)")
_MAGIC = re.compile(r"^\s*[%!]")
_WHOLE_CELL = re.compile(r"^%%(timeit|time|jit|jitcheck|capture|prun)\b")


@dataclass(frozen=True)
class BlankedText:
    """A cell's source with its magics blanked out: lines and columns are those of the cell."""

    source: str
    tree: ast.Module
    discards: bool = False
    """Nothing of the cell is kept: `%%timeit`."""
    timed: frozenset[int] = frozenset()
    """Lines that `%timeit` runs."""

    def where(self, node: ast.expr) -> Where:
        """The place of a node."""
        line = self.source.splitlines()[node.lineno - 1]
        text = ast.unparse(node)
        end = len(line.rstrip()) if node.end_lineno != node.lineno else node.end_col_offset or 0
        return Where("<notebook>", node.lineno, node.col_offset, node.lineno, end, line.strip(), text)


def parse(source: str) -> BlankedText | None:
    """None for cells of another language and cells that are no Python."""
    lines, timed = source.splitlines(), set[int]()
    if lines and lines[0].startswith("%%") and not _WHOLE_CELL.match(lines[0]):
        return None
    whole = bool(lines) and lines[0].startswith("%%timeit")
    for i, line in enumerate(lines):
        if found := _TIMED.match(line):
            timed.add(i + 1)
            margin = len(line) - len(line.lstrip())
            lines[i] = line[:margin] + "0;".ljust(found.end() - margin) + line[found.end() :]
        elif _MAGIC.match(line):
            lines[i] = ""
    for text in (source, "\n".join(lines)):  # of Python as it is no line is a magic, as in a string
        with contextlib.suppress(SyntaxError):
            tree = ast.parse(text)
            marks = {
                n.lineno for n in walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
            }
            return BlankedText(source, tree, whole, frozenset(timed & marks))
    return None


def findings(
    sources: Sequence[str], every: Sequence[str], namespace: Mapping[str, object]
) -> tuple[Finding, ...]:
    """Notes about the cells in `sources`; `every` are all cells that ran, in which a name may be used."""
    texts = [t for s in sources if (t := parse(s)) is not None]
    read = {n for s in every if (t := parse(s)) is not None for n in _read(t.tree)}
    found = [f for t in texts for f in _never_called(t, read, namespace)]
    return tuple(dict.fromkeys([*found, *(f for t in texts for f in _thrown_away(t, namespace))]))


def _read(tree: ast.AST) -> Iterator[str]:
    yield from (n.id for n in walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def _never_called(text: BlankedText, read: set[str], namespace: Mapping[str, object]) -> Iterator[Finding]:
    """`compiled = jax.jit(f).lower(x).compile()` whose name no cell reads."""
    steps = [n for n in text.tree.body if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)]
    assigned = {n.targets[0].id: n.value for n in steps}  # type: ignore[attr-defined]
    for node in text.tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Name) or target.id in read:
            continue
        value = namespace.get(target.id)
        if not isinstance(value, jax.stages.Lowered | jax.stages.Compiled):
            continue
        what = "compiled" if isinstance(value, jax.stages.Compiled) else "lowered"
        name = _function_of(node.value, assigned)
        yield RULE.finding(
            Evidence(Function(name, "<notebook>", "", 0)),
            f"`{target.id}`, {f'`{name}`' if name else 'a function'} {what} ahead of time, is never called: a call of "
            f"{f'`{name}`' if name else 'the function'} itself knows nothing of it and compiles again",
            where=text.where(node.value),
            culprits=[target.id, name],
            help=f"call `{target.id}(...)`, without the static arguments, or leave it out",
        )


def _function_of(value: ast.AST, assigned: Mapping[str, ast.expr], depth: int = 4) -> str:
    """`f` of `jax.jit(f).lower(x).compile()`, through the names that the steps were given."""
    node: Any = value
    while isinstance(node, ast.Call | ast.Attribute) and depth:
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "jit":
            return ast.unparse(node.args[0]) if node.args else ""
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("lower", "trace")
            and isinstance(node.value, ast.Name)
        ):
            return node.value.id
        node = node.func if isinstance(node, ast.Call) else node.value
    found = assigned.get(node.id) if isinstance(node, ast.Name) else None
    return _function_of(found, assigned, depth - 1) if found is not None and depth else ""


def _thrown_away(text: BlankedText, namespace: Mapping[str, object]) -> Iterator[Finding]:
    """`step(state, x)` on a line of its own, or timed, and `loss = step(state, x)[1]`, where `step` returns the new
    `state`."""
    for statement in _statements(text.tree.body):
        for call, kept in _taken(statement):
            if not isinstance(call.func, ast.Name):
                continue
            name, fn = call.func.id, namespace.get(call.func.id)
            given = _given(call, fn)
            lost = [(p, given[p]) for at, p in returned_state(fn) if at not in kept and p in given]
            if not lost:
                continue
            parameter, argument = lost[0]
            timed = statement.lineno in text.timed or text.discards
            again = (
                "each repetition starts from the same one"
                if timed
                else "the next call starts from the old one"
            )
            yield RULE.finding(
                Evidence(Function(name, "<notebook>", "", 0)),
                f"the new `{parameter}` that `{name}` returns is thrown away: `{argument}` stays as it was, and "
                f"{again}",
                where=text.where(call),
                culprits=[argument, parameter, name],
                help=f"bind it (`..., {argument} = {name}(...)`)"
                + (
                    ", in a loop of your own where time is to be measured as the state moves" if timed else ""
                ),
            )


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that the cell itself runs, those of its loops and blocks included."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        yield statement
        for name in ("body", "orelse", "finalbody", "handlers"):
            inner = getattr(statement, name, ())
            yield from _statements(
                [s for part in inner for s in getattr(part, "body", [])] if name == "handlers" else inner
            )


Kept = Container[int | None]


def _taken(statement: ast.stmt) -> Iterator[tuple[ast.Call, Kept]]:
    """Calls of which a part is thrown away, each with the parts of its result that are kept, by their numbers; None
    stands for the result as a whole."""
    if isinstance(statement, ast.Expr):
        yield from ((call, ()) for call in _dropped(statement.value))
    elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        for target in statement.targets:
            if isinstance(target, ast.Tuple | ast.List) and not any(
                isinstance(t, ast.Starred) for t in target.elts
            ):
                names = [t.id if isinstance(t, ast.Name) else "" for t in target.elts]
                yield statement.value, {None, *(i for i, n in enumerate(names) if n != "_")}
    value = getattr(statement, "value", None)
    for node in walk(value) if isinstance(value, ast.expr) else ():
        at = node.slice if isinstance(node, ast.Subscript) else None
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Call)
            and isinstance(at, ast.Constant)
        ):
            if not isinstance(statement, ast.Expr) or node is not statement.value:
                yield node.value, {at.value, None} if isinstance(at.value, int) else {None}


def _dropped(value: ast.expr) -> Iterator[ast.Call]:
    """Calls in an expression that is a statement, whose results nothing uses."""
    if isinstance(value, ast.Tuple | ast.List):
        for part in value.elts:
            yield from _dropped(part)
    elif isinstance(value, ast.ListComp | ast.GeneratorExp):
        yield from _dropped(value.elt)
    elif isinstance(value, ast.Subscript | ast.Attribute):
        yield from _dropped(value.value)
    elif isinstance(value, ast.Call) and ast.unparse(value.func).endswith("block_until_ready"):
        inner = (
            value.args[0]
            if value.args
            else value.func.value
            if isinstance(value.func, ast.Attribute)
            else None
        )
        yield from _dropped(inner) if inner is not None else ()
    elif isinstance(value, ast.Call):
        yield value


def returned_state(fn: object) -> list[tuple[int | None, str]]:
    """Parameters of a compiled function that it returns changed, `return y, model` or `return x.at[0].set(1)`, each
    with its number in the result; None where it is the result."""
    if not (callable(fn) and is_jitted(fn)):
        return []
    inner = inspect.unwrap(fn)
    code = code_of(inner) if hasattr(inner, "__code__") else None
    if code is None or isinstance(code.node, ast.Lambda):
        return []
    returned = [n.value for n in walk(code.node) if isinstance(n, ast.Return) and n.value is not None]
    parts: list[tuple[int | None, ast.expr]] = []
    for value in returned:
        parts += list(enumerate(value.elts)) if isinstance(value, ast.Tuple) else [(None, value)]
    found = []
    for at, part in parts:
        name = _root(part.func) if _is_changed_copy(part) else getattr(part, "id", "")
        if name in code.parameters and (_is_changed_copy(part) or _changes(code.node, name)):
            found.append((at, name))
    return list(dict.fromkeys(found))


_NEW_FORMS = frozenset(
    "set add subtract multiply divide power min max replace _replace apply_gradients".split()
)
"""Methods that give the changed form of a thing: of `x.at[i]`, of a state."""


def _is_changed_copy(value: ast.AST) -> TypeGuard[ast.Call]:
    """`x.at[0].set(1)`, `state.replace(step=1)`."""
    func = value.func if isinstance(value, ast.Call) else None
    if not isinstance(func, ast.Attribute) or func.attr not in _NEW_FORMS:
        return False
    indexed = func.value.value if isinstance(func.value, ast.Subscript) else None
    return (
        isinstance(func.value, ast.Name)
        and func.attr in ("replace", "_replace", "apply_gradients")
        or (isinstance(indexed, ast.Attribute) and indexed.attr == "at")
    )


def _changes(function: ast.AST, name: str) -> bool:
    """The function binds the name anew, stores into it, or calls it (a model that is called may change)."""
    for node in walk(function):
        stored = isinstance(getattr(node, "ctx", None), ast.Store)
        if _root(node.func if isinstance(node, ast.Call) else node if stored else function) == name:
            return True
    return False


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _given(call: ast.Call, fn: Any) -> dict[str, str]:
    """Parameter to argument as written, where both are plain."""
    try:
        names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return {}
    plain = [] if any(isinstance(a, ast.Starred) for a in call.args) else call.args
    given = {**dict(zip(names, plain, strict=False)), **{k.arg: k.value for k in call.keywords if k.arg}}
    return {p: ast.unparse(a) for p, a in given.items() if _root(a)}
