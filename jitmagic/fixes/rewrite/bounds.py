"""Results of bounded size: the number of results that the calls seen gave, the last resort."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.distinct import counted
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.sizes import KINDS
from jitmagic.fixes.rewrite.truths import assigned
from jitmagic.rules.classify import DATA_SIZED, SIZE_BY_NUMBER

AS_SEEN = "as in the calls seen"

SIZED = {"nonzero": "size", "flatnonzero": "size", "argwhere": "size", "where": "size", "unique": "size",
         "union1d": "size", "intersect1d": "size", "setdiff1d": "size",
         "unique_values": "size", "unique_counts": "size",
         "repeat": "total_repeat_length", "bincount": "length", "extract": "size", "segment_sum": "num_segments",
         "segment_max": "num_segments", "segment_min": "num_segments", "segment_prod": "num_segments"}  # fmt: skip


def candidates(place: Place) -> Iterator[Candidate]:
    """`jnp.nonzero(x, size=n)`, where the calls seen all gave the same number of results; the last resort."""
    import libcst as cst

    if place.kind not in KINDS:
        return

    for call in place.on_line(cst.Call):
        function = place.cell.code(call.func)
        name = function.rpartition(".")[2]
        if (
            not function.startswith((f"{place.jnp}.", f"{place.jax}.ops."))
            or name not in SIZED
            or (name == "where" and len(call.args) != 1)
            or counted(place, call)  # the number of results is what is asked for
        ):
            continue
        key = SIZED[name]
        if any(a.keyword is not None and a.keyword.value == key for a in call.args) or (
            key == "num_segments" and len(call.args) > 2
        ):
            continue
        code = place.cell.code(call)
        shapes = place.probe(place.cell.edit({call: f"__seen({code})"}))
        axis = next(
            (place.cell.code(a.value) for a in call.args if a.keyword and a.keyword.value == "axis"), "0"
        )
        at = int(axis) if axis.lstrip("-").isdigit() else 0
        sizes = {s.shape[at] if len(s.shape) > abs(at) else -1 for s in shapes if s.shape}
        if len(sizes) != 1:
            continue
        size = sizes.pop()
        new = f"{code.rstrip()[:-1].rstrip().rstrip(',')}, {key}={size})"
        yield Candidate(f"give `{function}` its number of results, `{key}={size}`, {AS_SEEN}",
                        place.cell.edit({call: new}), "unsafe",
                        "more results are cut off, fewer are filled up")  # fmt: skip
    yield from _counted(place)


def _counted(place: Place) -> Iterator[Candidate]:
    """A traced size computed from data, as the number that it was in every call seen."""
    import libcst as cst

    for call in place.on_line(cst.Call):
        function = place.cell.code(call.func)
        name = function.rpartition(".")[2]
        library = function.startswith((f"{place.jnp}.", f"{place.jax}.", f"{place.lax}.", "random."))
        if not library and not (name in _METHODS and isinstance(call.func, cst.Attribute)):
            continue
        if name not in _SIZE_AT and name not in DATA_SIZED | SIZE_BY_NUMBER | _SIZED_BESIDES:
            continue
        for value in _sizes_of(call, name):
            code = place.cell.code(value)
            if isinstance(value, (cst.Integer, cst.Lambda)) or not names.traced_in(code, place.traced):
                continue
            seen = place.probe(place.cell.edit({value: f"__seen({code})"}))
            values = {s.value for s in seen}
            number = next(iter(values)) if len(values) == 1 else None
            if number is None or number < 0:
                continue
            computed = assigned(place, value) if isinstance(value, cst.Name) else None
            new = place.cell.edit({value if computed is None else computed: str(number)})
            yield Candidate(f"give `{function}` the size {number}, {AS_SEEN}", new, "unsafe",
                            "other data may need another")  # fmt: skip


_METHODS = ("reshape", "repeat")
_SIZED_BESIDES = frozenset(
    "identity logspace geomspace split array_split iota broadcasted_iota pad vander approx_max_k".split()
)
_SIZE_AT = {
    "linspace": (2, "num"), "logspace": (2, "num"), "geomspace": (2, "num"), "full": (0, "shape"),
    "dynamic_slice": (2, "slice_sizes"), "dynamic_slice_in_dim": (2, "slice_size"), "randint": (1, "shape"),
    "uniform": (1, "shape"), "normal": (1, "shape"), "one_hot": (1, "num_classes"), "scan": (3, "length"),
}  # fmt: skip
"""Position and name of the size, where a function takes other numbers besides."""


def _sizes_of(call: Any, name: str) -> Iterator[Any]:
    """The arguments of a call that can be its size, and the entries of those that are tuples."""
    import libcst as cst

    at, key = _SIZE_AT.get(name, (None, ""))
    for position, argument in enumerate(call.args):
        named = argument.keyword.value if argument.keyword else ""
        if at is not None and (named != key if named else position != at):
            continue
        if isinstance(argument.value, (cst.Tuple, cst.List)):
            yield from (e.value for e in argument.value.elements if isinstance(e, cst.Element))
        else:
            yield argument.value
