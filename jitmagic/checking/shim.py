"""What jax traces in place of the user's function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType

from jitmagic.checking.tracebacks import CALLERS
from jitmagic.state.values import is_endless
from jitmagic.tracing.compat import jit_is_off
from jitmagic.trial.whose_run import plainly


class Shim:
    """The function that jax traces in place of the user's; `traced` counts how often it did, and `begins` is called
    each time."""

    def __init__(
        self, fn: Callable[..., object], begins: Callable[..., None] = lambda args, kwargs: None
    ) -> None:
        self.fn, self.traced, self.begins = fn, 0, begins
        self.code: CodeType | None = None
        """Of the function that calls the user's."""

    def function(self) -> Callable[..., object]:
        """A plain function with the signature and name of the user's."""

        def traced(*args: object, **kwargs: object) -> object:
            __tracebackhide__ = True
            if not jit_is_off():
                self.traced += 1
                self.begins(args, kwargs)
            with plainly():
                result = self.fn(*args, **kwargs)
            if is_endless(result):
                raise ValueError(
                    f"{traced.__name__} returns what holds itself, or lies hundreds of containers deep"
                )
            return result

        self.code = traced.__code__
        CALLERS.add(self.code)
        traced.__name__ = type(self.fn).__name__  # of an object, which has none
        return functools.wraps(self.fn)(traced)
