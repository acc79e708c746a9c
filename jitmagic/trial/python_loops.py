"""Where a function cannot run without jit either: the same with loops of jax's in Python, and on NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from jitmagic import patches
from jitmagic.state.values import on_host


@contextmanager
def loops_in_python() -> Iterator[None]:
    """`scan`, `cond`, `while_loop`, `fori_loop` and `vmap` over leading axes run as Python, on real values."""
    with patches.replaced(jax, vmap=functools.partial(_vmap, jax.vmap)), jax.disable_jit():
        yield


def _vmap(original: Any, fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, **options: Any) -> Any:
    if out_axes != 0 or not (in_axes == 0 or isinstance(in_axes, tuple | list)):
        return original(fun, in_axes, out_axes, **options)

    def mapped(*args: Any) -> object:
        axes = [0] * len(args) if in_axes == 0 else list(in_axes)
        sizes = {len(x) for v, a in zip(args, axes, strict=False) if a == 0 for x in jax.tree.leaves(v)}
        if any(a not in (0, None) for a in axes) or len(sizes) != 1:
            return original(fun, in_axes, out_axes, **options)(*args)

        def row(i: int) -> object:
            pairs = zip(args, axes, strict=True)
            return fun(*(v if a is None else jax.tree.map(lambda x: x[i], v) for v, a in pairs))

        return jax.tree.map(lambda *xs: jnp.stack(xs), *map(row, range(sizes.pop())))

    return mapped


def on_numpy(fn: Callable[..., object]) -> Callable[..., object]:
    """The function on copies of its arrays in NumPy, which may be written into."""

    @functools.wraps(fn)
    def called(*args: object, **kwargs: object) -> object:
        return fn(*jax.tree.map(_plain, args), **jax.tree.map(_plain, kwargs))

    return called


def _plain(value: object) -> object:
    is_key = isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    return on_host(value).copy() if isinstance(value, jax.Array) and not is_key else value
