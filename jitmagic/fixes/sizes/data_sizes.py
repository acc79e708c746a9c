"""How many results only data say: counted without them where that is all that is asked, else written down as they were
in the calls seen, the last resort."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice

from jitmagic.fixes.change import Change, Spot, Tag
from jitmagic.rules.classify import DATA_SIZED, SIZE_BY_NUMBER
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import Pattern, stripped

_DIFFERENT = [Pattern(p) for p in ("unique($x)", "unique_values($x)", "set(tolist($x))")]
_COUNTS = [
    Pattern(p) for p in ("len($u)", "$u.size", "$u.shape[0]", "len($u[0])", "$u[0].size", "$u[0].shape[0]")
]
_NUMBER = "jnp.sum(jnp.diff(jnp.sort($x, axis=None)) != 0) + ($x.size > 0)"


def different_values(spot: Spot) -> Iterator[Change]:
    """`len(jnp.unique(x))`, by a name too, as the number of places where the sorted values change."""
    for call in spot.on_line(ast.Call):
        array = next((m.holes["x"] for p in _DIFFERENT if (m := p.match(call, spot.modules))), None)
        asked = counted(spot, call)
        if not asked or not isinstance(array, ast.expr):
            continue
        number = spot.write(_NUMBER, x=stripped(spot.code(array)))
        edits = spot.edits()
        for use in asked:
            inside = call in spot.text.within(use, ast.Call)
            alone = isinstance(spot.text.parents[use], ast.Assign | ast.Return | ast.Call)
            edits.replace(use, (number if alone else f"({number})") if inside else spot.text.bound_to(call))
        if call not in [c for use in asked for c in spot.text.within(use, ast.Call)]:
            edits.replace(call, number)
        whole = all(s.dtype.startswith(("int", "uint", "bool")) for s in spot.seen(array))
        cost = "" if whole else "each NaN counts as a value of its own"
        yield Change("count the places where the sorted values change", edits, cost=cost)


def counted(spot: Spot, call: ast.Call) -> list[ast.expr]:
    """The expressions (`len(u)`, `u.size`, `u.shape[0]`) that count what the call gives, where nothing else is made
    of it; `u` is the call itself, or the name that it is bound to."""
    name, around = spot.text.bound_to(call), spot.outermost
    uses: list[ast.expr] = [call]
    if name and around is not None:
        uses = [n for n in spot.text.within(around, ast.Name) if n.id == name and isinstance(n.ctx, ast.Load)]
    counts = [_count(spot, n) for n in uses]
    return [c for c in counts if c is not None] if None not in counts else []


def _count(spot: Spot, node: ast.expr) -> ast.expr | None:
    """What counts the node, around it."""
    for around in islice(spot.text.ancestors(node), 3):
        for pattern in _COUNTS:
            match = pattern.match(around, spot.modules)
            if match is not None and match.holes["u"] is node:
                return match.node
    return None


# --- room for all


_FILLED = dict.fromkeys("nonzero flatnonzero argwhere where".split(), ", fill_value=$x.size")
_FILLED |= dict.fromkeys("unique unique_values unique_counts".split(), "")


def room_for_all(spot: Spot) -> Iterator[Change]:
    """`jnp.unique(x, size=x.size)`: as many results as there can be. That what is made of them does not count the
    places left over is for the test to tell."""
    for call in spot.on_line(ast.Call):
        full, said = spot.full(call), {k.arg for k in call.keywords}
        name = full.rpartition(".")[2]
        x = call.args[0] if len(call.args) == 1 else None
        if name not in _FILLED or not isinstance(x, ast.Name | ast.Attribute) or said & {"size", "axis"}:
            continue
        if full.startswith("jax.") and not counted(spot, call):
            template = f"$f($*given, size=$x.size{_FILLED[name]})"
            new = spot.write(template, f=call.func, x=x, given=[*call.args, *call.keywords])
            title = f"give `{spot.code(call.func)}` room for as many results as `{spot.code(x)}` has elements"
            yield Change(
                title, spot.edits().replace(call, new), cost="what is left over is filled up", sure=False
            )


# --- as in the calls seen

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
        full = spot.full(call)
        name = full.rpartition(".")[2]
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
            computed = spot.assigned(size.id) if isinstance(size, ast.Name) else None
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
