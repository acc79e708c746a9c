"""The compiled result beside the plain one, leaf by leaf.

Rounding may differ: a compiler fuses, reorders and contracts. What is allowed is `ULPS` units in the last
place of the value, and `LEAF_ULPS` of the largest value in its leaf, both times the square root of the number
of elements summed (errors of a sum grow like a random walk: Higham, Accuracy and Stability, 2nd ed., 4.2).
Where that is exceeded and a reference is at hand, the program itself is asked how far rounding can carry it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jitmagic.evidence import Difference
from jitmagic.state.values import on_host
from jitmagic.tracing import trees

ULPS = 64
LEAF_ULPS = 16
NOISE_FACTOR = 16
"""How many times the effect of moving every value by one unit in the last place a difference may be."""

Paths = list[tuple[tuple[object, ...], object]]
"""Leaves of a tree with the ways to them."""

CHUNK = 1 << 20
"""Elements that are looked at (and copied) at a time."""


def compare(
    eager: object,
    jit: object,
    *,
    reference: Callable[[], object] | None = None,
    terms: int = 1,
) -> tuple[Difference, ...]:
    """What differs between the result without jit and the compiled one; empty when nothing does.

    `terms` is the largest number of elements summed into one. `reference()` evaluates the traced program
    operation by operation (a pytree or its leaves) and is called only when values differ: where it gives the
    eager value the Difference has `compiler=True`. Where it also offers `reference.noisy()`, as
    `reference.Program` does, a difference that rounding alone explains is dropped. Failures of the reference
    are ignored. Types, weak types and 64 bits cut to the 32 that jax uses are no difference by themselves."""
    try:
        with trees.unnoticed((eager, jit)):
            eager, jit = _without_functions(eager), _without_functions(jit)
        with trees.unnoticed((eager, jit)):
            left, left_tree = jax.tree_util.tree_flatten_with_path(eager)
            right, right_tree = jax.tree_util.tree_flatten_with_path(jit)
    except Exception as exc:
        return (Difference("result", "structure", eager=type(exc).__name__),)
    if not _same_structure(left, right, left_tree, right_tree):
        return (Difference("result", "structure", eager=_tree_text(left_tree), jit=_tree_text(right_tree)),)
    pairs = [_Pair(_name(path), a, b) for (path, a), (_, b) in zip(left, right, strict=True)]
    found = {i: d for i, p in enumerate(pairs) if (d := _leaf(p, terms)) is not None}
    if reference is not None and any(d.reason in ("values", "NaN") for d in found.values()):
        found = _judge(found, pairs, reference, terms)
    return tuple(found[i] for i in sorted(found))


def orders(eager: object, jit: object, path: str = "result") -> tuple[Difference, ...]:
    """The first dict whose keys come in another order: jax takes dicts apart, and puts them together sorted."""
    if type(eager) is not type(jit) or type(eager) not in (dict, list, tuple):
        return ()
    if isinstance(eager, dict) and isinstance(jit, dict):
        if eager.keys() != jit.keys():
            return ()
        if [*eager] != [*jit]:
            return (Difference(path, "order", eager=_listed(eager), jit=_listed(jit)),)
        below = [(v, jit[k], f"{path}[{k!r}]") for k, v in eager.items()]
    else:
        below = [(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(eager, jit, strict=False))]  # type: ignore[call-overload]
    return next(filter(None, (orders(*one) for one in below)), ())


def keys_of(value: Any) -> object:
    """The dicts, lists and tuples of a result as they are, with nothing in them: `jax.tree.map` sorts the keys."""
    if type(value) is dict:
        return {k: keys_of(v) for k, v in value.items()}
    return type(value)([keys_of(v) for v in value]) if type(value) in (list, tuple) else None


def _listed(keys: Iterable[object]) -> str:
    shown = [repr(k) for k in itertools.islice(keys, 5)]
    return ", ".join(shown[:4]) + ", ..." * (len(shown) > 4)


def _without_functions(value: object) -> object:
    """A result with what a `Partial` passes in its place: its function, where it is made at each call, is another
    object each time. Its name and instructions are kept."""

    def is_partial(node: object) -> bool:
        return isinstance(node, jax.tree_util.Partial)

    def parts(node: Any) -> Any:
        if not is_partial(node):
            return node
        code = getattr(node.func, "__code__", None)
        name = getattr(node.func, "__qualname__", type(node.func).__name__)
        if code is not None:
            plain = [c for c in code.co_consts if not isinstance(c, type(code))]
            name += f" {code.co_code.hex()} {code.co_names} {plain}"
        return {name: [_without_functions(node.args), _without_functions(node.keywords)]}

    if not any(map(is_partial, jax.tree.leaves(value, is_leaf=is_partial))):
        return value
    return jax.tree.map(parts, value, is_leaf=is_partial)


@dataclass(frozen=True)
class _Pair:
    name: str
    eager: object
    jit: object


def _name(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path) or "result"


def _same_structure(left: Paths, right: Paths, left_tree: object, right_tree: object) -> bool:
    try:
        return bool(left_tree == right_tree)
    except Exception:
        # Arrays in aux_data cannot be compared; the paths can.
        return [_name(p) for p, _ in left] == [_name(p) for p, _ in right]


def _tree_text(tree: object) -> str:
    text = str(tree).removeprefix("PyTreeDef(").removesuffix(")")
    return text if len(text) <= 120 else text[:117] + "..."


def _leaf(pair: _Pair, terms: int) -> Difference | None:
    try:
        eager, jit = _plain(pair.eager), _plain(pair.jit)
        left, right = _dtype(eager), _dtype(jit)
        if left.kind == "O" and isinstance(eager, int):  # more than 64 bits
            eager, left = _as_float(eager), np.dtype(np.float64)
    except Exception:
        return _objects(pair)
    if np.shape(eager) != np.shape(jit):
        return Difference(pair.name, "shape", eager=str(np.shape(eager)), jit=str(np.shape(jit)))
    if left.kind in "OUSMm" or right.kind in "OUSMm":
        return _objects(pair)
    differs = _values(pair.name, eager, jit, _tolerance(left, right, terms))
    if differs is None and not _dtypes_agree(pair.eager, left, right):
        return Difference(pair.name, "dtype", eager=str(left), jit=str(right))
    return differs


def _as_float(whole: int) -> float:
    try:
        return float(whole)
    except OverflowError:
        return math.copysign(math.inf, whole)


def _objects(pair: _Pair) -> Difference | None:
    try:
        if pair.eager is pair.jit or bool(pair.eager == pair.jit):
            return None
    except Exception:
        pass
    names = type(pair.eager).__name__, type(pair.jit).__name__
    return Difference(pair.name, "type" if names[0] != names[1] else "values", eager=names[0], jit=names[1])


def _plain(leaf: Any) -> Any:
    """Random keys as their numbers; everything else as it is."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        return jax.random.key_data(leaf)
    return leaf


def _dtype(leaf: object) -> np.dtype:
    dtype = getattr(leaf, "dtype", None)
    return np.dtype(dtype) if dtype is not None else np.asarray(leaf).dtype


def _kind(dtype: np.dtype) -> str:
    for kind in ("bool_", "signedinteger", "unsignedinteger", "floating", "complexfloating"):
        if jnp.issubdtype(dtype, getattr(jnp, kind)):
            return kind
    return dtype.kind


def _dtypes_agree(leaf: object, eager: np.dtype, jit: np.dtype) -> bool:
    if eager == jit:
        return True
    if isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic):
        return _kind(eager) == _kind(jit)
    # NumPy computes in 64 bits where jax has only 32, unless it is told otherwise.
    return not isinstance(leaf, jax.Array) and jit == jax.dtypes.canonicalize_dtype(eager)


@dataclass(frozen=True)
class _Tolerance:
    """Allowed: `relative` of each value plus `leaf` of the largest value; both 0 for whole numbers."""

    relative: float
    leaf: float


def _tolerance(eager: np.dtype, jit: np.dtype, terms: int) -> _Tolerance:
    if not jnp.issubdtype(jit, jnp.inexact):
        return _Tolerance(0.0, 0.0)
    eps = float(jnp.finfo(jit).eps)
    if jnp.issubdtype(eager, jnp.inexact):
        eps = max(eps, float(jnp.finfo(eager).eps))
    # Half precision is summed in single; 64 of its own units would be half the value.
    ulps = (ULPS, LEAF_ULPS) if eps < 1e-4 else (4, 2)
    growth = eps * max(1, terms) ** 0.5 if eps < 1e-4 else eps
    return _Tolerance(min(0.05, ulps[0] * growth), min(0.05, ulps[1] * growth))


def _values(
    name: str, eager: object, jit: object, tolerance: _Tolerance, extra: float = 0.0
) -> Difference | None:
    """The worst element of a leaf that is off by more than allowed (`extra` on top), if there is one."""
    size = _largest(eager) if tolerance.leaf else 0.0
    text = _truth if _dtype(eager).kind == "b" else _text
    worst: Difference | None = None
    ratio = 0.0
    for a, b in _chunks(eager, jit):
        nan = np.isnan(a) != np.isnan(b)
        if nan.any():
            at = int(np.argmax(nan))
            return Difference(name, "NaN", math.inf, 0.0, text(a[at]), text(b[at]))
        with np.errstate(all="ignore"):
            off = np.where((a == b) | np.isnan(a), 0.0, np.abs(a - b)).astype(float)
            off = np.where(np.isnan(off), np.inf, off)
            finite = np.where(np.isfinite(a), np.abs(a), 0.0).astype(float)
            allowed = tolerance.relative * finite + (tolerance.leaf * size + extra)
            over = np.where(off > allowed, off / np.where(allowed > 0, allowed, 1.0), 0.0)
        at = int(np.argmax(over)) if over.size else 0
        if over.size and over[at] > ratio:
            ratio = float(over[at])
            worst = Difference(name, "values", float(off[at]), float(allowed[at]), text(a[at]), text(b[at]))
    return worst


def _largest(leaf: object) -> float:
    largest = 0.0
    for (values,) in _chunks(leaf):
        size = np.abs(values)
        size = size[np.isfinite(size)]
        largest = max(largest, float(size.max(initial=0.0)))
    return largest


def _chunks(*leaves: object) -> Iterator[tuple[np.ndarray[Any, Any], ...]]:
    """Matching flat pieces of the leaves, widened to a type that holds every value exactly."""
    hosted = [leaf if isinstance(leaf, jax.Array) else np.asarray(leaf) for leaf in leaves]
    for piece in _pieces(np.shape(hosted[0])):
        yield tuple(_wide(on_host(leaf[piece] if piece else leaf)).ravel() for leaf in hosted)


def _pieces(shape: tuple[int, ...], limit: int | None = None) -> Iterator[tuple[Any, ...]]:
    """Indices that cut an array of `shape` into pieces of about CHUNK elements; () for a small one."""
    limit = CHUNK if limit is None else limit
    if math.prod(shape) <= limit or not shape:
        yield ()
        return
    row = math.prod(shape[1:])
    if row <= limit:
        step = max(1, limit // row)
        yield from ((slice(start, start + step),) for start in range(0, shape[0], step))
        return
    for index, rest in itertools.product(range(shape[0]), list(_pieces(shape[1:], limit))):
        yield (index, *rest)


def _wide(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if jnp.issubdtype(values.dtype, jnp.complexfloating):
        return values.astype(np.complex128)
    if jnp.issubdtype(values.dtype, jnp.inexact) or values.dtype.itemsize < 8 or not values.size:
        return values.astype(np.float64)  # integers of up to 32 bits fit exactly
    exact = -(2**53) <= int(values.min()) and int(values.max()) <= 2**53
    return values.astype(np.float64 if exact else np.longdouble)


def _truth(value: object) -> str:
    return str(bool(value))


def _text(value: Any) -> str:
    if isinstance(value, (complex, np.complexfloating)):
        return f"{complex(value):.7g}"
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e16 else f"{number:.7g}"


def _judge(
    found: dict[int, Difference], pairs: list[_Pair], reference: Callable[[], object], terms: int
) -> dict[int, Difference]:
    """Drop what rounding explains, and mark what only the compiler can have done."""
    plain = _leaves(reference, len(pairs))
    if plain is None:
        return found
    perturb = getattr(reference, "noisy", None)
    noisy = _leaves(perturb, len(pairs))
    certain = perturb is None or noisy is not None
    judged: dict[int, Difference] = {}
    for index, difference in found.items():
        if difference.reason not in ("values", "NaN"):
            judged[index] = difference
            continue
        pair = pairs[index]
        moved = 0.0 if noisy is None else NOISE_FACTOR * _distance(plain[index], noisy[index])
        again = _recheck(pair, difference, terms, moved)
        if again is not None:
            agrees = certain and _leaf(replace(pair, jit=plain[index]), terms) is None
            judged[index] = replace(again, compiler=agrees)
    return judged


def _recheck(pair: _Pair, difference: Difference, terms: int, moved: float) -> Difference | None:
    if moved == 0.0:
        return difference
    if math.isinf(moved) or math.isnan(moved):
        return None
    eager, jit = _plain(pair.eager), _plain(pair.jit)
    return _values(pair.name, eager, jit, _tolerance(_dtype(eager), _dtype(jit), terms), moved)


def _leaves(evaluate: Callable[[], object] | None, count: int) -> list[Any] | None:
    if evaluate is None:
        return None
    try:
        leaves = jax.tree_util.tree_leaves(evaluate())
    except Exception:
        return None
    return leaves if len(leaves) == count else None


def _distance(plain: object, noisy: object) -> float:
    """Largest distance between two leaves of one shape; infinite where one alone is nan or infinite."""
    try:
        left, right = _plain(plain), _plain(noisy)
        if np.shape(left) != np.shape(right):
            return 0.0
        found = _values("", left, right, _Tolerance(0.0, 0.0))
    except Exception:
        return 0.0
    return 0.0 if found is None else found.worst
