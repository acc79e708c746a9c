"""Numbers in words."""

from __future__ import annotations

import math

import pytest

from jitmagic import units


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (338e-6, "338 µs"), (2.81e-3, "2.81 ms"), (1.0, "1 s"), (59.94, "59.9 s"), (75.0, "1min 15s"),
        (3725.0, "1h 2min"), (3e-9, "3 ns"), (0.0, "0 ns"), (999.9e-6, "1 ms"), (0.0012345, "1.23 ms"),
        (None, "–"), (math.nan, "–"), (math.inf, "–"), (90061.0, "1d 1h"),
        (59.99, "60 s"), (1.5e-13, "0.00015 ns"),
    ],
)  # fmt: skip
def test_seconds(value, words):
    assert units.seconds(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(120, "120 B"), (0, "0 B"), (6, "6 B"), (999, "999 B"), (999.9, "1 kB"), (1_234_567, "1.2 MB"),
     (262_144, "262 kB"),
     (999_999, "1 MB"), (5e9, "5 GB"), (2e18, "2 EB"), (2e22, "20,000 EB"), (None, "–"), (math.inf, "–")],
)  # fmt: skip
def test_size(value, words):
    assert units.size(value) == words


@pytest.mark.parametrize(
    ("dtype", "shape", "words"),
    [
        ("float32", (10, 3), "f32[10,3]"), ("bfloat16", (3,), "bf16[3]"), ("int32", (), "i32[]"),
        ("uint8", (2,), "u8[2]"), ("complex64", (1,), "c64[1]"), ("bool", (4,), "bool[4]"),
        ("key<fry>", (), "key<fry>[]"), ("float8_e4m3fn", (2,), "f8_e4m3fn[2]"), (None, (2,), "?[2]"),
        ("float64", None, "f64"),
    ],
)  # fmt: skip
def test_array_type(dtype, shape, words):
    assert units.array_type(dtype, shape) == words


def test_counts_and_lists():
    assert units.counted(1, "call") == "1 call" and units.counted(1200, "call") == "1,200 calls"
    assert units.listed("abc") == "a, b, c"
    assert units.listed("abcde", 2) == "a, b and 3 more"
    assert units.times(8.34) == "8.3×" and units.times(1234.5) == "1,234×"
