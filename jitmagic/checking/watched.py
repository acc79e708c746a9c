"""A function under a magic: the user's calls go through here, and tell when jax traces anew.

Nothing of ours runs between two calls that jax has compiled for: the traced function itself notices that it
is being traced, which is exactly when there is something new to look at.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jitmagic.options import JitOptions
from jitmagic.trial.whose_run import STATE, plainly

if TYPE_CHECKING:
    from jitmagic.checking.checker import Checker


_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__", "__globals__", "__closure__")


class Watched:
    """The compiled form of `fn` that checks each new kind of call; calls like `fn`."""

    __slots__ = ("_checker", "__dict__", "__weakref__")  # `functools.wraps` copies what lies in `__dict__`

    def __init__(self, fn: Callable[..., Any], checker: Checker) -> None:
        functools.update_wrapper(self, fn, updated=())
        self._checker = checker

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # IPython leaves such frames out of tracebacks
        if STATE.plain:
            return (self._checker.original if STATE.made else self._checker.fn)(*args, **kwargs)
        if STATE.recorded is not None and self._checker not in STATE.recorded:
            return self._checker.unrecorded(args, kwargs)
        return self._checker.call(args, kwargs)

    @property
    def plain_function(self) -> Any:
        """What the name stood for before it was watched."""
        return self._checker.original

    def __get__(self, receiver: Any, owner: type | None = None) -> Any:
        return self if receiver is None else types.MethodType(self, receiver)

    def __getattr__(self, name: str) -> Any:
        # what else the user's object offers: `defjvp` of a custom derivative, attributes of a callable object
        hidden = name.startswith("__") and name not in _OF_FUNCTIONS
        if hidden or name == "_checker":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._checker.fn, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if (checker := checker_of(self)) is not None:
            setattr(checker.fn, name, value)
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._checker.fn, name)

    def __copy__(self) -> Watched:
        return self  # as a function is

    def __deepcopy__(self, memo: Any) -> Watched:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By name, as a function is; to `cloudpickle`, which sends functions whole, the user's own."""
        asked_by = str(sys._getframe(1).f_globals.get("__name__", ""))
        return (copy.copy, (self._checker.fn,)) if "cloudpickle" in asked_by else self.__qualname__

    def __repr__(self) -> str:
        return f"<{self._checker.name}, compiled by jitmagic>"

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As `jax.jit(fn).lower`."""
        return self._checker.compiled_for(args).lower(*self._checker.rest(args), **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As `jax.jit(fn).trace`."""
        return self._checker.compiled_for(args).trace(*self._checker.rest(args), **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """As `jax.jit(fn).eval_shape`."""
        return self._checker.compiled_for(args).eval_shape(*self._checker.rest(args), **kwargs)

    def clear_cache(self) -> None:
        """As `jax.jit(fn).clear_cache`: the next call traces and compiles anew, with the values of then."""
        self._checker.clear_cache()


def checker_of(value: object) -> Checker | None:
    """What watches this function; None for what is not watched itself, a wrapper around it included."""
    held = value if isinstance(value, Watched) else None
    return getattr(held, "_checker", None)


class Shim:
    """The function that jax traces in place of the user's; `traced` counts how often it did, and `begins` is called
    each time."""

    def __init__(
        self, fn: Callable[..., Any], begins: Callable[..., None] = lambda args, kwargs: None
    ) -> None:
        self.fn, self.traced, self.begins = fn, 0, begins

    def function(self) -> Callable[..., Any]:
        """A plain function with the signature and name of the user's."""
        from jitmagic.tracing.compat import jit_is_off

        def traced(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if not jit_is_off():
                self.traced += 1
                self.begins(args, kwargs)
            with plainly():
                return self.fn(*args, **kwargs)

        traced.__name__ = type(self.fn).__name__  # of an object, which has none
        return functools.wraps(self.fn)(traced)


def compiled_already(value: Any) -> bool:
    """The user's own code has compiled it, with `jax.jit` or a framework's own."""
    from jitmagic.tracing import foreign

    framework = foreign.framework_of(value)
    if type(value).__name__ != "PjitFunction" and not framework:
        return False
    from jitmagic.tracing.locate import is_user_file

    inner = foreign.inner_function(value) if framework else foreign.user_method(value.__wrapped__)
    code = getattr(inspect.unwrap(inner), "__code__", None)
    return code is not None and is_user_file(code.co_filename)


def compiled_parts(value: Any) -> list[str]:
    """What the user's own code has compiled: `""` for the value itself, methods of a class, attributes of an object."""
    if compiled_already(value):
        return [""]
    return [name for name, part in list(held_by(value).items()) if compiled_already(part)]


def compiled_in_use(names: Mapping[str, Any], tree: ast.AST) -> bool:
    """A cell reads something that the notebook has compiled."""
    used = (names.get(n.id) for n in ast.walk(tree) if isinstance(n, ast.Name))
    return any(map(compiled_parts, used))


def held_by(value: Any) -> Mapping[str, Any]:
    """What a class of the notebook's, or an object of a plain one, has under its names."""
    if isinstance(value, type):
        return vars(value) if value.__module__ == "__main__" else {}
    return vars(value) if _is_plain_object(value) else {}


def _is_plain_object(value: Any) -> bool:
    """An object of the notebook's own classes alone, whose attributes jax does not look at."""
    kinds = type(value).__mro__[:-1]
    own = all(k.__module__ == "__main__" and k.__setattr__ is object.__setattr__ for k in kinds)
    if not kinds or not own or not hasattr(value, "__dict__") or "jax" not in sys.modules:
        return False
    import jax

    return jax.tree_util.all_leaves([value])


def unwrap_jitted(fn: Any) -> tuple[Any, JitOptions | None]:
    """The user's function inside a `jax.jit` object, and the options it was made with where jax tells them."""
    if type(fn).__name__ != "PjitFunction":
        return fn, None
    from jitmagic.tracing import foreign
    from jitmagic.tracing.compat import jit_options

    options = JitOptions.of(**jit_options(fn))
    inner = fn.__wrapped__
    inner = inner._checker.fn if isinstance(inner, Watched) else foreign.user_method(inner)
    return inner, _said_once(inner, options)


def of_custom_derivative(fn: Any) -> JitOptions:
    """What a `custom_vjp` or `custom_jvp` declares as not differentiable is no array, so it is static under jit."""
    return JitOptions.of(static_argnums=getattr(fn, "nondiff_argnums", None) or None)


def _said_once(fn: Any, options: JitOptions) -> JitOptions:
    """Without the numbers that jax itself derives from names: with both, it derives nothing for further names."""
    try:
        order = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return options
    by_name = {i for i, p in enumerate(order) if p.kind is p.POSITIONAL_OR_KEYWORD}
    for kind in ("static", "donate"):
        numbers, names = getattr(options, f"{kind}_argnums"), getattr(options, f"{kind}_argnames")
        if numbers and all(n in by_name and order[n].name in names for n in numbers):
            without: dict[str, Any] = {f"{kind}_argnums": (), "given": options.given - {f"{kind}_argnums"}}
            options = replace(options, **without)
    return options
