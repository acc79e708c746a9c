"""What calls pass to the function: the arguments that jax does not take, and calls that pass something else."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence

from jitmagic.fixes.change import Claim, Shape, Spot
from jitmagic.rules.base import root
from jitmagic.source import scope, signature
from jitmagic.source.edits import Edits, Text
from jitmagic.source.pattern import atom

SETTINGS = frozenset(("str", "bytes", "function", "builtin_function_or_method", "type", "ufunc", "method"))
"""Types of what a program can only be compiled for."""


def arguments(spot: Spot) -> list[str]:
    """Parameters that the finding is about."""
    names = scope.parameters_of(spot.definition)
    return [n for n in dict.fromkeys(map(root, spot.names)) if n in names]


def types_of(spot: Spot, name: str) -> set[str]:
    """Names of the types that a parameter had."""
    return {s.text for s in asked(spot, f"type({name}).__name__")}


def texts_of(spot: Spot, code: str) -> list[str]:
    """The texts among what an expression is when the function begins."""
    return list(dict.fromkeys(s.text for s in asked(spot, code) if s.text))


def asked(spot: Spot, code: str) -> Sequence[Shape]:
    """What an expression is when the function begins."""
    first = signature.first_statement(spot.definition)
    return spot.probed(spot.edits().before(first, f"__seen__({code})"))


def refused_besides(spot: Spot, names: Collection[str]) -> tuple[str, ...]:
    """Other parameters that jax does not take, and that may be static: texts and functions."""
    found = []
    for name in scope.parameters_of(spot.definition):
        others = [leaf for leaf in spot.leaves(name) if leaf.kind == "other" and not leaf.static]
        if name not in names and others and all(leaf.python_type in SETTINGS for leaf in others):
            found.append(name)
    return tuple(found)


def traced_again(spot: Spot, names: Collection[str]) -> tuple[str, ...] | None:
    """What is static still where these are no longer; None where they are not static."""
    declared = spot.declared
    return tuple(n for n in declared if n not in names) if set(names) & set(declared) else None


def fewer_traces(spot: Spot, names: Collection[str]) -> Claim:
    """Where a program was made for each of these, there have to be fewer."""
    leaves = [leaf for name in names for leaf in spot.leaves(name)]
    made = bool(leaves) and all(leaf.static and leaf.hashable for leaf in leaves)
    return Claim(fewer="traces") if made else Claim()


def passed(
    spot: Spot,
    edits: Edits,
    names: Collection[str],
    write: Callable[[Edits, ast.expr, str], Mapping[str, str]],
) -> tuple[str, ...]:
    """The calls with something else for arguments: in the cell, of which these are the changes, and in the later
    cells, which are given back. `write` gives what is passed for one, code by parameter."""
    cells = [edits, *spot.cells()[1:]]
    for inside, node, name in spot.given(cells, *names):
        signature.replace_argument(inside, node, write(inside, node, name))
    return tuple(cell.result() for cell in cells[1:])


def with_argument(code: str, name: str, given: str) -> str:
    """An expression of a parameter, with what a call passes in its place."""
    edits = Edits(Text(code))
    for node in edits.text.within(edits.text.tree, ast.Name):
        if node.id == name:
            edits.replace(node, atom(given))
    return edits.result()
