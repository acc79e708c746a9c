"""What is raised and warned where Python state can't be followed."""

from __future__ import annotations

import warnings


class StateError(RuntimeError):
    """A stateful function was called where its state can't be followed; the state is as before."""


class StaleConstantWarning(UserWarning):
    """A value that was baked into a compiled function has changed since."""


class LostWriteWarning(UserWarning):
    """A compiled function writes what was not declared dynamic: the new value is lost."""


def warn_lost(path: str, name: str) -> None:
    """Tell once that a write of a traced value is lost."""
    warnings.warn(
        f"{name} writes {path}, which is not among its dynamic variables: the new value is lost after each call. "
        f"declare it dynamic too (dyn_vars={path!r}), or return it",
        LostWriteWarning,
        stacklevel=5,
    )


def warn_stale(path: str, before: str, after: str, name: str) -> None:
    """Tell once that a frozen value has changed."""
    warnings.warn(
        f"{name} was compiled with {path} = {before}; it is {after} now, and {name} goes on with the old value. "
        f"declare it dynamic (dyn_vars={path!r}) or pass it as an argument",
        StaleConstantWarning,
        stacklevel=4,
    )
