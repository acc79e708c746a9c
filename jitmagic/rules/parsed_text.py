"""The function's text as a syntax tree, with places as the user sees them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from jitmagic.evidence import Function, Where
from jitmagic.source.edits import FunctionNode
from jitmagic.source.modules import dotted, imported
from jitmagic.source.tree import characters, nodes_of, parsed, statements, walk

CONVENTIONS = {
    "np": "numpy", "numpy": "numpy", "jax": "jax", "jnp": "jax.numpy", "jr": "jax.random",
    "jrandom": "jax.random",
    "jrand": "jax.random", "lax": "jax.lax", "time": "time", "os": "os", "datetime": "datetime",
    "functools": "functools", "partial": "functools.partial", "jit": "jax.jit", "eqx": "equinox",
}  # fmt: skip
"""What names mean where the cell itself does not import them."""

STDLIB_RANDOM = frozenset("random gauss randrange seed sample choices getrandbits shuffle triangular".split())
"""Of the names that `random` and `jax.random` could both be asked for, those that only the first is."""


@dataclass(frozen=True)
class ParsedText:
    """A parsed text, and how far its lines and columns are from those the user sees."""

    tree: ast.Module
    lines: tuple[str, ...]
    function: Function
    lines_before: int
    columns_before: int
    names: dict[str, str]

    def where(self, node: ast.AST) -> Where:
        """The place of `node`, which must have a position."""
        line, end = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
        first, last = self.lines[line - 1], self.lines[end - 1]
        column = characters(first, node.col_offset)  # type: ignore[attr-defined]
        end_column = characters(last, node.end_col_offset or 0)  # type: ignore[attr-defined]
        return Where(
            self.function.file, line + self.lines_before, column + self.columns_before,
            end + self.lines_before,
            end_column + self.columns_before, first.strip(), ast.unparse(node), self.function.name,
        )  # fmt: skip

    def dotted(self, node: ast.AST) -> str:
        """The full name of what is called: `jax.random.normal` for `jr.normal`; empty for no name."""
        first, _, rest = dotted(node).partition(".")
        if not rest:
            return self.names.get(first, first)
        if first == "random" and first not in self.names and rest.partition(".")[0] not in STDLIB_RANDOM:
            return f"jax.random.{rest}"
        return f"{self.names.get(first, first)}.{rest}"

    def calls(self, tree: ast.AST | None = None) -> Iterator[tuple[str, ast.Call]]:
        """Every call with its full name, in the order of the text."""
        found = [n for n in nodes_of(tree or self.tree) if isinstance(n, ast.Call)]
        found.sort(key=lambda n: (n.lineno, n.col_offset))
        return ((self.dotted(n.func), n) for n in found)

    def own(self) -> ast.AST:
        """The node of the function itself; the whole tree where it is not in the text."""
        last = self.function.name.rsplit(".", 1)[-1]
        at = self.function.line - self.lines_before
        for node in definitions(self.tree):
            if node.name == last and node.lineno == at:
                return node
        return self.tree


STORING = frozenset("append extend insert update setdefault".split())
"""Methods by which lists and dicts take something in."""


def stores_into(node: ast.AST) -> str:
    """The name of the list or dict that a statement stores into (`log.append(x)`, `m["loss"] = x`), or nothing."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        return _root(called.value) if isinstance(called, ast.Attribute) and called.attr in STORING else ""
    if isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return next((_root(t) for t in targets if isinstance(t, ast.Subscript)), "")
    return ""


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def only_stored(function: ast.AST, name: str) -> list[ast.stmt]:
    """The statements that store into the name, where the function makes no other use of it."""
    found = [n for n in walk(function) if isinstance(n, ast.stmt) and stores_into(n) == name]
    uses = [n for n in walk(function) if isinstance(n, ast.Name) and n.id == name]
    return found if len(uses) == len(found) else []


@functools.lru_cache(maxsize=16)
def parse(function: Function) -> ParsedText | None:
    """The definition of the function, or None where there is no source."""
    tree = _tree(function.source)
    if tree is None:
        return None
    node = next(definitions(tree), None) or next((n for n in walk(tree) if isinstance(n, ast.Lambda)), None)
    if node is None:
        return None
    column = (
        function.where.column - node.col_offset if function.where and isinstance(node, FunctionNode) else 0
    )
    return _source(function, tree, function.source, function.line - node.lineno, max(column, 0))


@functools.lru_cache(maxsize=16)
def parse_cell(function: Function) -> ParsedText | None:
    """The whole cell that defines the function; its definition alone where the cell is not known."""
    tree = _tree(function.cell)
    last = function.name.rsplit(".", 1)[-1]
    candidates = [n for n in definitions(tree) if n.name == last] if tree else []
    if tree is None or not candidates:
        return parse(function)
    shift = min((function.line - n.lineno for n in candidates), key=abs)
    return _source(function, tree, function.cell, shift, 0)


def definitions(tree: ast.AST) -> Iterator[FunctionNode]:
    """Every `def` in the tree, outer ones first."""
    return (n for n in statements(tree) if isinstance(n, FunctionNode))


def bound_names(node: ast.AST) -> set[str]:
    """Names that the code binds: parameters, assignments, loop targets, inner definitions, imports."""
    nodes = nodes_of(node)
    names = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    names |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    return names | {n.name for n in nodes if isinstance(n, FunctionNode) and n is not node}


def loaded_names(node: ast.AST) -> list[str]:
    """Names that the expression reads, in the order of the text, without those of called functions."""
    nodes = walk(node)
    called = {n.func for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    modules = {n.value for n in nodes if isinstance(n, ast.Attribute) and _is_module(n.value)}
    found = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    found.sort(key=lambda n: (n.lineno, n.col_offset))
    return list(dict.fromkeys(n.id for n in found if n not in called and n not in modules))


def first_use(source: ParsedText, name: str) -> Where | None:
    """The first place in the function's body that computes with `name`."""
    node = source.own()
    body = node.body if isinstance(node, FunctionNode) else [node]
    for statement in body:
        for n in walk(statement):
            if isinstance(n, (ast.BinOp, ast.Call, ast.Compare, ast.UnaryOp)) and name in loaded_names(n):
                return source.where(n)
    return None


def _source(function: Function, tree: ast.Module, text: str, lines: int, columns: int) -> ParsedText:
    names = dict(CONVENTIONS)
    for part in (function.cell, text):
        names.update(_imported(part))
    names.update((name, f"__main__.{name}") for name in function.own_names)
    return ParsedText(tree, tuple(text.splitlines()), function, lines, columns, names)


@functools.lru_cache(maxsize=8)
def _tree(text: str) -> ast.Module | None:
    try:
        return parsed(text) if text.strip() else None
    except (SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=32)
def _imported(text: str) -> dict[str, str]:
    """Names that a text imports; every rule asks about the same cell."""
    tree = _tree(text)
    return dict(imported(tree)) if tree is not None else {}


def _is_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in CONVENTIONS
