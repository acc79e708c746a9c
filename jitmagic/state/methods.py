"""Methods whose receiver holds the dynamic variables."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from jitmagic.options import JitOptions
from jitmagic.state import region, values
from jitmagic.state.declared import Inspected
from jitmagic.state.stateful import Stateful


class StatefulMethod:
    """A method whose receiver holds the dynamic variables: one compiled function per instance."""

    def __init__(
        self,
        fn: Callable[..., object],
        dyn_vars: object,
        options: JitOptions,
        receiver_as: str,
        namespace: dict[str, object] | None = None,
        *,
        warn: bool = False,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn, self.dyn_vars, self.options = fn, dyn_vars, options
        self.receiver_as, self.namespace, self.warn = receiver_as, namespace, warn
        self._instances: dict[int, tuple[Callable[[], Any], Any]] = {}
        self._plain: Any = None
        self.__jitmagic__ = None  # whose variables depends on the instance

    def of(self, receiver: object) -> Any:
        """The compiled function of one instance, without its first parameter."""
        held = self._instances.get(id(receiver))
        if held is not None and held[0]() is receiver:
            return types.MethodType(held[1], receiver)
        call = self._compile(receiver)
        if call is not self._plain:
            self._instances[id(receiver)] = (self._reference(receiver), call)
        return types.MethodType(call, receiver)

    def _compile(self, receiver: object) -> Any:
        subject = Inspected(self.fn, self.namespace, receiver, self.receiver_as)
        if self.dyn_vars is None and _is_pytree(receiver) and not region.holds_state(receiver):
            self._plain = self._plain or self.options.jit(self.fn)
            return self._plain
        return Stateful(
            subject,
            self.dyn_vars,
            self._without_receiver(),
            warn=self.warn,
            receiver=self._reference(receiver),
        ).call

    def _reference(self, receiver: object) -> Callable[[], Any]:
        key = id(receiver)
        return values.reference(receiver, functools.partial(self._instances.pop, key))

    def _without_receiver(self) -> JitOptions:
        def less(numbers: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(n - 1 if n > 0 else n for n in numbers if n != 0)

        o = self.options
        return replace(
            o,
            static_argnums=less(o.static_argnums),
            donate_argnums=less(o.donate_argnums),
            static_argnames=tuple(n for n in o.static_argnames if n != self.receiver_as),
        )

    def __get__(self, receiver: object, owner: type | None = None) -> Any:
        if receiver is None:
            return self
        held = self._instances.get(id(receiver))
        if held is not None and held[0]() is receiver:
            return types.MethodType(held[1], receiver)
        return self.of(receiver)

    def __call__(self, receiver: object, *args: object, **kwargs: object) -> Any:
        return self.of(receiver)(*args, **kwargs)

    def _staged(self, stage: str, receiver: object, *args: object, **kwargs: object) -> Any:
        return getattr(self.of(receiver), stage)(*args, **kwargs)

    lower = functools.partialmethod(_staged, "lower")
    trace = functools.partialmethod(_staged, "trace")
    eval_shape = functools.partialmethod(_staged, "eval_shape")
    """As of `jax.jit(...)`, for one instance, which comes first."""

    def clear_cache(self) -> None:
        """Forget what was compiled, for every instance."""
        self._instances.clear()

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self.fn.__qualname__} is compiled with state of its instances and can't be pickled or copied by "
            f"itself; pickle the instances, or the plain function ({self.fn.__name__}.__wrapped__)"
        )


def _is_pytree(value: object) -> bool:
    return not jax.tree_util.all_leaves([value])
