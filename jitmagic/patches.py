"""Attributes of other people's modules and classes that are replaced for the length of one run of ours.

Every replacement is on record, so that a cell boundary can put back what an interrupt has left behind, and two
threads may replace the same attribute and leave in any order.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jitmagic.interrupts import deferred

around_runs: list[Callable[[], contextlib.AbstractContextManager[Any]]] = []
"""What holds besides in every run of the user's code that the user did not ask for; a room adds its own when it is
imported."""

around_looks: list[Callable[[tuple[type, ...]], contextlib.AbstractContextManager[Any]]] = []
"""What holds while we ask objects of these classes of the user's for their parts; added as above."""

_MISSING = object()


@dataclass(eq=False)
class _Place:
    """One attribute: what its holder's own namespace had, and the replacements in force, the newest last."""

    holder: Any
    name: str
    original: Any
    stack: list[Any] = field(default_factory=list)

    def settle(self) -> None:
        """Set the attribute to the newest replacement, or to what it was."""
        value = self.stack[-1] if self.stack else self.original
        if value is _MISSING:
            with contextlib.suppress(AttributeError):
                delattr(self.holder, self.name)
        else:
            setattr(self.holder, self.name, value)


_places: dict[tuple[int, str], _Place] = {}
_lock = threading.RLock()


@contextlib.contextmanager
def replaced(holder: Any, **attributes: Any) -> Iterator[None]:
    """While the block runs, `holder` has these attributes; a name that it inherits is taken away again."""
    added: list[tuple[_Place, Any]] = []
    try:
        with deferred(), _lock:
            for name, value in attributes.items():
                key = id(holder), name
                place = _places.get(key)
                if place is None:
                    place = _places[key] = _Place(holder, name, vars(holder).get(name, _MISSING))
                place.stack.append(value)
                added.append((place, value))
                place.settle()
        yield
    finally:
        with deferred(), _lock:
            for place, value in added:
                place.stack[:] = [v for v in place.stack if v is not value]
                _settle(place)


def none_awaited() -> contextlib.AbstractContextManager[None]:
    """While this holds, a coroutine that goes without having run is one that a run of ours has made: no warning."""
    return replaced(warnings, _warn_unawaited_coroutine=lambda coroutine: None)


def here(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in the thread that asks now, and `original` in every other."""
    thread = threading.get_ident()

    @functools.wraps(original)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return (function if threading.get_ident() == thread else original)(*args, **kwargs)

    return chosen


class StandIn:
    """What stands for an object of another's while a run of ours is under way: `stream`."""

    stream: Any


def without(holder: Any, attributes: dict[str, Any]) -> dict[str, Any]:
    """These attributes of a holder as they are without the replacements in force."""
    with _lock:
        own = {name: place.original for (held, name), place in _places.items() if held == id(holder)}
    own |= {name: v.stream for name, v in attributes.items() if issubclass(type(v), StandIn)}
    found = {**attributes, **{name: value for name, value in own.items() if name in attributes}}
    return {name: value for name, value in found.items() if value is not _MISSING}


@contextlib.contextmanager
def unwarned(category: type[Warning] = Warning) -> Iterator[None]:
    """Nothing is warned of in the block. Python does not show anew what it has shown, as it does after
    `warnings.catch_warnings`."""
    ignored = ("ignore", None, category, None, 0)
    filters: list[object] = warnings.filters  # type: ignore[assignment]
    filters.insert(0, ignored)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            filters.remove(ignored)


def any_left() -> bool:
    """A replacement is in force."""
    return bool(_places)


def put_back() -> None:
    """Take out every replacement: no run of ours is under way."""
    with deferred(), _lock:
        for place in list(_places.values()):
            place.stack.clear()
            _settle(place)


def _settle(place: _Place) -> None:
    place.settle()
    if not place.stack:
        _places.pop((id(place.holder), place.name), None)
