"""Selections whose length depends on data (`x[mask]`, `x[:n]`): the whole array stays, masked where it is reduced."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.sizes.masked_functions import Bodies
from jitmagic.fixes.sizes.masks import Unsupported
from jitmagic.fixes.sizes.statements import first_of


def masked_selections(spot: Spot) -> Iterator[Change]:
    """The statement of the place and those that follow it in its block, with masks for selections."""
    statement = first_of(spot.text, spot.text.statement(spot.node))
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return
    block, index = spot.text.siblings(statement)
    lower = Bodies(spot)
    results = lower.body(block[index:], {}, {})
    if any(results):
        raise Unsupported
    if edits := lower.finished():
        yield Change("keep the whole array, and mask where it is reduced", edits)
