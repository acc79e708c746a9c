"""Checks that a correction moves into the compiled program: tried on values that fail them, where such can be had."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

NOT_TRIED = "no value that fails the check was found to try it on"
_ATTEMPTS = 24


def tried(
    plain: Callable[[Any, Any], Any], compiled: Callable[[Any, Any], Any], args: Any, kwargs: Any
) -> str | None:
    """Words about a run on values that make the plain function raise; None where the compiled one does not raise then.

    The values are those of the call with one argument, or all, negated, zero, NaN, far larger or far smaller.
    """
    import jax

    leaves, tree = jax.tree.flatten((args, kwargs))
    for variant in _variants(leaves):
        given = jax.tree.unflatten(tree, variant)
        error = _raised(plain, given)
        if error is None:
            continue
        told = _raised(compiled, given)
        name = type(error).__name__
        return (
            f"raises as the plain function does ({name})"
            if told is not None and name in _text(told)
            else None
        )
    return NOT_TRIED


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _raised(run: Callable[[Any, Any], Any], given: Any) -> BaseException | None:
    with _unlogged():
        try:
            run(*given)
        except Exception as exc:
            return exc
    return None


@contextmanager
def _unlogged() -> Iterator[None]:
    """jax logs what a callback raises; that is expected here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _variants(leaves: list[Any]) -> Iterator[list[Any]]:
    """The leaves with one of them changed, then with all."""
    changes = (
        lambda v: -v - 1,
        lambda v: v * 0,
        lambda v: v * float("nan"),
        lambda v: v * 1000 + 1000,
        lambda v: -v,
    )
    made = 0
    for places in (*([i] for i in range(len(leaves))), list(range(len(leaves)))):
        for change in changes:
            new = list(leaves)
            for i in places:
                new[i] = _changed(leaves[i], change)
            made += 1
            if made > _ATTEMPTS:
                return
            if any(a is not b for a, b in zip(new, leaves, strict=True)):
                yield new


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value of the same type; the value itself where there is none."""
    import numpy as np

    if isinstance(value, (bool, np.bool_)) or not (
        isinstance(value, (int, float)) or hasattr(value, "dtype")
    ):
        return value
    try:
        new = change(value)
        if hasattr(value, "dtype"):
            return new if new.dtype == value.dtype else new.astype(value.dtype)
        return type(value)(new)
    except (TypeError, ValueError, OverflowError):
        return value
