"""Loops that store into attributes (`self.v = ...`): the same with names for them, which loops of jax's can carry."""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterator
from dataclasses import replace

from jitmagic.fixes.change import Change, Family, Spot
from jitmagic.source.edits import Text
from jitmagic.source.loops import LoopBody, LoopNode
from jitmagic.source.modules import dotted
from jitmagic.source.tree import characters


def of_attributes(family: Family) -> Family:
    """A family for loops, asked of the loop with a name for each attribute that it stores into: read in front of the
    loop, stored behind it."""

    @functools.wraps(family)
    def asked(spot: Spot) -> Iterator[Change]:
        loop = next((n for n in reversed(spot.path) if isinstance(n, LoopNode)), None)
        if loop is not None and (paths := _stored(spot.text, loop)):
            yield from family(_named(spot, loop, paths))

    return asked


def _stored(text: Text, loop: LoopNode) -> list[str]:
    """The attributes that a loop stores into; none where something else may read or write them meanwhile."""
    chains = [n for n in text.within(loop, ast.Attribute) if dotted(n)]
    paths = list(dict.fromkeys(dotted(n) for n in chains if isinstance(n.ctx, ast.Store)))
    roots, last = {p.partition(".")[0] for p in paths}, {p.rpartition(".")[2] for p in paths}
    if any(isinstance(n, ast.Return) for n in LoopBody(text, loop).jumps):
        return []
    if any(n.attr in last and dotted(n) not in paths for n in chains):  # it may be the same object
        return []
    names = (n for n in text.within(loop, ast.Name) if n.id in roots)
    return [] if any(_is_handed_on(text, n, paths) for n in names) else paths


def _is_handed_on(text: Text, name: ast.Name, paths: Collection[str]) -> bool:
    """The object itself is used, or a method of it is called."""
    node: ast.AST = name
    while isinstance(above := text.parents[node], ast.Attribute):
        if dotted(above) in paths:
            return False
        node = above
    return node is name or isinstance(above, ast.Call) and above.func is node


def _named(spot: Spot, loop: LoopNode, paths: Collection[str]) -> Spot:
    """The place in the cell with names for these attributes."""
    names, edits = dict[str, str](), spot.edits()
    for path in paths:
        whole = path.replace(".", "_")
        short = path.rpartition(".")[2].lstrip("_") or whole
        names[path] = spot.text.fresh(short, whole, taken=[*spot.modules.names, *names.values()])
    for node in spot.text.within(loop, ast.Attribute):
        if (name := names.get(dotted(node))) is not None:
            edits.replace(node, name)
    edits.before(loop, "\n".join(f"{name} = {path}" for path, name in names.items()))
    edits.after(loop, "\n".join(f"{path} = {name}" for path, name in names.items()))
    text = Text(edits.result())
    statement = next(n for n in spot.path if isinstance(n, ast.stmt))
    moved = _statements(text)[_statements(spot.text).index(statement) + len(names)]
    first: ast.expr | ast.stmt = moved
    if isinstance(moved, ast.While | ast.If) and getattr(statement, "test", None) in spot.path:
        first = moved.test
    end = moved.iter if isinstance(moved, ast.For) else first
    last, after = end.end_lineno or 0, end.end_col_offset or 0
    return replace(
        spot, text=text, line=first.lineno, column=characters(text.lines[first.lineno - 1], first.col_offset),
        end_line=last, end_column=characters(text.lines[last - 1], after),
    )  # fmt: skip


def _statements(text: Text) -> list[ast.stmt]:
    """All of a cell, from above."""
    return sorted(text.within(text.tree, ast.stmt), key=lambda s: (s.lineno, s.col_offset))
