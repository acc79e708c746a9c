"""Donated arguments whose memory no result can take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from jitmagic.evidence import UnusableDonation, root
from jitmagic.tracing.compat import jaxpr_of
from jitmagic.tracing.stages import used_inputs
from jitmagic.units import array_type, short_dtype

Type = tuple[tuple[int, ...], str]


def unusable(closed: object, paths: Sequence[str], donated: Collection[str]) -> Iterator[UnusableDonation]:
    """Facts about donated inputs, in the way in which jax gives them to results: in order, one result for each of the
    same shape and dtype. What no operation reads is freed, and is not told."""
    body = jaxpr_of(closed)
    free = Counter(map(_type, body.outvars))
    every = set(free)
    for path, var, used in zip(paths, body.invars, used_inputs(closed), strict=True):
        kind = _type(var)
        if root(path) not in donated or not used:
            continue
        if free[kind]:
            free[kind] -= 1
        else:
            shape, dtype = kind
            size = int(var.aval.size * var.aval.dtype.itemsize)
            yield UnusableDonation(path, array_type(short_dtype(dtype), shape), size, _near(kind, every))


def _near(kind: Type, results: Collection[Type]) -> str:
    """Why: what the results are like."""
    if kind in results:
        return "each result of its type takes the memory of another donated argument"
    shape, dtype = kind
    others = sorted(str(short_dtype(d)) for s, d in results if s == shape)
    if others:
        return f"the result of its shape is {others[0]}"
    return f"no result has its shape{'' if any(d == dtype for _, d in results) else ', or its dtype'}"


def _type(var: object) -> Type:
    aval = getattr(var, "aval", None)
    return tuple(getattr(aval, "shape", ())), str(getattr(aval, "dtype", ""))
