"""Iterators and random states: what can be put back to where it was, and how."""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import copy
import gc
import io
import itertools
import operator
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from jitmagic import patches, raw
from jitmagic.state.values import class_attribute, is_a

_SAMPLES: tuple[object, ...] = (
    iter([]), iter(()), iter(""), iter("é"), iter(b""), iter(bytearray()), iter(range(0)),
    iter(range(1 << 70)), reversed([]), iter(collections.deque()),
    iter(np.zeros(1)), itertools.count(), itertools.repeat(0), itertools.product(),
    itertools.permutations(()), itertools.combinations((), 0),
)  # fmt: skip
_RANGES = (type(iter(range(0))), type(iter(range(1 << 70))))
_INDEPENDENT = tuple(type(i) for i in _SAMPLES)
_OVER_LIVE: dict[type, Callable[[Any], Any]] = {
    type(iter({})): dict.__iter__,
    type(iter({}.values())): lambda d: iter(dict.values(d)),
    type(iter({}.items())): lambda d: iter(dict.items(d)),
    type(iter(set())): iter,
}
"""How iterators over dicts and sets are made."""
_COMPOSITE = (
    zip, enumerate, map, filter, itertools.islice, itertools.chain, itertools.accumulate, itertools.starmap,
    itertools.takewhile, itertools.dropwhile, itertools.compress, itertools.zip_longest, itertools.cycle,
    type(iter(int, 1)),
)  # fmt: skip


def is_iterator(value: object) -> bool:
    """Is this one of Python's iterators (not a user's object with `__next__`)?"""
    if is_a(value, (*_INDEPENDENT, *_OVER_LIVE, *_COMPOSITE, types.GeneratorType)):
        return True
    return type(value).__module__ in ("builtins", "itertools") and is_a(value, collections.abc.Iterator)


def among(value: object, depth: int = 3) -> bool:
    """Does a value hold an iterator or generator, which a run of ours would use up?"""
    if is_a(value, (list, tuple, dict)):
        return depth > 0 and any(among(v, depth - 1) for v in raw.inside(value))
    return class_attribute(type(value), "__next__") is not None


def copied(iterator: object, memo: dict[int, object] | None = None) -> object:
    """An iterator that goes on from the same point by itself, or None where Python cannot make one.

    Those over an iterator (`enumerate`, `zip`, `map`) are rebuilt from copies of what they draw from; `memo` has the
    copies made so far, so that two that draw from one go on to do so.
    """
    with patches.unwarned(DeprecationWarning), contextlib.suppress(Exception):
        return _copied(iterator, {} if memo is None else memo)
    return None


class _NoCopy(Exception):
    """There is no way to copy it."""


def _copied(value: object, memo: dict[int, object]) -> object:
    """The copy of an iterator; anything else as it is, with a state that can be put back."""
    if not is_iterator(value):
        step = class_attribute(type(value), "__next__")
        if step is not None and not is_a(step[1], types.FunctionType) and not is_a(value, io.IOBase):
            raise _NoCopy
        return list(value) if type(value) is list else value  # what `cycle` has seen so far
    if id(value) not in memo:
        memo[id(value)] = _made_anew(value, memo)
    return memo[id(value)]


def _made_anew(iterator: Any, memo: dict[int, object]) -> object:
    if type(iterator) in _OVER_LIVE:
        return _over_live(iterator)
    if is_a(iterator, _INDEPENDENT):
        return copy.copy(iterator)
    if not is_a(iterator, _COMPOSITE):
        raise _NoCopy
    make, args, *state = reduced(iterator)
    made = make(*(_copied(part, memo) for part in args))  # type: ignore[has-type]
    if state and state[0] is not None:
        parts = state[0]
        made.__setstate__(tuple(_copied(p, memo) for p in parts) if type(parts) is tuple else parts)
    return made


def _over_live(iterator: object) -> object:
    """One over the same dict or set, as far on; a copy by `copy` goes through a list."""
    left = operator.length_hint(iterator)
    holder: Any = next((v for v in gc.get_referents(iterator) if is_a(v, dict | set | frozenset)), None)
    if holder is None:  # it is used up
        return iterator
    made = _OVER_LIVE[type(iterator)](holder)
    for _ in range(len(holder) - left):
        next(made)
    return made


def position(iterator: object) -> int | None:
    """Where an iterator over a sequence stands, or None; `rewind` takes it back there."""
    if is_a(iterator, _RANGES):
        return None  # from Python 3.12 on its range shrinks instead
    try:
        state = reduced(iterator)
    except Exception:
        return None
    if len(state) == 3 and is_a(state[2], int) and hasattr(iterator, "__setstate__"):
        return state[2]
    return None


def reduced(iterator: Any) -> tuple[Any, ...]:
    """How Python would make it anew; raises where it cannot. (Of itertools it is deprecated from 3.12 on.)"""
    with patches.unwarned(DeprecationWarning):
        return iterator.__reduce__()


def rewind(iterator: Any, index: int) -> bool:
    """Put an iterator over a sequence back to an index. False where it is used up and cannot go back."""
    if position(iterator) is None:
        return False
    iterator.__setstate__(index)
    return position(iterator) == index


_GENERATORS: tuple[tuple[type, Callable[[Any], object], Callable[[Any, Any], object]], ...] = (
    (
        np.random.Generator,
        lambda g: g.bit_generator.state,
        lambda g, old: setattr(g.bit_generator, "state", old),
    ),
    (np.random.BitGenerator, lambda g: g.state, lambda g, old: setattr(g, "state", old)),
    (np.random.RandomState, np.random.RandomState.get_state, np.random.RandomState.set_state),
    (random.SystemRandom, lambda g: None, lambda g, old: None),
    (random.Random, random.Random.getstate, random.Random.setstate),
)
"""How a generator tells its state, and takes it back."""


def random_state(value: object) -> object:
    """The state of a generator of numpy or `random`, or None for other objects."""
    return next((read(value) for cls, read, _ in _GENERATORS if is_a(value, cls)), None)


def set_random_state(value: object, state: object) -> None:
    """Inverse of `random_state`."""
    next(write for cls, _, write in _GENERATORS if is_a(value, cls))(value, state)


def global_random_states() -> list[tuple[str, object]]:
    """The hidden generators of numpy and `random`, with the names that users know them by."""
    found: list[tuple[str, object]] = [("np.random", getattr(np.random.mtrand, "_rand", None))]
    hidden = getattr(sys.modules["random"], "_inst", None)
    return [(name, g) for name, g in (*found, ("random", hidden)) if g is not None]


def same_state(a: object, b: object) -> bool:
    """Are two states of one generator equal?"""
    try:
        return bool(a == b)
    except ValueError:  # arrays are in them
        pass
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_state(a[k], b[k]) for k in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same_state, a, b))
    return np.array_equal(a, b)  # type: ignore[arg-type]
