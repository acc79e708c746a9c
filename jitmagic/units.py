"""Seconds, bytes, types and counts in words."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import Any

UNKNOWN = "–"


def seconds(value: float | None, digits: int = 3) -> str:
    """A duration in seconds the way IPython's `%timeit` writes it: `338 µs`, `2.81 ms`, `1min 12s`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value >= 60:
        return _long(value)
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        number = _significant(value * scale, digits)
        if number >= 1:
            return f"{number:.{digits}g} {unit}" if number < 10**digits else f"{number:.0f} {unit}"
    return f"{_significant(value * 1e9, digits):.{digits}g} ns"


def _long(value: float) -> str:
    rest, words = round(value), []
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count:,}{name}")
    return " ".join(words[:2])


def _significant(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def scaled(value: float | None, unit: str) -> str:
    """A quantity with a decimal prefix, to two digits: `120 B`, `1.2 MB`, `34 Mflop`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    prefixes = iter("kMGTPE")
    prefix = ""
    while abs(value) >= 999.5 and (following := next(prefixes, "")):
        value, prefix = value / 1000, following
    return f"{plain(value)} {prefix}{unit}"


def plain(value: float) -> str:
    """A number to two digits, or in whole ones: `8.3`, `1,200`."""
    return f"{value:.2g}" if abs(value) < 99.5 else f"{value:,.0f}"


def size(count: float | None) -> str:
    """Bytes, decimal: `120 B`, `1.2 MB`."""
    return scaled(count, "B")


def times(ratio: float) -> str:
    """A ratio to two digits, or in whole numbers: `8.3×`, `120×`."""
    return f"{plain(ratio)}×"


def counted(count: int, noun: str) -> str:
    """`1 call`, `1,200 calls`."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def listed(items: Sequence[str], most: int = 8, left_out: int = 0) -> str:
    """`a, b, c`, or the first few and how many more there are, those that were left out before included."""
    more = max(len(items) - most, 0) + left_out
    return ", ".join(items) if more <= 0 else f"{', '.join(items[:most])} and {more:,} more"


def in_code(names: Sequence[str]) -> str:
    """Names as code, with commas."""
    return ", ".join(f"`{n}`" for n in names)


def array_type(dtype: str | None, shape: tuple[int, ...] | None) -> str:
    """JAX's short form of an array's type: `f32[10,3]`, `key<fry>[]`."""
    short = short_dtype(dtype or "?")
    return short if shape is None else f"{short}[{','.join(map(str, shape))}]"


@functools.lru_cache(maxsize=256)
def short_dtype(dtype: Any) -> str:
    """JAX's short form of a data type or its name: `f32`, `bf16`, `f8_e4m3fn`, `bool`."""
    return re.sub(r"^(float|bfloat|int|uint|complex)(?=\d)", lambda kind: _KINDS[kind[0]], str(dtype))


_KINDS = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}
