"""`jitmagic.check`: one call of a function, diagnosed because somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitmagic.checking.checker import Checker
from jitmagic.checking.corrections import report_of
from jitmagic.checking.watched import Watched
from jitmagic.options import JitOptions
from jitmagic.render import Report
from jitmagic.settings import Settings
from jitmagic.state.definition import misfit


class _Check:
    """`jitmagic.check`, and `jitmagic.check.options(...)` for a call with options."""

    def __init__(
        self, options: JitOptions | None = None, dyn: str | None = None, settings: Settings | None = None
    ):
        self._options, self._dyn, self._settings = options, dyn, settings

    def __call__(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Report:
        """Diagnose one call of `fn` and return the `Report`; the call itself is not made.

        Nothing is compiled and every variable is put back. Exceptions of `fn` become findings. Raises TypeError for
        arguments that `fn` does not take.
        """
        fn = fn.plain_function if isinstance(fn, Watched) else fn
        if words := misfit(fn, args, kwargs):
            raise TypeError(f"{getattr(fn, '__name__', fn)}: {words}")
        checker = Checker(
            fn, options=self._options, dyn=self._dyn, settings=self._settings or Settings(compile=False)
        )
        checker.seen.count = 1
        checker.guarded(checker.diagnose, args, kwargs)
        return report_of([checker])

    def options(
        self, *, dyn_vars: Any = None, settings: Settings | None = None, **jit_options: Any
    ) -> _Check:
        """The same check with options of `jax.jit` and dynamic variables."""
        return _Check(JitOptions.of(**jit_options), dyn_vars, settings)


check = _Check()
