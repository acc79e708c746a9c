"""Branches of `lax.cond` and `lax.switch` that return different things: made equal in structure, shape and dtype."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.written import Want, Writer, item_of, items_of

EQUAL = "return the same types from every branch"
FILLED = "return the same structure from every branch, with zeros for what one of them lacks"
PADDED = "return the largest shape from every branch: zeros are added at the end of smaller results"


def candidates(place: Place) -> Iterator[Candidate]:
    """The returned expressions of the branches, completed and cast where they differ."""
    import libcst as cst

    if place.kind not in ("carry-mismatch", "user-error"):
        return
    for call in place.on_line(cst.Call):
        name = (
            call.func.attr.value if isinstance(call.func, cst.Attribute) else getattr(call.func, "value", "")
        )
        if name in ("cond", "switch") and len(call.args) >= 2:
            yield from _equal(place, call, name)


@dataclass(frozen=True)
class Branch:
    """A branch of the call: what of it is replaced, the expression that it returns, and its parameters."""

    node: Any
    source: str
    parameters: tuple[str, ...]
    head: str = ""
    """The head of the lambda around a function that is known by its name only."""


def _equal(place: Place, call: Any, kind: str) -> Iterator[Candidate]:
    branches = _branches(place, call, kind)
    trees = place.outputs(_probe(place, call, kind))
    if len(trees) < 2 or len(branches) not in (1, len(trees)):
        return
    made = len(branches) == 1  # by a comprehension
    sources = [b.source for b in branches]
    want = _joined(trees, sources * len(trees) if made else sources, place)
    if want is None or made and (not isinstance(want, Want) or want.padded):
        return
    writer = Writer(place.jnp)
    changes: dict[Any, str | None] = {}
    for branch, tree in zip(branches, trees, strict=not made):
        writer.spare = branch.parameters
        node = ast.parse(branch.source, mode="eval").body
        new = (
            writer.cast(branch.source, trees, want)
            if made
            else writer.written(node, branch.source, tree, want)
        )
        if new is None:
            return
        if new != branch.source:
            changes[branch.node] = branch.head + new
    if changes:
        yield Candidate(
            FILLED if writer.filled else PADDED if writer.padded else EQUAL, place.cell.edit(changes),
            "unsafe" if writer.filled or writer.formed else "safe",
            "one of them then has another form" if writer.formed else "", covers=True,
        )  # fmt: skip


# --- the branches in the source


def _branches(place: Place, call: Any, kind: str) -> list[Branch]:
    """The branches as written; one where a comprehension makes them all; none where they are not written out."""
    import libcst as cst

    positional = [a.value for a in call.args if a.keyword is None]
    operands = [place.cell.code(v) for v in positional[3 if kind == "cond" else 2 :]]
    if kind == "cond":
        given = positional[1:3]
    else:
        listed = positional[1]
        listed = _assigned(place, listed) if isinstance(listed, cst.Name) else listed
        if isinstance(listed, cst.ListComp):
            return [_by_name(place, listed.elt, operands)]
        if not isinstance(listed, (cst.List, cst.Tuple)):
            return []
        given = [e.value for e in listed.elements]
    return [_branch(place, g, operands) for g in given]


def _branch(place: Place, node: Any, operands: Sequence[str]) -> Branch:
    function = _definition(place, node)
    returned = _returned(place, function)
    if returned is None:
        return _by_name(place, node, operands)
    parameters = tuple(p.name.value for p in function.params.params)
    return Branch(returned, place.cell.code(returned).strip(), parameters)


def _by_name(place: Place, node: Any, operands: Sequence[str]) -> Branch:
    """A function that is not written here, as the lambda that calls it."""
    simple = len(set(operands)) == len(operands) and all(o.isidentifier() for o in operands)
    given = tuple(operands) if simple else tuple(f"x{i}" for i in range(len(operands)))
    inside, bound = ", ".join(given), _bound_around(place, node)
    head = f"lambda {', '.join([*given, *(f'{n}={n}' for n in bound)])}: "
    return Branch(node, f"{names.wrapped(place.cell.code(node))}({inside})", given, head)


def _bound_around(place: Place, node: Any) -> list[str]:
    """Names of a comprehension's loop in its element, which a lambda has to keep as they are."""
    import libcst as cst

    parent = place.cell.parents.get(node)
    if not isinstance(parent, cst.ListComp):
        return []
    bound = names.stores(f"for {place.cell.code(parent.for_in.target)} in (): pass")
    return [n for n in bound if n in names.loads(place.cell.code(node))]


def _definition(place: Place, node: Any) -> Any:
    import libcst as cst

    if isinstance(node, cst.Lambda):
        return node
    if not isinstance(node, cst.Name):
        return None
    own = [f for f in place.cell.functions() if f.name.value == node.value]
    return own[-1] if own else _assigned(place, node)


def _assigned(place: Place, name: Any) -> Any:
    import libcst as cst

    found = [
        a.value for a in place.cell.within(place.cell.module, cst.Assign)
        if len(a.targets) == 1 and getattr(a.targets[0].target, "value", None) == name.value
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _returned(place: Place, function: Any) -> Any:
    """The expression that a branch returns, or None where it has several."""
    import libcst as cst

    if isinstance(function, cst.Lambda):
        return function.body
    if not isinstance(function, cst.FunctionDef):
        return None
    returns = place.cell.own(function, cst.Return)
    return returns[0].value if len(returns) == 1 else None


def _probe(place: Place, call: Any, kind: str) -> str:
    """The cell with the call replaced by one that tells what each branch returns."""
    code = [place.cell.code(a.value) for a in call.args if a.keyword is None]
    branches = f"[{code[1]}, {code[2]}]" if kind == "cond" else code[1]
    operands = code[3:] if kind == "cond" else code[2:]
    return place.cell.edit({call: f"__outputs({', '.join([branches, *operands])})"})


# --- what all of them shall return


def _joined(trees: Sequence[Any], sources: Sequence[str], place: Place) -> Any:
    """One structure that holds all: dicts with every key, tuples of the greatest length, leaves of one dtype."""
    return _join(list(trees), [_expression(s) for s in sources], place)


def _expression(source: str) -> ast.expr | None:
    try:
        return ast.parse(source.strip(), mode="eval").body
    except SyntaxError:
        return None


def _join(trees: list[Any], nodes: list[ast.expr | None], place: Place) -> Any:
    present = [(t, n) for t, n in zip(trees, nodes, strict=True) if t is not None]
    if not present:
        return None
    if any(isinstance(t, dict) for t, _ in present):
        if not all(isinstance(t, dict) for t, _ in present):
            return None
        keys = list(dict.fromkeys(k for t, _ in present for k in t))
        return {k: _join([t[k] for t, _ in present if k in t], [item_of(n, k) for t, n in present if k in t], place)
                for k in keys}  # fmt: skip
    if any(isinstance(t, (tuple, list)) for t, _ in present):
        return _join_sequences(present, place)
    return _leaf(present, place)


def _join_sequences(present: Sequence[tuple[Any, ast.expr | None]], place: Place) -> Any:
    kinds = [type(t) for t, _ in present if isinstance(t, (tuple, list))]
    kind = next((k for k in kinds if hasattr(k, "_fields")), kinds[0])
    if any(k not in (kind, tuple if hasattr(kind, "_fields") else kind) for k in kinds):
        return None
    if not hasattr(kind, "_fields") and kind not in (tuple, list):
        return None
    longest = max(len(t) for t, _ in present if isinstance(t, (tuple, list)))
    rows = [
        (list(t), items_of(n, len(t))) if isinstance(t, (tuple, list)) else ([t], [n]) for t, n in present
    ]
    joined = []
    for i in range(longest):
        part = _join([t[i] for t, _ in rows if i < len(t)], [n[i] for t, n in rows if i < len(t)], place)
        joined.append(part)
    return kind(*joined) if hasattr(kind, "_fields") else kind(joined)


def _leaf(present: Sequence[tuple[Any, ast.expr | None]], place: Place) -> Want | None:
    import jax.numpy as jnp

    try:
        dtype = str(jnp.result_type(*(_typed(t) for t, _ in present)))
        shapes = [tuple(t.shape) for t, _ in present]
    except (TypeError, ValueError, AttributeError):
        return None
    shape, padded = _common_shape(shapes)
    if shape is None:
        return None
    name = next(
        (
            n.id
            for t, n in present
            if isinstance(n, ast.Name) and tuple(t.shape) == shape and str(t.dtype) == dtype
        ),
        "",
    )
    return Want(shape, dtype, name, padded)


def _common_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...] | None, bool]:
    """The shape that all can be brought to, and whether by adding zeros; None for different numbers of axes."""
    import jax.numpy as jnp

    try:
        return tuple(jnp.broadcast_shapes(*shapes)), False
    except ValueError:
        axes = zip(*shapes, strict=True) if len(set(map(len, shapes))) == 1 else ()
        return tuple(map(max, axes)) or None, True


def _typed(leaf: Any) -> Any:
    """Something that jnp.result_type takes: a Python number where the leaf is weakly typed."""
    import jax.numpy as jnp

    if not getattr(leaf, "weak_type", False):
        return leaf.dtype
    return {"b": False, "i": 0, "f": 0.0, "c": 0j}.get(jnp.dtype(leaf.dtype).kind, leaf.dtype)
