"""How many different values an array holds, where that is all that `jnp.unique` or `set` is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import stripped

KINDS = ("dynamic-shape", "tracer-int", "tracer-array-conversion", "tracer-hash")
UNIQUE = ("unique", "unique_values")


def candidates(place: Place) -> Iterator[Candidate]:
    """`len(jnp.unique(x))`, by a name too, as the number of places where the sorted values change."""
    import libcst as cst

    if place.kind not in KINDS:
        return
    for call in place.on_line(cst.Call):
        values = _array(place, call)
        asked = counted(place, call) if values else []
        if not asked:
            continue
        kinds = {
            s.dtype for s in place.probe(place.cell.edit({call: f"{place.jnp}.unique(__seen({values}))"}))
        }
        whole = all(kind.startswith(("int", "uint", "bool")) for kind in kinds)
        changes_at = f"{place.jnp}.diff({place.jnp}.sort({values}, axis=None)) != 0"
        count = f"{place.jnp}.sum({changes_at}) + ({names.wrapped(values)}.size > 0)"
        changes: dict[Any, str | None] = {use: _placed(place, use, count) for use in asked}
        statement = place.cell.statement(call)
        if call not in [n for use in asked for n in place.cell.within(use, cst.Call)]:
            assignment = statement.body[0]
            changes = {**{use: _name_of(assignment) for use in asked}, call: count}
        yield Candidate(
            "count the places where the sorted values change", place.cell.edit(changes),
            "safe" if whole else "unsafe", "" if whole else "each NaN counts as a value of its own",
        )  # fmt: skip


def _placed(place: Place, node: Any, count: str) -> str:
    """In parentheses where more is made of it than to bind, return or pass it."""
    import libcst as cst

    alone = isinstance(place.cell.parents.get(node), (cst.Assign, cst.Return, cst.Arg))
    return count if alone else f"({count})"


def _array(place: Place, call: Any) -> str:
    """The array whose values `jnp.unique(x)` or `set(x.tolist())` takes together; empty for other calls."""
    import libcst as cst

    if len(call.args) != 1 or call.args[0].keyword or call.args[0].star:
        return ""
    given, function = call.args[0].value, place.cell.code(call.func)
    root, _, name = function.rpartition(".")
    if name in UNIQUE and (root == place.jnp or place.modules.get(root) in ("numpy", "jax.numpy")):
        return stripped(place.cell.code(given))
    listed = isinstance(given, cst.Call) and not given.args and place.cell.code(given.func)
    if function == "set" and listed and listed.endswith(".tolist"):
        return listed.removesuffix(".tolist")
    return ""


def counted(place: Place, call: Any) -> list[Any]:
    """The expressions (`len(u)`, `u.size`, `u.shape[0]`) that count what the call gives, where nothing else is made
    of it; `u` is the call itself, or the name that it is bound to."""
    import libcst as cst

    parent = place.cell.parents.get(call)
    name = _name_of(parent) if isinstance(parent, cst.Assign) else ""
    if not name or place.outermost is None:
        found = _count(place, call)
        return [found] if found is not None else []
    uses = [n for n in place.cell.within(place.outermost, cst.Name) if n.value == name]
    counts = [_count(place, n) for n in uses if not isinstance(place.cell.parents.get(n), cst.AssignTarget)]
    return counts if len(counts) == len(uses) - 1 and None not in counts else []


def _name_of(assignment: Any) -> str:
    import libcst as cst

    target = assignment.targets[0].target
    return str(target.value) if len(assignment.targets) == 1 and isinstance(target, cst.Name) else ""


def _count(place: Place, node: Any) -> Any:
    """`len(node)`, `node.size` or `node.shape[0]`, or None."""
    import libcst as cst

    parents = place.cell.parents
    parent = parents.get(node)
    if (
        isinstance(parent, cst.Subscript)
        and parent.value is node
        and place.cell.code(parent.slice[0]).strip() == "0"
    ):
        node, parent = parent, parents.get(parent)  # `jnp.nonzero(x)[0]`
    if isinstance(parent, cst.Arg):
        called = parents.get(parent)
        return called if isinstance(called, cst.Call) and place.cell.code(called.func) == "len" else None
    if not isinstance(parent, cst.Attribute) or parent.value is not node:
        return None
    if parent.attr.value == "size":
        return parent
    item = parents.get(parent)
    first = isinstance(item, cst.Subscript) and place.cell.code(item.slice[0]).strip() == "0"
    return item if parent.attr.value == "shape" and first else None
