"""What functions make of arrays of which a part counts: how each is written with the mask of that part.

In the templates `$mask` is the mask in the shape of `$x`, `$least` and `$most` the lowest and highest value of its
type, `$*r` what else the call passes.
"""

from __future__ import annotations

import numpy as np

REDUCED = {
    **{
        f"{name}($x, $*r)": f"jnp.{name}($x, $*r, where=$mask)"
        for name in "sum prod mean std var any all nansum nanmean nanstd nanvar".split()
    },
    "max($x, $*r)": "jnp.max($x, $*r, where=$mask, initial=$least)",
    "amax($x, $*r)": "jnp.max($x, $*r, where=$mask, initial=$least)",
    "min($x, $*r)": "jnp.min($x, $*r, where=$mask, initial=$most)",
    "amin($x, $*r)": "jnp.min($x, $*r, where=$mask, initial=$most)",
    "median($x, $*r)": "jnp.nanmedian(jnp.where($mask, $x, jnp.nan), $*r)",
    "percentile($x, $q, $*r)": "jnp.nanpercentile(jnp.where($mask, $x, jnp.nan), $q, $*r)",
    "quantile($x, $q, $*r)": "jnp.nanquantile(jnp.where($mask, $x, jnp.nan), $q, $*r)",
    "bincount($x, $*r)": "jnp.bincount(jnp.where($mask, $x, $most), $*r)",
    "count_nonzero($x, $*r)": "jnp.sum($x != 0, $*r, where=$mask)",
    "average($x, $*r)": "jnp.mean($x, $*r, where=$mask)",
    "linalg.norm($x, $o, $*r)": "jnp.linalg.norm(jnp.where($mask, $x, 0), $o, $*r)",
    "linalg.norm($x, $*r)": "jnp.linalg.norm(jnp.where($mask, $x, 0), $*r)",
    "logsumexp($x, $*r)": "jax.scipy.special.logsumexp($x, $*r, where=$mask)",
}
"""Functions over some axes, which are gone then."""

FIRST_PLACES = {
    "argmax($x, $*r)": "jnp.argmax(jnp.where($mask, $x, $least), $*r)",
    "argmin($x, $*r)": "jnp.argmin(jnp.where($mask, $x, $most), $*r)",
}
"""Those that give a position: that of the whole array is the same where what counts comes first."""

ALONG = {
    **{
        f"{name}($x, $*r)": f"jax.nn.{name}($x, $*r, where=$mask)"
        for name in ("softmax", "log_softmax", "standardize")
    },
    "cumsum($x, $*r)": "jnp.cumsum(jnp.where($mask, $x, 0), $*r)",
    "cumprod($x, $*r)": "jnp.cumprod(jnp.where($mask, $x, 1), $*r)",
    "jax.lax.cummax($x, $*r)": "jax.lax.cummax(jnp.where($mask, $x, $least), $*r)",
    "jax.lax.cummin($x, $*r)": "jax.lax.cummin(jnp.where($mask, $x, $most), $*r)",
    "jax.lax.cumlogsumexp($x, $*r)": "jax.lax.cumlogsumexp(jnp.where($mask, $x, -jnp.inf), $*r)",
    "sort($x, $*r)": "jnp.sort(jnp.where($mask, $x, $most), $*r)",
    "argsort($x, $*r)": "jnp.argsort(jnp.where($mask, $x, $most), $*r)",
}
"""Functions along an axis that stays."""
IN_TURN = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
"""Those of them that go from the front to the back, along all axes where none is named."""
IN_ORDER = ("sort", "argsort")
"""Those that put what does not count behind what does, which is where it has to be."""

SEGMENTS = {
    f"jax.ops.segment_{name}($x, $i, $*r)": f"jax.ops.segment_{name}(jnp.where($mask, $x, {nothing}), $i, $*r)"
    for name, nothing in (("sum", "0"), ("prod", "1"), ("max", "$least"), ("min", "$most"))
}
"""Rows put together by their segments."""

FACTORS = {
    "matmul($x, $y)": "", "dot($x, $y)": "", "vdot($x, $y)": "a,a->", "inner($x, $y)": "a,a->",
    "outer($x, $y)": "a,b->ab",
}  # fmt: skip
"""Products of two arrays, as `einsum` writes them; by the ranks of the arrays where nothing stands."""

SCATTERED = {"add($t.at[$i], $v)": "$t.at[$i].add(jnp.where($mask, $v, 0))"}
"""What is added where it counts."""

DIFFERENCES = {"diff($x)": "-1", "diff($x, axis=-1)": "-1", "diff($x, axis=0)": "0", "diff($x, axis=1)": "1"}
"""Differences of neighbours, and the axis along which they are taken."""

MADE = (
    "zeros($n, $*r)", "ones($n, $*r)", "empty($n, $*r)", "full($n, $v, $*r)", "arange($n, $*r)", "eye($n, $*r)",
)  # fmt: skip
"""Arrays of a size, whose elements do not depend on it."""

TURNED = ("swapaxes($x, $*r)", "transpose($x, $*r)")
"""The same with its axes in another order."""

JOINED = ("stack($x, $*r)", "concatenate($x, $*r)", "column_stack($x)")
"""Arrays put together, along an axis that is new or of which all counts."""

_LIBRARIES = ("jax.numpy", "numpy", "jax.nn", "jax.lax", "jax.scipy.special", "scipy.special")
_ELEMENTWISE = frozenset(
    "where clip round nan_to_num real imag angle isclose array asarray astype copy zeros_like ones_like full_like "
    "sinc i0 stop_gradient select erf erfc erf_inv lgamma gammaln digamma rsqrt integer_pow convert_element_type "
    "expit logit xlogy xlog1py entr betaln relu relu6 sigmoid softplus soft_sign silu swish log_sigmoid leaky_relu "
    "hard_sigmoid hard_silu hard_swish hard_tanh elu celu selu gelu mish squareplus float32 float64 int32 int64".split()
)
METHODS = frozenset(("astype", "conj", "round", "clip", "copy"))
"""Methods that work element by element."""


def is_elementwise(full: str) -> bool:
    """The function works element by element: one of NumPy's ufuncs, or one that is known for it."""
    library, _, name = full.rpartition(".")
    ufunc = getattr(np, name, None)
    known = name in _ELEMENTWISE or (isinstance(ufunc, np.ufunc) and ufunc.signature is None)
    return known and library in _LIBRARIES
