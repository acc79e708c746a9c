"""Operations and bytes of one equation, from closed formulas.

An addition, a multiplication, a comparison or an `exp` of one element counts one operation, of whatever
number type; moving, converting and choosing values counts none. Products of matrices count 2mnk. Complex
products count four times as much. Decompositions follow Golub and Van Loan, Matrix Computations, 4th ed.,
and LAPACK Working Note 41: leading terms, dense, as if nothing were known about the entries.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from jax.extend.core import JaxprEqn, Literal

from jitmagic.tracing.compat import type_of

FREE = frozenset(
    "reshape transpose broadcast_in_dim broadcast squeeze unstack expand_dims slice dynamic_slice "
    "dynamic_update_slice gather scatter concatenate pad rev iota copy copy_p convert_element_type "
    "bitcast_convert_type reduce_precision select_n stop_gradient split tile device_put sharding_constraint "
    "reshard pvary pcast real imag complex conj random_seed random_wrap random_unwrap create_token after_all "
    "optimization_barrier debug_callback debug_print platform_index axis_index empty ref new_ref get swap "
    "freeze unvmap mutable_array clone name copy_start copy_done lu_pivots_to_permutation layout_constraint "
    "psum_invariant to_edtype from_edtype".split()
)
"""Primitives that move values and compute nothing."""

EXACT = frozenset(
    "max min neg abs sign floor ceil round clamp is_finite eq ne lt le gt ge and or not xor sort argmax "
    "argmin reduce_max reduce_min reduce_and reduce_or reduce_xor cummax cummin reduce_window_max "
    "reduce_window_min top_k nextafter population_count clz shift_left shift_right_logical "
    "shift_right_arithmetic random_bits threefry2x32 random_fold_in random_split".split()
)
"""Primitives that compute without rounding: their results do not depend on how they are compiled."""

WINDOWED_READS = frozenset("slice dynamic_slice gather".split())


def flops(eqn: JaxprEqn) -> float:
    """Operations of one run of an equation that calls no inner program."""
    name = eqn.primitive.name
    if name in FREE:
        return 0.0
    if name in _FORMULAS:
        return float(_FORMULAS[name](eqn))
    if name.startswith(("reduce_window", "select_and_scatter")):
        return float(_windows(eqn))
    if name.startswith("reduce_") or name in ("reduce", "argmax", "argmin"):
        return float(_reduce(eqn))
    if name.startswith("scatter"):
        return float(_size(eqn.invars[2]))
    return float(max((_size(v) for v in eqn.outvars), default=0))


def moved_bytes(eqn: JaxprEqn) -> float:
    """Bytes that the equation reads and writes, as if each ran by itself; a slice reads what it returns."""
    name = eqn.primitive.name
    out = sum(_bytes(v) for v in eqn.outvars)
    if name in WINDOWED_READS:
        return float(2 * out + sum(_bytes(v) for v in eqn.invars[1:]))
    if name == "dynamic_update_slice":
        return float(2 * _bytes(eqn.invars[1]) + sum(_bytes(v) for v in eqn.invars[2:]))
    return float(out + sum(_bytes(v) for v in eqn.invars))


def terms(eqn: JaxprEqn) -> int:
    """The number of products or elements that are added up for one element of the result; 1 elsewhere."""
    name = eqn.primitive.name
    if name == "dot_general":
        return max(1, _contracted(eqn))
    if name == "conv_general_dilated":
        return max(1, round(flops(eqn) / 2 / max(1, _size(eqn.outvars[0]))))
    if name in ("reduce_sum", "reduce_prod", "reduce", "scatter-add", "scatter-mul"):
        return max(1, _size(eqn.invars[0]) // max(1, _size(eqn.outvars[0])), _scattered(eqn))
    if name in ("cumsum", "cumprod", "cumlogsumexp"):
        return max(1, _shape(eqn.invars[0])[eqn.params["axis"]])
    if name in _DENSE:
        return max((1, *_shape(eqn.invars[0])[-2:]))
    if name == "fft":
        return max(1, math.prod(eqn.params["fft_lengths"]))
    return 1


def _scattered(eqn: JaxprEqn) -> int:
    return _size(eqn.invars[2]) if eqn.primitive.name.startswith("scatter") else 1


def _shape(atom: object) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else 1 for d in type_of(atom)[0])


@functools.lru_cache(maxsize=4096)
def _elements(shape: tuple[object, ...]) -> int:
    """Elements of an array of that shape; a length that is not known yet counts as one."""
    return math.prod(d if isinstance(d, int) else 1 for d in shape)


def _size(atom: object) -> int:
    return _elements(type_of(atom)[0])


def _bytes(atom: object) -> int:
    shape, dtype = type_of(atom)
    # A scalar written into the program is part of the code and not read from memory.
    if dtype is None or (not shape and isinstance(atom, Literal)):
        return 0
    return _elements(shape) * int(getattr(dtype, "itemsize", 0))


def _complex(atom: object) -> int:
    """Multiply-adds of real numbers in one of this type."""
    _, dtype = type_of(atom)
    return 4 if isinstance(dtype, np.dtype) and dtype.kind == "c" else 1


def _contracted(eqn: JaxprEqn) -> int:
    (contract, _), _batch = eqn.params["dimension_numbers"]
    return math.prod(_shape(eqn.invars[0])[d] for d in contract)


def _dot(eqn: JaxprEqn) -> float:
    return 2 * _complex(eqn.outvars[0]) * _size(eqn.outvars[0]) * _contracted(eqn)


def _conv(eqn: JaxprEqn) -> float:
    """2 x products; those with padding or with the holes of a dilated input are not counted, as in XLA."""
    params = eqn.params
    spec = params["dimension_numbers"]
    lhs, rhs, out = _shape(eqn.invars[0]), _shape(eqn.invars[1]), _shape(eqn.outvars[0])
    pairs = 1
    for axis, (low, _high) in enumerate(params["padding"]):
        pairs *= _taps(
            lhs[spec.lhs_spec[2 + axis]],
            rhs[spec.rhs_spec[2 + axis]],
            out[spec.out_spec[2 + axis]],
            params["window_strides"][axis],
            low,
            params["lhs_dilation"][axis],
            params["rhs_dilation"][axis],
        )
    batch, features = out[spec.out_spec[0]], out[spec.out_spec[1]]
    return 2 * _complex(eqn.outvars[0]) * batch * features * rhs[spec.rhs_spec[1]] * pairs


def _taps(size: int, window: int, out: int, stride: int, low: int, holes: int, spread: int) -> int:
    """Pairs of an output and a window position along one axis that meet a real input element."""
    at = np.arange(out)[:, None] * stride - low + np.arange(window)[None, :] * spread
    return int(np.count_nonzero((at >= 0) & (at <= (size - 1) * holes) & (at % holes == 0)))


def _reduce(eqn: JaxprEqn) -> float:
    return max(0, _size(eqn.invars[0]) - _size(eqn.outvars[0]))


def _windows(eqn: JaxprEqn) -> float:
    window = math.prod(eqn.params.get("window_dimensions", (2,)))
    return max(0, window - 1) * max(_size(v) for v in (*eqn.outvars, eqn.invars[0]))


def _sort(eqn: JaxprEqn) -> float:
    length = _shape(eqn.invars[0])[eqn.params["dimension"]]
    return _size(eqn.invars[0]) * math.ceil(math.log2(length)) if length > 1 else 0


def _top_k(eqn: JaxprEqn) -> float:
    return _size(eqn.invars[0]) * max(1, math.ceil(math.log2(max(2, eqn.params["k"]))))


def _fft(eqn: JaxprEqn) -> float:
    """5 n log2 n for complex data (Cooley and Tukey, radix 2), half of it where one side is real."""
    length = math.prod(eqn.params["fft_lengths"])
    wide = max(eqn.invars[0], eqn.outvars[0], key=_size)
    real = not all(_complex(v) == 4 for v in (eqn.invars[0], eqn.outvars[0]))
    rows = _size(wide) / max(1, length)
    return rows * 5 * length * math.log2(max(1, length)) / (2 if real else 1)


def _matrix(eqn: JaxprEqn) -> tuple[float, int, int]:
    """Matrices in the batch (complex ones weighted), and the longer and the shorter side."""
    *batch, rows, columns = _shape(eqn.invars[0])
    return math.prod(batch) * _complex(eqn.invars[0]), max(rows, columns), min(rows, columns)


def _dense(terms: Callable[[int, int], float]) -> Callable[[JaxprEqn], float]:
    """A formula in the longer and the shorter side of a matrix, for all matrices of a batch."""

    def of(eqn: JaxprEqn) -> float:
        batch, m, n = _matrix(eqn)
        return batch * terms(m, n)

    return of


def _svd(eqn: JaxprEqn) -> float:
    batch, m, n = _matrix(eqn)
    if not eqn.params.get("compute_uv", True):
        return batch * (4 * m * n**2 - 4 * n**3 / 3)
    return batch * (14 * m * n**2 + 8 * n**3)


def _eig(eqn: JaxprEqn) -> float:
    batch, n, _ = _matrix(eqn)
    vectors = any(v for k, v in eqn.params.items() if k.endswith("_eigenvectors"))
    return batch * (25 if vectors else 10) * n**3


def _triangular(eqn: JaxprEqn) -> float:
    n = _shape(eqn.invars[0])[-1]
    return n * _size(eqn.invars[1]) * _complex(eqn.invars[1])


def _tridiagonal(eqn: JaxprEqn) -> float:
    return 8 * _size(eqn.outvars[0])


_QR = _dense(lambda m, n: 2 * m * n**2 - 2 * n**3 / 3)
_HESSENBERG = _dense(lambda n, _: 10 * n**3 / 3)

_FORMULAS: dict[str, Callable[[JaxprEqn], float]] = {
    "dot_general": _dot,
    "conv_general_dilated": _conv,
    **dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), lambda eqn: _size(eqn.invars[0])
    ),
    "sort": _sort,
    "top_k": _top_k,
    "fft": _fft,
    "cholesky": _dense(lambda n, _: n**3 / 3),
    "lu": _dense(lambda m, n: m * n**2 - n**3 / 3),
    "geqrf": _QR,
    "geqp3": _QR,
    "householder_product": _QR,
    "qr": _dense(lambda m, n: 4 * m * n**2 - 4 * n**3 / 3),
    "svd": _svd,
    # there is no parameter that asks for values alone: vectors always come along
    "eigh": _dense(lambda n, _: 9 * n**3),
    "eig": _eig,
    "schur": _eig,
    "hessenberg": _HESSENBERG,
    "tridiagonal": _HESSENBERG,
    "triangular_solve": _triangular,
    "tridiagonal_solve": _tridiagonal,
}

_DENSE = frozenset(
    "cholesky lu geqrf geqp3 householder_product qr svd eigh eig schur hessenberg tridiagonal "
    "triangular_solve tridiagonal_solve".split()
)
