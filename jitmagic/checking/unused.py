"""What the notebook makes and does not use: an executable that nobody calls, a new state that nobody binds."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.evidence import Evidence, Function, Where
from jitmagic.report import Finding
from jitmagic.source.tree import walk

_TIMED = re.compile(r"^(\s*%timeit|\s*%time)\b((?:\s+-[a-zA-Z]\S*(?:\s+\d+)?)*)\s+(?=\S)")
_MAGIC = re.compile(r"^\s*[%!]")
_WHOLE_CELL = re.compile(r"^%%(timeit|time|jit|jitcheck|capture|prun)\b")


@dataclass(frozen=True)
class Text:
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


def parse(source: str) -> Text | None:
    """None for cells of another language and cells that are no Python."""
    lines, timed = source.splitlines(), set[int]()
    if lines and lines[0].startswith("%%") and not _WHOLE_CELL.match(lines[0]):
        return None
    whole = bool(lines) and lines[0].startswith("%%timeit")
    inside = _strings(lines)
    for i, line in enumerate(lines):
        if i in inside:
            continue
        if found := _TIMED.match(line):
            timed.add(i + 1)
            lines[i] = " " * found.end() + line[found.end() :]
        elif _MAGIC.match(line):
            lines[i] = ""
    # A line that begins with blanks stands for a statement of its own: brackets make the indentation not count.
    text = "\n".join(f"({x[1:].rstrip(';')}\n)" if i + 1 in timed else x for i, x in enumerate(lines))
    try:
        tree = ast.parse("\n".join(lines) if not timed else text)
    except SyntaxError:
        return None
    return Text(source, _moved(tree, sorted(timed)), whole, frozenset(timed))


def _strings(lines: list[str]) -> set[int]:
    """Indices of lines that lie inside a string of several lines, where a `%` is no magic."""
    plain = [" " * len(x) if _MAGIC.match(x) else x for x in lines]
    found: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(plain) + "\n").readline):
            if token.type == tokenize.STRING and token.start[0] != token.end[0]:
                found |= set(range(token.start[0], token.end[0]))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    return found


def _moved(tree: ast.Module, timed: Sequence[int]) -> ast.Module:
    """Line numbers of the cell, where a closing bracket has a line of its own after each timed line."""
    for node in walk(tree):
        if hasattr(node, "lineno"):
            for name in ("lineno", "end_lineno"):
                line = getattr(node, name)
                setattr(node, name, line - sum(t + k < line for k, t in enumerate(timed)))
    return tree


def findings(
    sources: Sequence[str], every: Sequence[str], namespace: Mapping[str, Any]
) -> tuple[Finding, ...]:
    """Notes about the cells in `sources`; `every` are all cells that ran, in which a name may be used."""
    texts = [t for s in sources if (t := parse(s)) is not None]
    read = {n for s in every if (t := parse(s)) is not None for n in _read(t.tree)}
    found = [f for t in texts for f in _never_called(t, read, namespace)]
    return tuple(dict.fromkeys([*found, *(f for t in texts for f in _thrown_away(t, namespace))]))


def _read(tree: ast.AST) -> Iterator[str]:
    yield from (n.id for n in walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def _never_called(text: Text, read: set[str], namespace: Mapping[str, Any]) -> Iterator[Finding]:
    """`compiled = jax.jit(f).lower(x).compile()` whose name no cell reads."""
    import jax

    from jitmagic.rules.unused_result import RULE

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


def _thrown_away(text: Text, namespace: Mapping[str, Any]) -> Iterator[Finding]:
    """`step(state, x)` on a line of its own, or timed, where `step` returns the new `state`."""
    from jitmagic.rules.unused_result import RULE

    for node in text.tree.body:
        if not isinstance(node, ast.Expr):
            continue
        call: Any = node.value
        while (
            isinstance(call, ast.Call) and ast.unparse(call.func).endswith("block_until_ready") and call.args
        ):
            call = call.args[0]
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        state = returned_state(namespace.get(call.func.id))
        given = {p: a for p, a in _given(call, namespace.get(call.func.id)).items() if p in state}
        if not given:
            continue
        parameter, argument = next(iter(given.items()))
        name, timed = call.func.id, node.lineno in text.timed or text.discards
        again = (
            "each repetition starts from the same one" if timed else "the next call starts from the old one"
        )
        yield RULE.finding(
            Evidence(Function(name, "<notebook>", "", 0)),
            f"the new `{parameter}` that `{name}` returns is thrown away: `{argument}` stays as it was, and {again}",
            where=text.where(call),
            culprits=[argument, parameter, name],
            help=f"bind it (`..., {argument} = {name}(...)`)"
            + (", in a loop of your own where time is to be measured as the state moves" if timed else ""),
        )


def returned_state(fn: Any) -> frozenset[str]:
    """Parameters of a compiled function that it returns changed: `return y, model`."""
    from jitmagic.silent.code import code_of
    from jitmagic.tracing.compat import is_jitted

    if not is_jitted(fn):
        return frozenset()
    inner: Any = inspect.unwrap(fn)
    code = code_of(inner) if hasattr(inner, "__code__") else None
    if code is None or isinstance(code.node, ast.Lambda):
        return frozenset()
    returned = [n.value for n in walk(code.node) if isinstance(n, ast.Return) and n.value is not None]
    parts = [p for v in returned for p in (v.elts if isinstance(v, ast.Tuple) else [v])]
    names = {p.id for p in parts if isinstance(p, ast.Name)} & set(code.parameters)
    return frozenset(n for n in names if _changes(code.node, n))


def _changes(function: ast.AST, name: str) -> bool:
    """The function binds the name anew, stores into it, or calls it (a model that is called may change)."""
    for node in walk(function):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.Call) and _root(node.func) == name:
            return True
        if (
            isinstance(node, ast.Attribute | ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and _root(node) == name
        ):
            return True
    return False


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _given(call: ast.Call, fn: Any) -> dict[str, str]:
    """Parameter to argument as written, where both are plain."""
    import inspect

    try:
        names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return {}
    positional = (
        {}
        if any(isinstance(a, ast.Starred) for a in call.args)
        else dict(zip(names, call.args, strict=False))
    )
    given = {**positional, **{k.arg: k.value for k in call.keywords if k.arg}}
    return {p: ast.unparse(a) for p, a in given.items() if _root(a)}
