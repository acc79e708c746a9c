"""Library functions that want numbers and have no counterpart in jax: called on the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.conversions import NO_COUNTERPART, counterpart, patched
from jitmagic.fixes.rewrite.merging import call as source_of
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import stripped

COST = "it runs in Python at each call and has no gradient"


def candidates(place: Place) -> Iterator[Candidate]:
    """The call of the place through `jax.pure_callback`, which hands it the values while the program runs."""
    import libcst as cst

    if place.kind != "tracer-array-conversion":
        return
    call = next((n for n in place.path if isinstance(n, cst.Call)), None)
    if call is None or not _foreign(place, call):
        return
    operands = _operands(place, call)
    form = _form(place, call, operands)
    if form is not None:
        name = place.cell.code(call.func)
        yield Candidate(f"call `{name}` on the host through `jax.pure_callback`",
                        place.cell.edit({call: _hosted(place, call, operands, form)}), "unsafe", COST)  # fmt: skip


def _foreign(place: Place, call: Any) -> bool:
    """A function from outside the cell and jax, which gives a value that is used."""
    import libcst as cst

    name = place.cell.code(call.func)
    root = name.partition(".")[0]
    if not name.replace(".", "").isidentifier() or isinstance(place.cell.parents.get(call), cst.Expr):
        return False
    own = names.stores(place.cell.module.code) if root not in place.modules else []
    library = place.modules.get(root, "")
    if (
        root in (place.jnp, place.jax, "lax")
        or library.startswith("jax")
        or root in place.traced
        or root in own
    ):
        return False
    if library == "numpy" and name.split(".")[1:2] and name.split(".")[1] in NO_COUNTERPART:
        return False  # random numbers, files
    return counterpart(place, name) is None and not any(a.star for a in call.args)


@dataclass(frozen=True)
class _Operand:
    """An argument that has no value while jax traces."""

    node: Any
    name: str
    """What it is called inside the function on the host."""


def _operands(place: Place, call: Any) -> list[_Operand]:
    import libcst as cst

    found: list[_Operand] = []
    taken = set(place.taken)
    for argument in call.args:
        value = argument.value
        if not names.traced_in(place.cell.code(value), place.traced):
            continue
        name = value.value if isinstance(value, cst.Name) else names.fresh("v", taken)
        taken.add(name)
        found.append(_Operand(value, name))
    return found


def _form(place: Place, call: Any, operands: list[_Operand]) -> tuple[str, str] | None:
    """Shape and dtype of the result as source, from a run without jit; None where they are not those of an operand."""
    import jax

    def seen(node: Any) -> set[tuple[tuple[int, ...], str]]:
        shapes = place.probe(place.cell.edit({node: f"__seen({place.cell.code(node)})"}))
        try:
            return {(s.shape, str(jax.dtypes.canonicalize_dtype(s.dtype))) for s in shapes if s.dtype}
        except TypeError:  # an object that is no array
            return set()

    result = seen(call)
    if len({dtype for _, dtype in result}) != 1:
        return None
    dtype = f"{place.jnp}.{next(iter(result))[1]}"
    like = next((o for o in operands if seen(o.node) == result), None)
    if like is not None:
        return (f"{place.jnp}.shape({stripped(place.cell.code(like.node))})", dtype)
    return ("()", dtype) if {shape for shape, _ in result} == {()} else None


def _hosted(place: Place, call: Any, operands: list[_Operand], form: tuple[str, str]) -> str:
    inside = patched(place, call, {o.node: o.name for o in operands})
    shape, dtype = form
    given = ", ".join(o.name for o in operands)
    function = f"lambda {given}: {place.alias('numpy')}.asarray({inside}, {dtype})"
    values = [stripped(place.cell.code(o.node)) for o in operands]
    result = f"{place.jax}.ShapeDtypeStruct({shape}, {dtype})"
    return source_of(f"{place.jax}.pure_callback", function, result, *values)
