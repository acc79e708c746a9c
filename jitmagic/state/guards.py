"""Frozen values of a compiled function, watched at every call: by identity, and small numpy arrays by content."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection

import numpy as np

from jitmagic.state import values
from jitmagic.state.contents import Key
from jitmagic.state.declared import Inspected
from jitmagic.state.frozen import Baked
from jitmagic.state.paths import Place, at_or_below
from jitmagic.state.reached import LeafValue, Root
from jitmagic.state.values import MISSING, is_a

MOST = 50
"""More frozen values than this are not watched: each costs some 10 ns per call."""
_ELEMENTS = 256
_LOOK_ONLY = ("len", "type", "id", "isinstance", "callable")
_RENEWALS = 8  # equal, but another object each time: watching it costs more than it tells


class Guard(Baked):
    """One frozen value. `peek` gives bytes that differ from `seen` where a numpy array was filled anew."""

    def __init__(self, path: str, place: Place, value: object) -> None:
        super().__init__(path, place, value)
        self.place, self.value, self.renewed = place, value, 0
        self.peek: Callable[[], bytes] | None = None
        if is_a(value, np.ndarray) and value.size and not value.dtype.hasobject:  # type: ignore[attr-defined]
            self.peek = _sample(value)  # type: ignore[arg-type]
        self.seen = self.peek() if self.peek is not None else b""

    def refilled(self) -> bool:
        """The array has other numbers now."""
        return self.peek is not None and self.peek() != self.seen


class Guards:
    """The frozen values that a function reads besides its dynamic variables."""

    def __init__(self, subject: Inspected, without: Collection[str]) -> None:
        self.all: list[Guard] = []
        seen: set[str] = set()
        parts: dict[int, set[Key] | None] = {}
        for leaf in subject.reach().leaves():
            if at_or_below(leaf.path, without) or leaf.path in seen or len(self.all) >= MOST:
                continue
            if not _counts(leaf) or not _is_read(leaf, parts):
                continue
            seen.add(leaf.path)
            self.all.append(Guard(leaf.path, leaf.place, leaf.value))

    def changed(self) -> list[tuple[str, str, str]]:
        """Path, text when compiled and text now of what changed since; each is told once."""
        found = []
        for guard in list(self.all):
            now, refilled = guard.place.look(), guard.refilled()
            if now is guard.value and not refilled:
                continue
            if now is not MISSING and not refilled and guard.same(now):
                guard.value, guard.renewed = now, guard.renewed + 1
                if guard.renewed > _RENEWALS:
                    self.all.remove(guard)
                continue
            self.all.remove(guard)
            found.append((guard.path, guard.text, guard.text_now(now)))
        return found


def _is_read(leaf: LeafValue, parts: dict[int, set[Key] | None]) -> bool:
    """The leaf lies below a part of its root that the functions name."""
    wanted = parts.setdefault(id(leaf.root), _parts_read(leaf.root)) if leaf.place.parent else None
    place = leaf.place
    while place.parent is not None:
        if place.parent.path == leaf.root.place.path:
            return wanted is None or (place.kind, place.key) in wanted
        place = place.parent
    return True


def _parts_read(root: Root) -> set[Key] | None:
    """The attributes and items of a root that functions take from it; None where that can't be told."""
    reads = [u for u in root.uses if u.action == "read"]
    found = set[Key]()
    for use in reads:
        if not use.steps:
            if use.whole_to not in _LOOK_ONLY:
                return None
            continue
        step = use.steps[0]
        if step.kind == "attribute" and values.class_attribute(type(root.value), step.key):
            return None  # a method or property may read anything
        found.add((step.kind, step.key))
    return found if reads else None


def _counts(leaf: LeafValue) -> bool:
    value = leaf.value
    if leaf.root.origin == "argument" and leaf.origin != "attribute":
        return False
    if is_a(value, types.FunctionType):
        return values.is_user_file(value.__code__.co_filename)
    if leaf.is_rng or values.is_tracer(value) or leaf.place.origin == "default":
        return False
    return values.is_number(value) or type(value) in (str, bytes, type(None)) or is_a(value, np.ndarray)


def _sample(array: np.ndarray) -> Callable[[], bytes]:
    """Bytes of at most some hundred elements, spread over the array."""
    steps, size = [], array.size
    for n in array.shape:
        step = min(n, -(-size // _ELEMENTS)) if size > _ELEMENTS else 1
        steps.append(slice(None, None, max(1, step)))
        size = -(-size // max(1, step))
    return array[tuple(steps)].tobytes
