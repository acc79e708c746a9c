"""What a run without jit was stopped at, since it can't be undone: the compiled function does that while jax traces."""

from __future__ import annotations

import ast
import contextlib
import types
from collections.abc import Iterator, Sequence

from jitmagic.evidence import SideEffect, Where, root
from jitmagic.silent.code import code_of
from jitmagic.source.tree import Source
from jitmagic.state.outside import READING
from jitmagic.state.paths import PathError
from jitmagic.state.reads import seen_from_cell
from jitmagic.state.untouched import changing
from jitmagic.tracing.sites import site_of
from jitmagic.trial.quiet import Obstacle


def effects(obstacle: Obstacle, functions: Sequence[types.FunctionType]) -> Iterator[SideEffect]:
    """The calls and stores that stand in the way, one for each line. What is called for its value, and may do nothing
    else, is not among them: the compiled function goes on computing it."""
    lines = set()
    for node, where, source, known in _places(obstacle, functions):
        sure = known or _is_for_effect(node, source)
        if sure and (where.file, where.line) not in lines:
            lines.add((where.file, where.line))
            first = seen_from_cell("", (where,), functions)[0]
            yield SideEffect("outside", (first.text,), first, where.text)


def _places(
    obstacle: Obstacle, functions: Sequence[types.FunctionType]
) -> Iterator[tuple[ast.AST, Where, Source, bool]]:
    site = site_of(*obstacle.place) if obstacle.place is not None else None
    if site is not None and site.node is not None:
        yield site.node, site.where, site.source, obstacle.sure
    for path, sure in obstacle.paths:
        with contextlib.suppress(PathError):
            for fn, use in changing(path, functions, READING):
                named = use.root == root(path) and use.nodes  # any other name may mean it, and most do not
                if named and (code := code_of(fn)) is not None:
                    node: ast.AST | None = use.nodes[-1]
                    while node is not None and not isinstance(node, ast.Call | ast.stmt):
                        node = code.parent(node)
                    if node is not None:
                        yield node, code.where(node, head=True), code.source, sure


def _is_for_effect(node: ast.AST, source: Source) -> bool:
    """A call whose value nobody takes, a statement, what is stored or deleted: no value is asked for."""
    if isinstance(node, ast.Call):
        return _is_dropped(node, source)
    return not isinstance(node, ast.expr) or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


def _is_dropped(call: ast.AST, source: Source) -> bool:
    """Nobody takes what the call gives: it is made for what it does."""
    node, above = call, source.parent(call)
    while isinstance(above, ast.Attribute | ast.Await) or (
        isinstance(above, ast.Call) and above.func is node
    ):
        node, above = above, source.parent(above)
    return isinstance(above, ast.Expr)
