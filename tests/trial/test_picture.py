"""What two runs have left is compared in little memory, and the first place that differs is named."""

from __future__ import annotations

import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.trial import picture


@pytest.mark.parametrize("dtype", ["float32", "int32", "complex64"])
@pytest.mark.parametrize(
    ("shape", "at"),
    [
        ((), ()),
        ((3, 4), (2, 1)),
        ((700, 1000), (699, 3)),
        ((2, 300_000), (1, 0)),
        ((1 << 18,), ((1 << 18) - 1,)),
    ],
)
def test_the_first_place_is_named(dtype, shape, at):
    x = np.zeros(shape, dtype)
    y = x.copy()
    assert picture._first_apart(x, y, {dtype}) is None
    y[at] = 1
    assert picture._first_apart(x, y, {dtype}) == at


def test_nothing_is_apart_by_rounding_or_where_nothing_is_known():
    x = np.array([1.0, np.nan, np.inf, 0.0])
    y = np.array([1.00001, np.nan, np.inf, 1e-6])
    assert picture._first_apart(x, y, {"float64"}) is None
    assert picture._first_apart(x, -y, {"float64"}) == (0,)
    assert picture._first_apart(np.array(["a", "b"]), np.array(["a", "c"]), {"<U1"}) == (1,)
    assert picture._first_apart(np.array([True, False]), np.array([1.0, 1.0]), {"bool", "float64"}) == (1,)


def test_large_arrays_are_compared_in_parts():
    x = np.ones(4_000_000)
    y = x * 1.00001
    tracemalloc.start()
    try:
        assert picture._first_apart(x, y, {"float64"}) is None
        assert tracemalloc.get_traced_memory()[1] < x.nbytes / 2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("dtype", "rounding"), [("bfloat16", 2**-7), ("float16", 2**-9), ("float32", 2**-20)]
)
def test_what_counts_as_rounding_is_told_by_the_type(dtype, rounding):
    x = jnp.ones(5, dtype)

    def gaps(y):
        return picture.Differences().nodes(picture.Painter().draw(x), picture.Painter().draw(y), "x")

    assert gaps(x) == gaps(x.at[3].add(rounding)) == []
    assert [g.path for g in gaps(x.at[3].add(0.5))] == ["x"]
