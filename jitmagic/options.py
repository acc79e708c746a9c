"""The options of `jax.jit` as one frozen value, whoever declared them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jitmagic import patches

_LISTS = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")


@dataclass(frozen=True)
class JitOptions:
    """What `jax.jit` takes, normalised to tuples. `device` is platform and index (`cpu:0`) or a jax device."""

    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()
    device: Any = None
    backend: str | None = None
    keep_unused: bool = False
    inline: bool = False
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """Which of the static and donated ones were given, be it as empty: jax then does not infer one from the other."""

    @classmethod
    def of(cls, **given: Any) -> JitOptions:
        """From keywords in any of the forms that `jax.jit` accepts."""
        explicit = frozenset(k for k in _LISTS if given.get(k) is not None)
        for key in ("static_argnums", "donate_argnums"):
            given[key] = _numbers(given.get(key))
        for key in ("static_argnames", "donate_argnames"):
            given[key] = _names(given.get(key))
        return cls(**given, given=explicit)

    @property
    def donates(self) -> bool:
        """A call gives some of its arguments away."""
        return bool(self.donate_argnames or self.donate_argnums)

    def kwargs(self) -> dict[str, Any]:
        """Keywords for `jax.jit`; what was not declared is left out, so that jax's own defaults hold."""
        out: dict[str, Any] = {}
        for key in _LISTS:
            if (value := getattr(self, key)) or key in self.given:
                out[key] = value
        out.update({k: getattr(self, k) for k in ("keep_unused", "inline") if getattr(self, k)})
        if self.device is not None:
            out["device"] = find_device(self.device)
        if self.backend is not None:
            out["backend"] = self.backend
        return out

    def jit(self, fn: Callable[..., Any], **more: Any) -> Any:
        """`jax.jit(fn)` with these options. jax's advice against `device` is not repeated: it was asked for."""
        import jax

        __tracebackhide__ = True
        asked_for = self.device is not None or self.backend is not None
        with patches.unwarned(DeprecationWarning) if asked_for else contextlib.nullcontext():
            return jax.jit(fn, **self.kwargs(), **more)

    def shifted(
        self, by: int, parameters: Sequence[inspect.Parameter] | None, donate_state: Sequence[int] = ()
    ) -> JitOptions:
        """The same options for a function that takes `by` more arguments in front of the given parameters.

        A static parameter is so by name and by position, however the call gives it."""
        known = parameters or ()
        plain = [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        numbers, names = self._both("static", plain, known)
        donated, donated_names = self._both("donate", plain, known)
        every = {p.name for p in known}
        static = {"static_argnums", "static_argnames"}
        return replace(
            self,
            given=frozenset(static) if self.given >= static else frozenset(),
            static_argnums=tuple(n + by for n in numbers),
            static_argnames=names,
            donate_argnums=(*donate_state, *(n + by for n in donated)),
            donate_argnames=tuple(n for n in donated_names if n in every),
        )

    def _both(
        self, kind: str, plain: Sequence[str], known: Sequence[inspect.Parameter]
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        numbers, names = getattr(self, f"{kind}_argnums"), getattr(self, f"{kind}_argnames")
        if self.given >= {f"{kind}_argnums", f"{kind}_argnames"}:
            return tuple(n if n >= 0 else n + len(plain) for n in numbers), names
        return _both(numbers, names, plain, known)

    def without_names(self, names: Collection[str]) -> JitOptions:
        """The same where these names are neither static nor donated: they are those of other functions."""
        static = tuple(n for n in self.static_argnames if n not in names)
        return replace(
            self,
            static_argnames=static,
            donate_argnames=tuple(n for n in self.donate_argnames if n not in names),
        )

    def static_parameters(self, fn: Callable[..., Any]) -> frozenset[str]:
        """Names of the parameters of `fn` that are static, whichever way they were declared."""
        return _chosen(fn, self.static_argnames, self.static_argnums)

    def donated_parameters(self, fn: Callable[..., Any]) -> frozenset[str]:
        """Names of those that are donated."""
        return _chosen(fn, self.donate_argnames, self.donate_argnums)


def _chosen(fn: Callable[..., Any], given: Sequence[str], numbers: Sequence[int]) -> frozenset[str]:
    names = [p.name for p in parameters_of(fn) or ()]
    return frozenset(given) | {names[n] for n in numbers if -len(names) <= n < len(names)}


def find_device(text: Any) -> Any:
    """The jax device for `cpu`, `gpu:1` or a device object; ValueError in one line where there is none."""
    if not isinstance(text, str):
        return text
    import jax

    platform, _, index = text.partition(":")
    try:
        return jax.devices(platform)[int(index or 0)]
    except (RuntimeError, ValueError, IndexError):
        known = ", ".join(f"{d.platform}:{i}" for i, d in enumerate(jax.devices()))
        raise ValueError(f"no device {text!r}; there is {known}") from None


def _numbers(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    many = isinstance(value, (list, tuple, set, frozenset, range))
    return tuple(int(v) for v in value) if many else (int(value),)


def _names(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


Parameters = Sequence[inspect.Parameter] | None
"""The parameters of a callable, or None where Python can't tell."""


def parameters_of(fn: Callable[..., Any]) -> Parameters:
    """The parameters of a callable."""
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return None


def argument_names(parameters: Parameters, count: int) -> list[str]:
    """What the positional arguments of a call are called: those of `*rest` are `rest[0]`, `rest[1]`."""
    known = parameters or ()
    single = [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in known if p.kind is p.VAR_POSITIONAL), "args")
    return [*single[:count], *(f"{rest}[{i}]" for i in range(count - len(single)))]


def _both(
    numbers: Sequence[int], names: Sequence[str], plain: Sequence[str], known: Sequence[inspect.Parameter]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of the parameters that are meant by either."""
    count, keyword = len(plain), {p.name for p in known if p.kind is p.POSITIONAL_OR_KEYWORD}
    at = [n if n >= 0 else n + count for n in numbers]
    at += [plain.index(n) for n in names if n in plain]
    called = [*names, *(plain[n] for n in at if 0 <= n < count and plain[n] in keyword)]
    return tuple(dict.fromkeys(at)), tuple(dict.fromkeys(called))
