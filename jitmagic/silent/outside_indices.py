"""Indices that lie outside of their array: jax moves a read to the border and drops a write, and says nothing.

The program is run once more for its indices alone: a compiled copy gives the least and the greatest index of each axis,
loops included, and the compiler removes all that they do not depend on.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Literal

from jitmagic.evidence import OutOfBounds
from jitmagic.measure.program import scan_parts
from jitmagic.measure.reference import Evaluator
from jitmagic.silent.flagged import is_backward
from jitmagic.silent.in_program import all_equations, user_frames
from jitmagic.silent.keys import names_at
from jitmagic.source.modules import last_name
from jitmagic.source.tree import walk as nodes_below
from jitmagic.tracing.compat import jaxpr_of, subjaxprs
from jitmagic.tracing.sites import Site, site_of

TOO_MANY = 3000
"""Operations of a program that is not looked at."""

_CALLS = frozenset(
    "take take_along_axis dynamic_slice dynamic_slice_in_dim dynamic_index_in_dim dynamic_update_slice "
    "dynamic_update_slice_in_dim dynamic_update_index_in_dim".split()
)
_MEANT = re.compile(r"\b(where|nonzero|flatnonzero|argwhere|select|fill_value)\b")
"""How a program makes indices that are to be dropped."""

ODD = 12345
"""What stands in place of a read from outside, to see whether a result depends on it."""


@dataclass(frozen=True)
class IndexedAxes:
    """The operation of an index that the user has written, and the greatest index that each axis takes."""

    eqn: JaxprEqn
    site: Site
    axes: tuple[int, ...]
    last: tuple[int, ...]

    @property
    def writes(self) -> bool:
        """It stores."""
        name = self.eqn.primitive.name
        return name.startswith("scatter") or name == "dynamic_update_slice"

    def indices(self, args: Sequence[Any]) -> list[Any]:
        """The indices into each of `axes`, among the operands of the operation."""
        name = self.eqn.primitive.name
        if name.startswith("dynamic"):
            starts = args[2 if name == "dynamic_update_slice" else 1 :]
            return [starts[axis] for axis in self.axes]
        return [args[1][..., n] for n in range(len(self.axes))]


def out_of_bounds(closed: object, flat_args: Sequence[object]) -> Iterator[OutOfBounds]:
    """Facts about indices that a program has for these arguments, outside of the arrays, and that its results show."""
    if len(all_equations(closed)) > TOO_MANY:
        return
    known = {id(found.eqn): found for found in _written(closed)}
    if not known:
        return
    unsure = [found for found in known.values() if not _is_inside(found)]
    if not unsure:
        return
    watched, places = {id(found.eqn): found for found in unsure}, Counter(f.site.where for f in unsure)
    outside: dict[int, tuple[int, int, int, bool]] = {}
    for at, ends in _ends(closed, flat_args, watched):
        for axis, last, (least, most) in zip(watched[at].axes, watched[at].last, ends, strict=True):
            if int(least) < 0 or int(most) > last:
                index = int(least) if int(least) < 0 else int(most)
                is_alone = bool(least == most) and places[watched[at].site.where] == 1
                outside.setdefault(at, (axis, index, last, is_alone))
    reads = {at for at in outside if not watched[at].writes}
    if reads and not _matters(closed, flat_args, {at: watched[at] for at in reads}):
        outside = {at: fact for at, fact in outside.items() if at not in reads}
    for at, fact in outside.items():
        if not (watched[at].writes and _is_meant(closed, watched[at])):
            yield _fact(watched[at], *fact)


def _fact(found: IndexedAxes, axis: int, index: int, last: int, is_alone: bool) -> OutOfBounds:
    size = _shape(found.eqn.invars[0])[axis]
    window = size - last
    writes = found.writes and not is_backward(found.eqn)  # the gradient of a read goes where that was
    is_window = found.eqn.primitive.name.startswith("dynamic")
    stays = writes and not is_window or found.eqn.params.get("mode") == jax.lax.GatherScatterMode.FILL_OR_DROP
    lands = None if stays else 0 if index < 0 else last
    told = index - size if index < 0 else index  # jax has added the size to a negative index
    names = tuple(dict.fromkeys(names_at(found.site)))
    own = axis - _mapped(found, axis)
    return OutOfBounds(found.site.where, names, told, own, size, window, writes, lands, is_alone)


def _mapped(found: IndexedAxes, axis: int) -> int:
    """How many axes `vmap` has put in front of this one, where the source has an index in brackets."""
    node = found.site.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    axes = getattr(found.eqn.params.get("dimension_numbers"), "operand_batching_dims", ())
    return sum(1 for m in axes if m < axis) if isinstance(node, ast.Subscript) else 0


# -- which operations


def _written(closed: object) -> Iterator[IndexedAxes]:
    """Operations of indices that the user has written, and that say nothing of indices outside."""
    for eqn, frames in all_equations(closed):
        axes = _axes(eqn)
        site = site_of(*frames[0]) if axes and frames else None
        if axes and axes[0] and site is not None and _is_plain(site):
            yield IndexedAxes(eqn, site, *axes)


def _axes(eqn: JaxprEqn) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The axes that have indices, and the greatest index of each."""
    name, params = eqn.primitive.name, eqn.params
    shape = _shape(eqn.invars[0]) if eqn.invars else ()
    if name == "dynamic_slice":
        axes, sizes = tuple(range(len(shape))), params["slice_sizes"]
    elif name == "dynamic_update_slice":
        axes, sizes = tuple(range(len(shape))), _shape(eqn.invars[1])
    elif name == "gather":
        axes, sizes = params["dimension_numbers"].start_index_map, params["slice_sizes"]
    elif name.startswith("scatter"):
        numbers = params["dimension_numbers"]
        axes = numbers.scatter_dims_to_operand_dims
        ones = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        windows = iter(_shape(eqn.invars[2])[d] for d in numbers.update_window_dims)
        sizes = tuple(1 if d in ones else next(windows) for d in range(len(shape)))
    else:
        return None
    return tuple(axes), tuple(shape[d] - sizes[d] for d in axes)


def _shape(atom: object) -> tuple[int, ...]:
    return tuple(getattr(getattr(atom, "aval", None), "shape", ()))


def _is_plain(site: Site) -> bool:
    """`x[i]`, `x.at[i].set(...)` and jax's own functions of this kind, without a word on what lies outside."""
    node = site.node
    if isinstance(node, ast.Subscript):
        return True
    if not isinstance(node, ast.Call) or any(k.arg in ("mode", "fill_value") for k in node.keywords):
        return False
    return last_name(node.func) in _CALLS or any(
        isinstance(n, ast.Attribute) and n.attr == "at" for n in nodes_below(node.func)
    )


def _is_inside(found: IndexedAxes) -> bool:
    """The indices are numbers of the program's text, and lie inside."""
    given = [v.val if isinstance(v, Literal) else None for v in found.eqn.invars]
    if found.eqn.primitive.name.startswith("dynamic"):
        starts = found.indices(given)
        pairs = zip(starts, found.last, strict=True)
        return all(last == 0 or (s is not None and 0 <= int(s) <= last) for s, last in pairs)
    return all(last < 0 for last in found.last)


def _is_meant(closed: object, found: IndexedAxes) -> bool:
    """The indices come from a choice, as those that are to be dropped do."""
    if _MEANT.search(found.site.where.source):
        return True
    body = next((b for b in _bodies(closed) if any(e is found.eqn for e in b.eqns)), None)
    made = {v: e for e in body.eqns for v in e.outvars} if body is not None else {}
    asked, seen = list(found.eqn.invars[1:2]), set[int]()
    while asked and len(seen) < 100:
        eqn = made.get(atom) if not isinstance(atom := asked.pop(), Literal) else None
        if eqn is None or id(eqn) in seen:
            continue
        seen.add(id(eqn))
        site = next((site_of(*frame) for frame in user_frames(eqn)), None)
        if site is not None and site.where != found.site.where and _MEANT.search(site.where.source):
            return True
        asked += eqn.invars
    return False


def _bodies(closed: object) -> Iterator[Any]:
    body = jaxpr_of(closed)
    yield body
    for eqn in body.eqns:
        for inner in subjaxprs(eqn):
            yield from _bodies(inner)


# -- what the indices are


Ends = list[tuple[Any, Any]]
"""The least and the greatest index of each axis."""


class _IndexedRuns(Evaluator):
    """Evaluates under a trace."""

    def __init__(self, watched: dict[int, IndexedAxes]) -> None:
        super().__init__()
        self.watched = watched
        self.told: dict[int, Ends] = {}
        """What the run has shown, in one form from its beginning to its end: loops carry it."""

    def equation(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        if eqn.primitive.name != "cond":
            return super().equation(eqn, args)
        told = self.told
        branches = [lambda *given, b=b: self._inside(told, b, given) for b in eqn.params["branches"]]
        results, self.told = jax.lax.switch(args[0], branches, *args[1:])
        return results

    def scan(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        fixed, carry, rows = scan_parts(eqn, args)

        def body(state: Any, row: list[Any]) -> Any:
            results, told = self._inside(state[1], eqn.params["jaxpr"], [*fixed, *state[0], *row])
            return (results[: len(carry)], told), results[len(carry) :]

        (last, self.told), stacked = jax.lax.scan(
            body, (list(carry), self.told), list(rows), length=eqn.params["length"], reverse=eqn.params["reverse"]
        )  # fmt: skip
        return [*last, *stacked]

    def loop(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        if _shape(jaxpr_of(eqn.params["cond_jaxpr"]).outvars[0]):  # rows that are done count no more
            return self.primitive(eqn, args)
        split, ends = eqn.params["cond_nconsts"], eqn.params["cond_nconsts"] + eqn.params["body_nconsts"]

        def goes_on(state: Any) -> Any:
            return self._inside(state[1], eqn.params["cond_jaxpr"], [*args[:split], *state[0]])[0][0]

        def body(state: Any) -> Any:
            return self._inside(state[1], eqn.params["body_jaxpr"], [*args[split:ends], *state[0]])

        last, self.told = jax.lax.while_loop(goes_on, body, (args[ends:], self.told))
        return list(last)

    def _inside(
        self, told: dict[int, Ends], jaxpr: object, args: Sequence[Any]
    ) -> tuple[list[Any], dict[int, Ends]]:
        """Results of the body of a loop or branch, and what was told before with what it tells."""
        before, self.told = self.told, told
        results = self.run(jaxpr, args)
        told, self.told = self.told, before
        return results, told


class _IndexEnds(_IndexedRuns):
    """Keeps the least and the greatest index of each axis."""

    def __init__(self, watched: dict[int, IndexedAxes]) -> None:
        super().__init__(watched)
        limits = jnp.iinfo(jnp.arange(0).dtype)
        none = jnp.asarray(limits.max, int), jnp.asarray(limits.min, int)
        self.told = {at: [none] * len(found.axes) for at, found in watched.items()}

    def primitive(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        if (known := self.watched.get(id(eqn))) is not None:
            pairs = zip(self.told[id(eqn)], known.indices(args), strict=True)
            ends = [
                (jnp.minimum(a, jnp.min(i).astype(int)), jnp.maximum(b, jnp.max(i).astype(int)))
                if jnp.size(i) else (a, b) for (a, b), i in pairs
            ]  # fmt: skip
            self.told = {**self.told, id(eqn): ends}
        return super().primitive(eqn, args)


def _ends(
    closed: object, flat_args: Sequence[object], watched: dict[int, IndexedAxes]
) -> list[tuple[int, Ends]]:
    """The least and the greatest index of each axis, for each operation."""

    def run(*leaves: object) -> dict[str, Ends]:
        runs = _IndexEnds(watched)
        runs.run(closed, list(leaves))
        return {str(at): ends for at, ends in runs.told.items()}

    return [(int(at), ends) for at, ends in jax.device_get(jax.jit(run)(*flat_args)).items()]


class _SpoiledReads(_IndexedRuns):
    """Reads from outside give an odd number."""

    def primitive(self, eqn: JaxprEqn, args: list[Any]) -> list[Any]:
        results = super().primitive(eqn, args)
        known = self.watched.get(id(eqn))
        if known is None:
            return results
        (result,) = results
        pairs = list(zip(known.indices(args), known.last, strict=True))
        outside = jnp.any(
            jnp.stack([jnp.broadcast_to((i < 0) | (i > last), _common(pairs)) for i, last in pairs]), 0
        )
        if eqn.primitive.name == "gather":
            batch = [d for d in range(result.ndim) if d not in eqn.params["dimension_numbers"].offset_dims]
            outside = jnp.expand_dims(outside, [d for d in range(result.ndim) if d not in batch])
        kind = np.dtype(jnp.result_type(result))
        if not jnp.issubdtype(kind, jnp.number):
            return [jnp.where(outside, True, result)] if kind.kind == "b" else results
        odd = result + jnp.asarray(ODD if jnp.issubdtype(kind, jnp.inexact) else 1, kind)
        return [jnp.where(outside, jnp.where(odd == odd, odd, ODD).astype(kind), result)]  # noqa: PLR0124


def _common(pairs: Sequence[tuple[Any, int]]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(jnp.shape(i) for i, _ in pairs))


def _matters(closed: object, flat_args: Sequence[object], reads: dict[int, IndexedAxes]) -> bool:
    """A result depends on what is read from outside."""

    def run(*leaves: object) -> list[Any]:
        plain = _IndexedRuns({}).run(closed, list(leaves))
        spoiled = _SpoiledReads(reads).run(closed, list(leaves))
        pairs = zip(plain, spoiled, strict=True)
        return [jnp.logical_not(jnp.array_equal(a, b, equal_nan=jnp.issubdtype(jnp.result_type(a), jnp.inexact)))
                for a, b in pairs]  # fmt: skip

    return any(map(bool, jax.device_get(jax.jit(run)(*flat_args))))
