"""Branches of `lax.cond` and `lax.switch` that return different things: made equal in structure, shape and dtype."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.branches.structures import OutputWriter, Want, item_of, items_of
from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.loops.lax_calls import definition, returned, spelt_out
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import atom, expression

EQUAL = "return the same types from every branch"
FILLED = "return the same structure from every branch, with zeros for what one of them lacks"
FORMED = "one of them then has another form"


@dataclass(frozen=True)
class Branch:
    """A branch of the call: what of it is replaced, the expression that it returns, and its parameters."""

    node: ast.expr
    source: str
    parameters: tuple[str, ...]
    head: str = ""
    """The head of the lambda around a function that is known by its name only."""


def output_types(spot: Spot) -> Iterator[Change]:
    """The returned expressions of the branches, completed and cast where they differ."""
    for call in spot.on_line(ast.Call):
        kind = last_name(call.func)
        if kind in ("cond", "switch") and len(call.args) >= 2:
            yield from _equal(spot, call, call.args[1:3] if kind == "cond" else call.args[1:2])


def _equal(spot: Spot, call: ast.Call, given: Sequence[ast.expr]) -> Iterator[Change]:
    operands = call.args[1 + len(given) :]
    branches = _branches(spot, given, [spot.code(o) for o in operands])
    asked = spot.write(
        "__outputs__([$*given], $*operands)" if len(given) > 1 else "__outputs__($*given, $*operands)",
        given=given, operands=operands,
    )  # fmt: skip
    trees = spot.outputs(spot.edits().replace(call, asked).result())
    if len(trees) < 2 or len(branches) != len(trees):
        return
    want = joined(trees, [expression(b.source) for b in branches])
    if want is None:
        return
    writer, edits = OutputWriter(spot), spot.edits()
    for branch, tree in zip(branches, trees, strict=True):
        writer.spare = branch.parameters
        node = ast.parse(branch.source, mode="eval").body
        cast = writer.written(node, branch.source, tree, want)
        if cast is None:
            return
        if cast != branch.source:
            edits.replace(branch.node, branch.head + cast)
    if edits:
        title = FILLED if writer.filled else EQUAL
        sure = not (writer.filled or writer.formed)
        cost = FORMED if writer.formed else ""
        yield Change(title, edits, cost=cost, claim=Claim("covers"), sure=sure)


# --- the branches in the source


def _branches(spot: Spot, given: Sequence[ast.expr], operands: Sequence[str]) -> list[Branch]:
    """The branches as written; none where they are not written out."""
    if len(given) == 1:
        table = spelt_out(spot, spot.text.tree, given[0])
        given = table.elts if isinstance(table, ast.List | ast.Tuple) else []
    return [_branch(spot, g, operands) for g in given]


def _branch(spot: Spot, node: ast.expr, operands: Sequence[str]) -> Branch:
    """A branch by what it returns; a function that is not written here as the lambda that calls it."""
    function = definition(spot, node)
    results = returned(spot, function)
    if function is not None and len(results) == 1:
        return Branch(results[0], spot.code(results[0]), tuple(a.arg for a in function.args.args))
    simple = len(set(operands)) == len(operands) and all(o.isidentifier() for o in operands)
    own = tuple(operands) if simple else tuple(f"x{i}" for i in range(len(operands)))
    return Branch(node, f"{atom(spot.code(node))}({', '.join(own)})", own, f"lambda {', '.join(own)}: ")


# --- what all of them shall return


def joined(trees: Sequence[Any], nodes: Sequence[ast.expr | None]) -> Any:
    """One structure that holds all: dicts with every key, tuples of the greatest length, leaves of one dtype.

    `nodes`: the expressions that give them, where these are at hand."""
    present = [(t, n) for t, n in zip(trees, nodes, strict=True) if t is not None]
    if not present:
        return None
    if all(isinstance(t, dict) for t, _ in present):
        keys = dict.fromkeys(k for t, _ in present for k in t)
        held = {k: [(t[k], item_of(n, k)) for t, n in present if k in t] for k in keys}
        return {k: joined(*zip(*pairs, strict=True)) for k, pairs in held.items()}
    if any(isinstance(t, dict) for t, _ in present):
        return None
    if any(isinstance(t, tuple | list) for t, _ in present):
        return _joined_sequences(present)
    return _leaf(present) if all(hasattr(t, "dtype") for t, _ in present) else present[0][0]


def _joined_sequences(present: Sequence[tuple[Any, ast.expr | None]]) -> Any:
    kinds = [type(t) for t, _ in present if isinstance(t, tuple | list)]
    named = [k for k in kinds if hasattr(k, "_fields")]
    kind = [*named, *kinds][0]
    if not set(kinds) <= ({kind, tuple} if named else {kind}) or not named and kind not in (tuple, list):
        return None
    rows = [
        [*zip(t, items_of(n, t), strict=True)] if isinstance(t, tuple | list) else [(t, n)]
        for t, n in present
    ]
    columns = ([r[i] for r in rows if i < len(r)] for i in range(max(map(len, rows))))
    parts = [joined(*zip(*column, strict=True)) for column in columns]
    return kind(*parts) if named else kind(parts)


def _leaf(present: Sequence[tuple[Any, ast.expr | None]]) -> Want | None:
    import jax.numpy as jnp

    try:
        dtype = str(jnp.result_type(*(_typed(t) for t, _ in present)))
        shape = tuple(jnp.broadcast_shapes(*(t.shape for t, _ in present)))
    except (TypeError, ValueError, AttributeError):
        return None
    alike = (n for t, n in present if (*t.shape, str(t.dtype)) == (*shape, dtype))
    return Want(shape, dtype, next((n.id for n in alike if isinstance(n, ast.Name)), ""))


def _typed(leaf: Any) -> Any:
    """Something that jnp.result_type takes: a Python number where the leaf is weakly typed."""
    import jax.numpy as jnp

    if not getattr(leaf, "weak_type", False):
        return leaf.dtype
    return {"b": False, "i": 0, "f": 0.0, "c": 0j}.get(jnp.dtype(leaf.dtype).kind, leaf.dtype)
