"""Traced values as an index or a key: branches in a list, tables of constants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.merging import call as call_text
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import assigned, is_boolean, stripped, truth


def candidates(place: Place) -> Iterator[Candidate]:
    """Lists and dicts looked up by a traced value, as arrays that are and as functions of jax that choose."""
    import libcst as cst

    if place.kind not in ("tracer-int", "tracer-hash", "tracer-array-conversion"):
        return
    for node in place.on_line(cst.Subscript, cst.Call):
        if isinstance(node, cst.Call):
            if (
                isinstance(node.func, cst.Attribute)
                and node.func.attr.value == "get"
                and 1 <= len(node.args) <= 2
            ):
                yield from _dict_get(place, node)
            continue
        if isinstance(place.cell.parents.get(node), (cst.AssignTarget, cst.AugAssign)):
            continue
        if len(node.slice) > 1 and place.kind != "tracer-hash":
            yield from _array_entry(place, node)
            continue
        if not all(isinstance(part.slice, cst.Index) for part in node.slice):
            continue
        if place.kind == "tracer-hash":
            yield from _dict_item(place, node)
        else:
            yield from _list_item(place, node)


def _call_of(place: Place, node: Any) -> Any:
    """The call of which the node is the function, or None."""
    import libcst as cst

    parent = place.cell.parents.get(node)
    return parent if isinstance(parent, cst.Call) and parent.func is node else None


def _positional(place: Place, call: Any) -> list[str] | None:
    if any(a.keyword or a.star for a in call.args):
        return None
    return [place.cell.code(a.value) for a in call.args]


def _array_entry(place: Place, node: Any) -> Iterator[Candidate]:
    """`table[i, j]` of an array of NumPy's."""
    table = place.cell.code(node.value)
    inside = ", ".join(place.cell.code(e.slice) for e in node.slice)
    if not names.traced_in(place.cell.code(node), place.traced):
        return
    if {s.type for s in place.probe(place.cell.edit({node.value: f"__seen({table})"}))} == {"numpy"}:
        new = place.cell.edit({node: f"{place.jnp}.asarray({table})[{inside}]"})
        yield Candidate(
            f"make `{table}` an array of jax's, which takes traced indices", new, **clamps(place, inside)
        )


def _list_item(place: Place, node: Any) -> Iterator[Candidate]:
    wanted = node.slice[0].slice.value
    table = place.cell.code(node.value)
    if not names.traced_in(place.cell.code(wanted), place.traced) or table.startswith(f"{place.jnp}."):
        return  # an array takes it already
    whole = _whole(place, wanted)
    if whole is not None and is_boolean(place, whole) and _is_pair(node.value):
        yield _one_of_two(place, node, whole)
        return
    if _is_dict(place, node.value):
        yield from _dict_item(place, node)
        return
    index = _index(place, wanted)
    call = _call_of(place, node)
    if call is not None:
        arguments = _positional(place, call)
        if arguments is None:
            return
        new = call_text(f"{place.lax}.switch", index, table, *arguments)
        yield Candidate(
            "choose the function with `jax.lax.switch`", place.cell.edit({call: new}), **clamps(place, index)
        )
        return
    later = _called_later(place, node)
    if later is not None:
        statement, calls = later
        changes: dict[Any, str | None] = {statement: None}
        for call in calls:
            arguments = _positional(place, call)
            if arguments is None:
                return
            changes[call] = call_text(f"{place.lax}.switch", index, table, *arguments)
        yield Candidate(
            "choose the function with `jax.lax.switch`", place.cell.edit(changes), **clamps(place, index)
        )
    for form in (f"{place.jnp}.array({table})[{index}]", f"{place.jnp}.stack({table})[{index}]"):
        yield Candidate(f"make `{table}` an array, which takes a traced index", place.cell.edit({node: form}),
                        **clamps(place, index))  # fmt: skip
    tree = f"{place.jax}.tree.map(lambda *xs: {place.jnp}.stack(xs)[{index}], *{table})"
    yield Candidate(
        f"stack what `{table}` holds, and index that", place.cell.edit({node: tree}), **clamps(place, index)
    )


def _whole(place: Place, node: Any) -> Any:
    """What `int(...)` is called on; None where the node is no such call."""
    import libcst as cst

    is_int = isinstance(node, cst.Call) and place.cell.code(node.func) == "int" and len(node.args) == 1
    return node.args[0].value if is_int else None


def _index(place: Place, node: Any) -> str:
    """The index as one that arrays take: without `int`, where what it is called on is whole already."""
    whole = _whole(place, node)
    if whole is None:
        return place.cell.code(node)
    code = stripped(place.cell.code(whole))
    kinds = {s.dtype.strip("0123456789") for s in place.probe(place.cell.edit({whole: f"__seen({code})"}))}
    if kinds == {"bool"}:
        return f"{place.jnp}.int32({code})"
    return code if kinds and kinds <= {"int", "uint"} else place.cell.code(node)


def _is_pair(node: Any) -> bool:
    import libcst as cst

    return isinstance(node, (cst.Tuple, cst.List)) and len(node.elements) == 2


def _one_of_two(place: Place, node: Any, test: Any) -> Candidate:
    """`(a, b)[int(c)]` as `jnp.where(c, b, a)`, or as `cond` where it is called."""
    other, one = (stripped(place.cell.code(e.value)) for e in node.value.elements)
    condition, call = stripped(truth(place, test)), _call_of(place, node)
    arguments = None if call is None else _positional(place, call)
    if arguments is not None:
        new = call_text(f"{place.lax}.cond", condition, one, other, *arguments)
        return Candidate("choose the function with `jax.lax.cond`", place.cell.edit({call: new}))
    new = call_text(f"{place.jnp}.where", condition, one, other)
    return Candidate("choose with `jnp.where`", place.cell.edit({node: new}))


def _is_dict(place: Place, table: Any) -> bool:
    code = place.cell.code(table)
    asked = f"(__seen(int(isinstance({code}, dict))), {code})[1]"
    return any(s.value for s in place.probe(place.cell.edit({table: asked})))


def clamps(place: Place, index: str) -> dict[str, Any]:
    """What a traced index costs: beyond the end it is no error, but the last element. Nothing where it cannot be."""
    import libcst as cst

    value = assigned(place, cst.Name(index)) if index.isidentifier() else None
    source = place.cell.code(value) if value is not None else index
    if any(word in source for word in BOUNDED):
        return {}
    return {"applicability": "unsafe", "cost": "an index beyond the end is clamped, not an error"}


BOUNDED = ("argmax(", "argmin(", "clip(", "% len(", "argsort(", "categorical(")
"""What gives indices that are in range."""


def _called_later(place: Place, node: Any) -> tuple[Any, list[Any]] | None:
    """`g = fs[i]` with every use of `g` a call: the statement and these calls."""
    import libcst as cst

    parent = place.cell.parents.get(node)
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1 or place.outermost is None:
        return None
    target = parent.targets[0].target
    statement = place.cell.statement(parent)
    if (
        not isinstance(target, cst.Name)
        or not isinstance(statement, cst.SimpleStatementLine)
        or len(statement.body) > 1
    ):
        return None
    uses = [
        n for n in place.cell.within(place.outermost, cst.Name) if n.value == target.value and n is not target
    ]
    calls = [_call_of(place, n) for n in uses]
    return (statement, calls) if uses and all(c is not None for c in calls) else None


def _keys(place: Place, table: Any) -> tuple[list[str], list[str]] | None:
    """Keys and values of a dict display, or None where it is not at hand."""
    import libcst as cst

    value = assigned(place, table) if isinstance(table, cst.Name) else table
    if not isinstance(value, cst.Dict) or not all(isinstance(e, cst.DictElement) for e in value.elements):
        return None
    elements: list[Any] = list(value.elements)
    return [place.cell.code(e.key) for e in elements], [place.cell.code(e.value) for e in value.elements]


def _dict_item(place: Place, node: Any) -> Iterator[Candidate]:
    import libcst as cst

    index, table = _index(place, node.slice[0].slice.value), place.cell.code(node.value)
    if len(node.slice) > 1:
        index = f"({', '.join(place.cell.code(part.slice.value) for part in node.slice)})"
    if isinstance(node.value, cst.Call) or not names.traced_in(index, place.traced):
        return
    found = _keys(place, node.value)
    counted = found is not None and found[0] == [str(i) for i in range(len(found[0]))]
    call = _call_of(place, node)
    position = index if counted else _position_of_key(place, table, index)
    if call is not None:
        arguments = _positional(place, call)
        if arguments is not None:
            new = call_text(f"{place.lax}.switch", position, f"list({table}.values())", *arguments)
            yield Candidate(
                "choose the function with `jax.lax.switch`", place.cell.edit({call: new}), **MISSING_KEY
            )
        return
    for make in ("array", "stack"):
        new = f"{place.jnp}.{make}(list({table}.values()))[{position}]"
        yield Candidate(
            f"make `{table}` an array, which takes a traced index",
            place.cell.edit({node: new}),
            **MISSING_KEY,
        )


def _position_of_key(place: Place, table: str, index: str) -> str:
    """Where the traced key stands in the dict; one that is a tuple is compared item by item."""
    import libcst as cst

    key = assigned(place, cst.Name(index)) if index.isidentifier() else None
    source = place.cell.code(key) if key is not None else index
    if isinstance(cst.parse_expression(source), cst.Tuple):
        return f"{place.jnp}.argmax(({place.jnp}.array(list({table})) == {place.jnp}.array({index})).all(-1))"
    return f"{place.jnp}.argmax({place.jnp}.array(list({table})) == {index})"


MISSING_KEY: dict[str, Any] = {"applicability": "unsafe", "cost": "a missing key is no error"}


def _dict_get(place: Place, node: Any) -> Iterator[Candidate]:
    index, table = place.cell.code(node.args[0].value), place.cell.code(node.func.value)
    if not names.traced_in(index, place.traced):
        return
    default = place.cell.code(node.args[1].value) if len(node.args) == 2 else f"{place.jnp}.nan"
    new = f"{place.jnp}.select([{index} == key for key in {table}], list({table}.values()), {default})"
    yield Candidate(f"choose from `{table}` with `jnp.select`", place.cell.edit({node: new}))
