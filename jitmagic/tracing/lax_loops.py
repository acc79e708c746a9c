"""Loops of `jax.lax` whose counters and first states carry values that know they are traced.

Without jit a loop counter is a plain number, so a question to it would not be noticed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax

from jitmagic import patches


@contextlib.contextmanager
def counting(shadowed: Callable[[object], object]) -> Iterator[None]:
    """While the block runs, `jax.lax.fori_loop`, `while_loop` and `scan` start with `shadowed(leaf)` for each leaf
    of their state, and `fori_loop` hands its body a shadowed counter. In this thread alone."""
    lax: Any = jax.lax
    originals = {name: getattr(lax, name) for name in ("fori_loop", "while_loop", "scan")}

    def started(state: object) -> object:
        return jax.tree.map(shadowed, state)

    def fori_loop(
        lower: object, upper: object, body_fun: Callable[..., object], init_val: object, **options: object
    ) -> object:
        def body(i: object, state: object) -> object:
            return body_fun(shadowed(i), state)

        return originals["fori_loop"](lower, upper, body, started(init_val), **options)

    def while_loop(cond_fun: object, body_fun: object, init_val: object) -> object:
        return originals["while_loop"](cond_fun, body_fun, started(init_val))

    def scan(f: object, init: object, *args: object, **options: object) -> object:
        return originals["scan"](f, started(init), *args, **options)

    patched = {f.__name__: patches.here(f, originals[f.__name__]) for f in (fori_loop, while_loop, scan)}
    with patches.replaced(lax, **patched):
        yield
