"""A framework's own `jit`, which follows its variables and random states, in place of jax's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot
from jitmagic.state.adapters import OWN_JITS


def own_jits(spot: Spot) -> Iterator[Change]:
    """`bm.jit` for each `jax.jit` of a cell, where the notebook has such a framework."""
    packages = {full.partition(".")[0] for full in spot.modules.names.values()}
    plain = [
        n for n in spot.text.within(spot.text.tree, ast.Name, ast.Attribute) if spot.full(n) == "jax.jit"
    ]
    for own in OWN_JITS:
        if plain and own.partition(".")[0] in packages:
            edits, name = spot.edits(), spot.modules.spelled(own)
            for node in plain:
                edits.replace(node, name)
            yield Change(f"compile with `{name}`, which follows variables", edits)
