"""Functions that `jitmagic.jit` has made, each with the values that it goes on with since jax has traced it."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Collection
from typing import Any

from jitmagic.state.declared import Inspected
from jitmagic.state.frozen import Frozen, freeze

_noting: weakref.WeakKeyDictionary[Any, Made] = weakref.WeakKeyDictionary()
_made: weakref.WeakKeyDictionary[Any, Made] = weakref.WeakKeyDictionary()


class Made:
    """What one compiled function holds as constants."""

    def __init__(self, subject: Inspected) -> None:
        self.subject = subject
        self.frozen: Frozen | None = None

    def note(self, dynamic: Collection[str] = ()) -> None:
        """jax has traced it just now, with these paths as inputs."""
        self.frozen = freeze(self.subject.reach(), without=dynamic)
        self.frozen.forget(dynamic)

    def changed(self) -> list[tuple[str, str, str]]:
        """Path, short text then and short text now of each constant that is another one now."""
        return self.frozen.changed() if self.frozen is not None else []


def is_asked_for() -> bool:
    """There is a notebook whose `%jitcheck` may ask."""
    return "jitmagic.notebook.session" in sys.modules


def remember(compiled: object, made: Made) -> object:
    """The compiled function; `known` tells of it as long as it is alive."""
    _made[compiled] = made
    return compiled


def known() -> list[Made]:
    """What is known of each that is alive, in the order in which they were made."""
    return list(_made.values())


def forget() -> None:
    """A notebook begins: functions of before are not its own."""
    _made.clear()
    _noting.clear()


def noting(subject: Inspected) -> tuple[Callable[..., object], Made]:
    """The function, which has what it reads noted wherever jax traces it: one for each, as jax shares its programs."""
    fn = subject.fn
    for known_as, known_one in list(_noting.items()):
        if known_one.subject.fn is fn:
            return known_as, known_one
    one = Made(subject)

    @functools.wraps(fn)
    def noted(*args: object, **kwargs: object) -> Any:
        __tracebackhide__ = True
        out = fn(*args, **kwargs)
        one.note()
        return out

    _noting[noted] = one
    return noted, one
