"""Around a trial run: what is put aside and put back, copies of its values, and how two results compare."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jitmagic.fixes.rewrite.place import Shape
from jitmagic.tracing.messages import op_of

if TYPE_CHECKING:
    from jitmagic.checking.seen import Sample


@contextmanager
def noting(reaches: Sequence[Any], into: list[frozenset[str]]) -> Iterator[None]:
    """Note the paths in each of these reaches that are written while this holds."""
    from jitmagic.state import snapshot

    before = [snapshot.take(reach) for reach in reaches]
    yield
    into.append(frozenset(w.path for b in before for w in b.changes()))


@contextmanager
def without_tracers(namespace: dict[str, Any]) -> Iterator[None]:
    """Dead tracers that an earlier trace left in the notebook's dicts and lists are out of the way."""
    from jitmagic.tracing.compat import is_tracer

    put_back: list[Callable[[], None]] = []
    for value in list(namespace.values()):
        if isinstance(value, dict) and value is not namespace:
            items = [(k, v) for k, v in value.items() if not is_tracer(k)]  # a dead key cannot even be hashed
            alive = [(k, v) for k, v in items if not is_tracer(v)]
            if len(alive) != len(value):
                _refill(value, alive)
                put_back.append(functools.partial(_refill, value, items))
        elif isinstance(value, list) and any(is_tracer(v) for v in value):
            kept_list = list(value)
            value[:] = [v for v in value if not is_tracer(v)]
            put_back.append(functools.partial(value.__setitem__, slice(None), kept_list))
    try:
        yield
    finally:
        for restore in put_back:
            restore()


def _refill(target: dict[Any, Any], kept: Sequence[tuple[Any, Any]]) -> None:
    target.clear()
    target.update(kept)


def shape_of(leaf: Any) -> Shape:
    """Shape, dtype and whole number of a value."""
    import numpy as np

    form, dtype = tuple(np.shape(leaf)), str(getattr(leaf, "dtype", type(leaf).__name__))
    try:
        value = int(leaf) if not form and dtype.startswith(("int", "uint")) else None
    except Exception:
        value = None
    return Shape(form, dtype, value, type(leaf).__module__.partition(".")[0])


def copied(value: Any) -> Any:
    """Arrays that numpy may change later as copies, variables of frameworks by what they hold now."""
    import jax
    import numpy as np

    from jitmagic.state.adapters import adapter_for

    def is_variable(leaf: Any) -> bool:
        return hasattr(leaf, "value") and adapter_for(leaf) is not None

    def copy(leaf: Any) -> Any:
        leaf = leaf.value if is_variable(leaf) else leaf
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf

    return jax.tree.map(copy, value, is_leaf=is_variable)


@contextmanager
def arrays_undone(sample: Sample) -> Iterator[None]:
    """Put back numpy arguments that a run writes into."""
    arrays = numpy_leaves(sample)
    before = [a.copy() for a in arrays]
    try:
        yield
    finally:
        for array, old in zip(arrays, before, strict=True):
            if array.flags.writeable:
                array[...] = old


def numpy_leaves(sample: Sample) -> list[Any]:
    """The NumPy arrays among the arguments."""
    import jax
    import numpy as np

    return [v for v in jax.tree.leaves((sample.args, sample.kwargs)) if isinstance(v, np.ndarray)]


def among(arrays: Sequence[Any], result: Any) -> bool:
    """Whether each array is one of the leaves of the result."""
    import jax
    import numpy as np

    leaves = [np.asarray(v) for v in jax.tree.leaves(result) if np.shape(v)]
    return all(
        any(v.shape == a.shape and np.allclose(v, a, 1e-4, 1e-5, equal_nan=True) for v in leaves)
        for a in arrays
    )


def covered(wanted: Any, got: Any) -> bool:
    """Every value of `wanted` is at its place in `got`, which may hold more, in wider types and shapes."""
    import numpy as np

    if wanted is None:
        return True
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(k in got and covered(v, got[k]) for k, v in wanted.items())
    if isinstance(wanted, (list, tuple)):
        enough = isinstance(got, (list, tuple)) and len(got) >= len(wanted)
        return enough and all(covered(w, g) for w, g in zip(wanted, got, strict=False))
    if isinstance(got, (list, tuple)):
        return bool(got) and covered(wanted, got[0])
    try:
        given, whole = np.asarray(wanted), np.asarray(got)
        if given.ndim == whole.ndim and all(map(int.__le__, given.shape, whole.shape)):
            start = whole[tuple(map(slice, given.shape))]  # the rest is what was added to a smaller result
            if np.allclose(given, start, 1e-4, 1e-5, equal_nan=True):
                return True
        spread = np.broadcast_to(given, whole.shape)
        return bool(np.allclose(spread, whole, 1e-4, 1e-5, equal_nan=True))
    except (TypeError, ValueError):
        return False


class TracerReturned(Exception):
    """A run without jit gave back what only a trace of jax's had: there is no value to compare with."""


def with_values(result: Any) -> Any:
    """The result of a plain run. Raises TracerReturned where a part of it has no value."""
    import jax

    from jitmagic.tracing.compat import is_tracer

    if any(map(is_tracer, jax.tree.leaves(result))):
        raise TracerReturned
    return result


def is_refused(message: str) -> bool:
    """One of jax's functions says that it does not take such arguments, and a correction is known."""
    from jitmagic.fixes.rewrite import refused

    return any(said in message for said in refused.FAMILIES)


def of_jax(exc: BaseException) -> bool:
    """The exception says that jax, not the user's arithmetic, could not go on."""
    tracing = ("Tracer", "Concretization", "NonConcrete", "UnexpectedTracer")
    if op_of(exc) in ("carry", "invalid-type") or is_refused(str(exc)):
        return True
    return type(exc).__name__.startswith(tracing) or "JAX arrays are immutable" in str(exc)


@contextmanager
def vmap_as_loop() -> Iterator[None]:
    """`jax.vmap` over leading axes as a Python loop, so that the mapped function sees real values."""
    import jax
    import jax.numpy as jnp

    def vmap(
        fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, **options: Any
    ) -> Callable[..., Any]:
        if out_axes != 0 or not (in_axes == 0 or isinstance(in_axes, (tuple, list))):
            return original(fun, in_axes, out_axes, **options)

        def mapped(*args: Any) -> Any:
            axes = [0] * len(args) if in_axes == 0 else list(in_axes)
            if any(a not in (0, None) for a in axes):
                return original(fun, in_axes, out_axes, **options)(*args)
            by_row = [v for v, a in zip(args, axes, strict=True) if a == 0]
            size, *others = {len(x) for x in jax.tree.leaves(by_row)}
            if others:
                return original(fun, in_axes, out_axes, **options)(*args)
            rows = [
                fun(
                    *(
                        v if a is None else jax.tree.map(lambda x, i=i: x[i], v)
                        for v, a in zip(args, axes, strict=True)
                    )
                )
                for i in range(size)
            ]
            return jax.tree.map(lambda *xs: jnp.stack(xs), *rows)

        return mapped

    original: Any = jax.vmap
    jax.vmap = vmap  # type: ignore[assignment]
    try:
        yield
    finally:
        jax.vmap = original


def as_numpy(sample: Sample) -> Sample:
    """The call with copies in NumPy, which may be written into, in place of the arrays of jax."""
    import jax
    import numpy as np

    def plain(value: Any) -> Any:
        return np.array(value) if isinstance(value, jax.Array) and not _is_key(value) else value

    return replace(sample, args=jax.tree.map(plain, sample.args), kwargs=jax.tree.map(plain, sample.kwargs))


def lists_as_tuples(value: Any) -> Any:
    """A result with tuples in place of its lists."""
    if type(value) in (list, tuple):
        return tuple(map(lists_as_tuples, value))
    return {k: lists_as_tuples(v) for k, v in value.items()} if type(value) is dict else value


def as_arrays(sample: Sample, fn: Callable[..., Any], static: Collection[str]) -> Sample:
    """The call with arrays in place of Python's numbers, as jit makes them, except in static arguments."""
    import inspect

    import jax
    import jax.numpy as jnp

    def array(value: Any) -> Any:
        return jnp.asarray(value) if isinstance(value, (int, float, complex)) else value

    bound = inspect.signature(fn).bind(*sample.args, **sample.kwargs)
    for name, value in bound.arguments.items():
        if name not in static:
            bound.arguments[name] = jax.tree.map(array, value)
    return replace(sample, args=bound.args, kwargs=bound.kwargs)


def _is_key(value: Any) -> bool:
    import jax

    return bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key))
