"""A function under a magic: the user's calls go through here, and tell when jax traces anew.

Nothing of ours runs between two calls that jax has compiled for: the traced function itself notices that it
is being traced, which is exactly when there is something new to look at.
"""

from __future__ import annotations

import copy
import functools
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jitmagic.settings import CellSource
from jitmagic.trial.whose_run import STATE, calls_diagnosed, inside_diagnosed

_ITS_NAMES = {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__"}
"""What it says of itself, as what `jax.jit` makes does; all else that is set on it lies in the user's function."""
_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__", "__globals__", "__closure__")


class CallHandler(Protocol):
    """What the calls of a watched function go to."""

    name: str
    fn: Callable[..., object]
    original: Callable[..., object]
    """What the user's calls would run without us."""
    cell: CellSource
    is_named: bool
    """The magic line names it."""

    @property
    def compiles(self) -> bool:
        """The user's calls run what we have compiled."""

    def call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """One call of the user's."""

    def interrupted(self, exc: KeyboardInterrupt) -> None:
        """A call of the user's was interrupted."""

    def unrecorded(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """A call of which nothing is noted."""

    def compiled_for(self, args: Sequence[object]) -> Any:
        """The compiled function for a call with these arguments."""

    def rest(self, args: Sequence[object]) -> Sequence[object]:
        """The arguments that it takes."""

    def clear_cache(self) -> None:
        """The next call traces and compiles anew."""


class _AboutItself:
    """Holds what a function says of itself: its name, its text, the function within."""


class Watched(_AboutItself):
    """The compiled form of `fn` that checks each new kind of call; calls like `fn`."""

    def __init__(self, fn: Callable[..., object], checker: CallHandler) -> None:
        functools.update_wrapper(self, fn, updated=())
        self._checker = checker

    @property
    def __dict__(self) -> dict[str, object]:  # type: ignore[override]
        """What the user has set on the function: `functools.wraps` copies it, and `vars` tells it."""
        return getattr(self._users_own or self._checker.fn, "__dict__", {})

    def __call__(self, *args: object, **kwargs: object) -> object:
        __tracebackhide__ = True  # IPython leaves such frames out of tracebacks
        if STATE.plain:
            return (self._checker.original if STATE.made else self._checker.fn)(*args, **kwargs)
        if calls_diagnosed and STATE.recorded is None and inside_diagnosed(sys._getframe(1)):
            return self._checker.original(*args, **kwargs)
        if STATE.recorded is not None and self._checker not in STATE.recorded:
            return self._checker.unrecorded(args, kwargs)
        try:
            return self._checker.call(args, kwargs)
        except KeyboardInterrupt as exc:
            self._checker.interrupted(exc)
            raise

    @property
    def plain_function(self) -> Callable[..., object]:
        """What the name stood for before it was watched."""
        return self._checker.original

    def __get__(self, receiver: object, owner: type | None = None) -> object:
        return self if receiver is None else types.MethodType(self, receiver)

    def __getattr__(self, name: str) -> object:
        # what else the user's object offers: `defjvp` of a custom derivative, attributes of a callable object
        hidden = name.startswith("__") and name not in _OF_FUNCTIONS
        if hidden or name == "_checker":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        original = self._checker.original  # of the user's own `jax.jit` too, which knows how it was made
        return getattr(original if name in getattr(original, "__dict__", ()) else self._checker.fn, name)

    def __setattr__(self, name: str, value: object) -> None:
        checker = checker_of(self)
        if checker is None or name in _ITS_NAMES:
            object.__setattr__(self, name, value)
        if checker is not None and (self._users_own is not None or name not in _ITS_NAMES):
            setattr(self._users_own or checker.fn, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._users_own or self._checker.fn, name)

    def __copy__(self) -> Watched:
        return self  # as a function is

    def __deepcopy__(self, memo: object) -> Watched:
        return self

    def __reduce_ex__(self, protocol: object) -> Any:
        """By name, as a function is; to `cloudpickle`, which sends functions whole, the user's own."""
        asked_by = str(sys._getframe(1).f_globals.get("__name__", ""))
        return (copy.copy, (self._checker.fn,)) if "cloudpickle" in asked_by else self.__qualname__

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        """Of a compiled function of the user's own: that one's, as `isinstance` and `match` ask for it."""
        return Watched if (own := self._users_own) is None else type(own)

    def __repr__(self) -> str:
        own = self._users_own
        return f"<{self._checker.name}, compiled by jitmagic>" if own is None else repr(own)

    def lower(self, *args: object, **kwargs: object) -> object:
        """As `jax.jit(fn).lower`."""
        __tracebackhide__ = True
        compiled, rest = self._compiled(args)
        return compiled.lower(*rest, **kwargs)

    def trace(self, *args: object, **kwargs: object) -> object:
        """As `jax.jit(fn).trace`."""
        __tracebackhide__ = True
        compiled, rest = self._compiled(args)
        return compiled.trace(*rest, **kwargs)

    def eval_shape(self, *args: object, **kwargs: object) -> object:
        """As `jax.jit(fn).eval_shape`."""
        __tracebackhide__ = True
        compiled, rest = self._compiled(args)
        return compiled.eval_shape(*rest, **kwargs)

    def clear_cache(self) -> None:
        """As `jax.jit(fn).clear_cache`: the next call traces and compiles anew, with the values of then."""
        if (own := self._users_own) is not None:
            own.clear_cache()
        self._checker.clear_cache()

    def _cache_size(self) -> int:
        """As `jax.jit(fn)._cache_size`, by which many notebooks count compilations."""
        return self._compiled(())[0]._cache_size()  # type: ignore[no-any-return]

    @property
    def _users_own(self) -> Any:
        """The compiled function of the user's own that calls go to, or None where they go to what we compile."""
        checker: CallHandler | None = getattr(self, "_checker", None)
        return None if checker is None or checker.compiles else checker.original

    def _compiled(self, args: Sequence[object]) -> tuple[Any, Sequence[object]]:
        """What a call with these arguments runs, and those of them that it takes."""
        own = self._users_own
        return (
            (own, args) if own is not None else (self._checker.compiled_for(args), self._checker.rest(args))
        )


def checker_of(value: object) -> CallHandler | None:
    """What watches this function; None for what is not watched itself, a wrapper around it included."""
    held = value if isinstance(value, Watched) else None
    return getattr(held, "_checker", None)
