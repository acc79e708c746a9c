"""Sizes that only data say, written down as they were in the calls seen: the last resort."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot, Tag
from jitmagic.fixes.sizes.counts import counted
from jitmagic.rules.classify import DATA_SIZED, SIZE_BY_NUMBER
from jitmagic.source import scope
from jitmagic.source.modules import last_name

AS_SEEN = "as in the calls seen"
_CUT = "more results are cut off, fewer are filled up"
_OTHER = "other data may need another"

_FOUND = "nonzero flatnonzero argwhere where unique unique_values unique_counts union1d intersect1d setdiff1d extract"
_RESULTS = dict.fromkeys(_FOUND.split(), "size")
_RESULTS |= dict.fromkeys("segment_sum segment_max segment_min segment_prod".split(), "num_segments")
_RESULTS |= {"repeat": "total_repeat_length", "bincount": "length"}
"""What tells a function how many results it has."""
_SIZES = {
    "linspace": (2, "num"), "logspace": (2, "num"), "geomspace": (2, "num"), "full": (0, "shape"),
    "dynamic_slice": (2, "slice_sizes"), "dynamic_slice_in_dim": (2, "slice_size"), "randint": (1, "shape"),
    "uniform": (1, "shape"), "normal": (1, "shape"), "one_hot": (1, "num_classes"), "scan": (3, "length"),
}  # fmt: skip
"""Position and name of the size, where a function takes other numbers besides."""
_SIZED = DATA_SIZED | SIZE_BY_NUMBER | _SIZES.keys() | frozenset(
    "identity split array_split iota broadcasted_iota pad vander approx_max_k".split()
)  # fmt: skip
_METHODS = ("reshape", "repeat")


def results_as_seen(spot: Spot) -> Iterator[Change]:
    """`jnp.nonzero(x, size=n)`, where the calls seen all gave the same number of results."""
    for call in spot.on_line(ast.Call):
        full, name = spot.full(call), last_name(call.func)
        key, said = _RESULTS.get(name, ""), {k.arg: k.value for k in call.keywords}
        if not key or not full.startswith("jax.") or (name == "where" and len(call.args) != 1):
            continue
        if key in said or (key == "num_segments" and len(call.args) > 2) or counted(spot, call):
            continue
        at = getattr(said.get("axis"), "value", 0) or 0
        sizes = {s.shape[at] if len(s.shape) > at else -1 for s in spot.seen(call) if s.shape}
        if len(sizes) == 1:
            given = [*call.args, *call.keywords]
            new = spot.write("$f($*given, $$key=$$n)", f=call.func, given=given, key=key, n=str(*sizes))
            title = f"give `{spot.code(call.func)}` its number of results, `{key}={sizes.pop()}`, {AS_SEEN}"
            yield Change(title, spot.edits().replace(call, new), cost=_CUT, tags=frozenset((Tag.AS_SEEN,)))


def numbers_as_seen(spot: Spot) -> Iterator[Change]:
    """A size that is computed from data, as the number that it was in every call seen."""
    for call in spot.on_line(ast.Call):
        name, known = last_name(call.func), spot.full(call).startswith("jax.")
        method = isinstance(call.func, ast.Attribute) and name in _METHODS
        for size in _sizes(call, name) if method or (known and name in _SIZED) else ():
            if isinstance(size, ast.Constant | ast.Lambda) or not spot.is_traced(size):
                continue
            values = {s.value for s in spot.seen(size)}
            number = values.pop() if len(values) == 1 else None
            if number is None or number < 0:
                continue
            computed = None
            if isinstance(size, ast.Name) and spot.outermost is not None:
                computed = scope.assigned(spot.outermost, size.id)
            title = f"give `{spot.code(call.func)}` the size {number}, {AS_SEEN}"
            edits = spot.edits().replace(computed or size, str(number))
            yield Change(title, edits, cost=_OTHER, tags=frozenset((Tag.AS_SEEN,)))


def _sizes(call: ast.Call, name: str) -> Iterator[ast.expr]:
    """The arguments of a call that can be its size, and the entries of those that are tuples."""
    at, key = _SIZES.get(name, (None, ""))
    given = [(str(k), a) for k, a in enumerate(call.args)] + [(k.arg or "", k.value) for k in call.keywords]
    for place, argument in given:
        if at is None or place in (str(at), key):
            yield from argument.elts if isinstance(argument, ast.Tuple | ast.List) else [argument]
