"""`jitmagic.jit`: Python state as hidden inputs and outputs of a `jax.jit` function.

The dynamic variables of a function are read in front of each call, passed to one flat `jax.jit` function,
and those that the function writes come back as further results and are written in place. The wrapper that
does so is generated as source, with the variables spelled out (`_g0['l'].w`), because nothing else comes
within a few percent of hand-written code: see docs/state.md for the way of a call and its measurements.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jitmagic.options import JitOptions, parameters_of
from jitmagic.state import adapters, made, paths, region, taken_out
from jitmagic.state.declared import Declared, Inspected, arguments_of, flatten
from jitmagic.state.errors import StaleConstantWarning, StateError
from jitmagic.state.methods import StatefulMethod
from jitmagic.state.reached import Reach
from jitmagic.state.stateful import Stateful
from jitmagic.state.values import MISSING

__all__ = ["StaleConstantWarning", "StateError", "Stateful", "StatefulMethod", "compile_function", "jit"]


def jit(
    fn: Callable[..., object] | None = None,
    *,
    dyn_vars: object = None,
    static_argnums: object = None,
    static_argnames: object = None,
    donate_argnums: object = None,
    donate_argnames: object = None,
    device: object = None,
    backend: str | None = None,
    keep_unused: bool = False,
    inline: bool = False,
) -> object:
    """Compile `fn` with `jax.jit`, with Python state as dynamic variables.

    Args:
        fn: a function, method, or object with `__call__`; without it, a decorator is returned.
        dyn_vars: what may change between calls: path strings (`"w, l.b, params['w']"`), arrays, framework
            variables, objects that hold them, or a (nested) list, tuple or dict of these; `"auto"` for
            every array the function reaches. Without it, framework variables are dynamic by themselves.
        static_argnums: as in `jax.jit`; so are the others. `donate_argnames` takes state paths as well.

    Returns:
        `jax.jit(fn)` itself where there are no dynamic variables and no framework is imported whose objects it could
        be called with, else a function with the same signature and with `lower`, `trace`, `eval_shape` and
        `clear_cache`.

    Raises:
        ValueError: a path does not lead to an array or number, or `fn` does not read a given array.
    """
    options = JitOptions.of(
        static_argnums=static_argnums, static_argnames=static_argnames, donate_argnums=donate_argnums,
        donate_argnames=donate_argnames, device=device, backend=backend, keep_unused=keep_unused, inline=inline,
    )  # fmt: skip
    if fn is None:
        return functools.partial(compile_function, dyn_vars=dyn_vars, options=options, warn=True)
    return compile_function(fn, dyn_vars, options, warn=True)


def compile_function(
    fn: Callable[..., object],
    dyn_vars: object,
    options: JitOptions,
    namespace: dict[str, object] | None = None,
    *,
    as_in_jax: bool = False,
    warn: bool = False,
    lifts: bool = True,
) -> Any:
    """`jit` with its options as one value; `namespace` is where names are looked up besides `fn`'s own.

    Under a magic, `self` is an ordinary argument of a method unless a path begins with it or it holds
    framework variables: `as_in_jax` keeps it so. `warn` has frozen values watched: a magic does that itself.
    With `lifts` False, objects of frameworks among the arguments are what jax makes of them.
    """
    __tracebackhide__ = True
    if isinstance(fn, (staticmethod, classmethod)):
        if warn and dyn_vars is None:
            return options.jit(fn)  # jax refuses it and says what to do
        return type(fn)(
            compile_function(fn.__func__, dyn_vars, options, namespace, as_in_jax=True, warn=warn)
        )
    first = receiver_name(fn)
    if first is not None and _takes_receiver(fn, dyn_vars, first, as_in_jax):
        return StatefulMethod(fn, dyn_vars, options, first, namespace, warn=warn)
    subject = Inspected(fn, namespace)
    if dyn_vars is None or (isinstance(dyn_vars, str) and dyn_vars == "auto"):
        declared = Declared(dyn_vars, subject)
        if not declared.leaves(subject) and not _may_get_variables(subject, declared):
            if not (lifts and adapters.any_installed()) or parameters_of(fn) == []:
                return _as_jax_does(subject, options) if warn and made.is_asked_for() else options.jit(fn)
            return Stateful(subject, dyn_vars, options, warn=warn, plain=True).call
    return Stateful(subject, dyn_vars, options, warn=warn, lifts=lifts).call


def _as_jax_does(subject: Inspected, options: JitOptions) -> object:
    """jax's own compiled function, of which a notebook is told what it holds as constants."""
    fn, note = made.noting(subject)
    return made.remember(options.jit(fn), note)


def _may_get_variables(subject: Inspected, declared: Declared) -> bool:
    """A function that it calls has variables of its own, or names that it reads are not bound yet."""
    reach = subject.reach()
    if reach.stateful:
        return True
    if not adapters.any_installed() and not declared.auto:
        return False
    if any(root.value is MISSING for root in reach.roots):
        return True
    return adapters.any_installed() and _may_build(reach)


def _may_build(reach: Reach) -> bool:
    """An object of the user's whose classes know a framework: it may build its variables at the first call."""
    return any(adapters.is_module_class(cls) for cls in reach.classes)


def objects_taken(
    fn: Callable[..., object],
    dyn_vars: object,
    options: JitOptions,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> taken_out.Taken:
    """The objects among the arguments of a call that are state, and what jax gets."""
    first = receiver_name(fn)
    is_method = first is not None and _takes_receiver(fn, dyn_vars, first, False)
    declared = arguments_of(fn, dyn_vars, first if is_method else None)
    return taken_out.taken(parameters_of(fn), args, kwargs, options.static_parameters(fn), declared)


def receiver_name(fn: Callable[..., object]) -> str | None:
    """Name of the first parameter (`self`) of a function, or None."""
    if not isinstance(fn, types.FunctionType):
        return None
    return next((p.name for p in parameters_of(fn) or ()), None)


def _takes_receiver(fn: Callable[..., object], dyn_vars: object, first: str, as_in_jax: bool) -> bool:
    """`fn` is the plain function of a method, whose receiver is an object of Python's and no argument of jax's."""
    texts = [p for p in flatten(dyn_vars) if isinstance(p, str)]
    named = any(paths.parse(p).root == first for t in texts if t != "auto" for p in paths.split_paths(t))
    owner = fn.__qualname__.rpartition(".")[0]
    in_class = bool(owner) and not owner.endswith("<locals>")
    return in_class and (named or (first == "self" and not as_in_jax))


def holds_variables(held: Sequence[object]) -> bool:
    """Framework variables lie in one of these objects."""
    return adapters.any_installed() and any(map(region.holds_state, held))
