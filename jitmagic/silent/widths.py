"""Numbers of 64 bits that jax cuts to 32: which arguments lose something by it, which dtypes are not given."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jitmagic.evidence import Truncation
from jitmagic.raw import is_a
from jitmagic.silent.code import Code, names_in
from jitmagic.source.modules import dotted

WIDE = frozenset("float64 int64 uint64 complex128 double longlong".split())
_MOST = 5_000_000
"""Elements of an array that are looked at."""
_LOOKED_AT = 1000
"""Numbers of an array whose digits are compared."""


def arguments(leaves: Iterable[tuple[str, object]]) -> Iterator[Truncation]:
    """Arguments whose values change when they are cut to the dtype that jax gives them.

    Of floats only overflow, underflow and, in NumPy's, whole numbers with more digits than 32 bits hold count:
    rounding to 32 bits is what everybody gets."""
    for path, given in leaves:
        value: Any = given
        if is_a(value, bool | int | float):
            value = (
                np.asarray(value)
                if not isinstance(value, int) or abs(value) < 2**63
                else np.asarray(float(value))
            )
        elif not is_a(value, np.ndarray | np.generic):
            continue
        narrow = jax.dtypes.canonicalize_dtype(value.dtype) if value.dtype.kind in "iufc" else value.dtype
        if narrow == value.dtype or not 0 < value.size <= _MOST:
            continue
        if _loses(np.asarray(value), np.dtype(narrow), counts=not isinstance(given, float)):
            yield Truncation((path,), None, str(value.dtype), str(narrow))


def constants(leaves: Iterable[tuple[str, object]], held: Sequence[Any]) -> Iterator[Truncation]:
    """Arrays from outside of which a program holds what 32 bits leave of their values."""
    for path, value in leaves:
        for fact in arguments([(path, value)]) if isinstance(value, np.ndarray) else ():
            cut = np.asarray(value).astype(fact.after)
            if any(c.dtype == cut.dtype and np.array_equal(c, cut) for c in held):
                yield replace(fact, origin="constant")


def digits_lost(value: object, *, units: bool) -> bool:
    """Floats of NumPy's of which 32 bits round something away; with `units`, of numbers so large that it is part of
    their units, such as times since 1970."""
    if not isinstance(value, np.ndarray | np.generic) or value.dtype != np.float64 or value.size > _MOST:
        return False
    least, large = 2**20 if units else 0, np.abs(value)
    with np.errstate(all="ignore"):
        return bool(((large > least) & (large < 2.0**100) & (value.astype(np.float32) != value)).any())


def _loses(value: np.ndarray, narrow: np.dtype, counts: bool) -> bool:
    """`counts`: whole numbers may count something, and every digit of them matters."""
    with np.errstate(all="ignore"):
        short = value.astype(narrow)
        cut = short.astype(value.dtype)
    if value.dtype.kind in "iu":
        return bool((cut != value).any())
    finite = np.isfinite(value)
    least = 1e-7 * np.abs(value[finite]).max(initial=0.0)  # what vanishes beside the others is rounding
    gone = finite & (~np.isfinite(cut) | ((cut == 0) & (np.abs(value) > least)))
    if value.dtype.kind == "c" or not counts:
        return bool(gone.any())
    whole = finite & (value == np.round(value)) & (np.abs(value) > 2**24) & (np.abs(value) < 2**53)
    changed = whole & (cut != value)
    # 1.5e11 is another number in 32 bits, and still reads 1.5e11
    digits = any(
        float(str(c)) != v for c, v in zip(short[changed][:_LOOKED_AT], value[changed], strict=False)
    )
    return bool(gone.any() or digits)


def dtypes(code: Code) -> Iterator[Truncation]:
    """Calls of jax that ask for a dtype of 64 bits while jax has them switched off."""
    if jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        return
    for name, call in code.calls:
        method = isinstance(call.func, ast.Attribute) and call.func.attr in ("astype", "view") and not name
        of_jax = name.startswith("jax.") or method
        given = (*call.args, *(k.value for k in call.keywords if k.arg == "dtype"))
        asked = [wide for a in given if (wide := _wide(code, a))]
        own = name.startswith("jax.numpy.") and name.rpartition(".")[2] in WIDE
        if (of_jax and asked) or own:
            wide = name.rpartition(".")[2] if own else asked[0]
            names = tuple(n for n in names_in(call) if n in code.local) or tuple(code.source.bound_to(call))
            yield Truncation(
                names, code.where(call), wide, wide.replace("64", "32").replace("128", "64"), "dtype"
            )


def _wide(code: Code, node: ast.expr) -> str:
    """The dtype of 64 bits that an expression names, through a name of the notebook's too (`DT = jnp.float64`)."""
    text = _text(node)
    if text in WIDE or not isinstance(node, ast.Name | ast.Attribute):
        return text if text in WIDE else ""
    value = code.value(node)
    if not isinstance(value, np.dtype | type):
        return ""
    name = value.name if isinstance(value, np.dtype) else value.__name__
    return name if name in WIDE else ""


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return dotted(node).rpartition(".")[2]
