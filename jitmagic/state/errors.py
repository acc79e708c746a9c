"""What is raised and warned where Python state can't be followed."""

from __future__ import annotations

import warnings


class StateError(RuntimeError):
    """A stateful function was called where its state can't be followed; the state is as before."""


class StaleConstantWarning(UserWarning):
    """A value that was baked into a compiled function has changed since."""


def warn_stale(path: str, before: str, after: str, name: str) -> None:
    """Tell once that a frozen value has changed."""
    warnings.warn(
        f"{name} was compiled with {path} = {before}; it is {after} now, and {name} goes on with the old value. "
        f"declare it dynamic (dyn_vars={path!r}) or pass it as an argument",
        StaleConstantWarning,
        stacklevel=4,
    )
