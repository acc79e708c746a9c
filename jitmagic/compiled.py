"""`jitmagic.jit`: Python state as hidden inputs and outputs of a `jax.jit` function.

The dynamic variables of a function are read in front of each call, passed to one flat `jax.jit` function,
and those that the function writes come back as further results and are written in place. The wrapper that
does so is generated as source, with the variables spelled out (`_g0['l'].w`), because nothing else comes
within a few percent of hand-written code: see docs/state.md for the measurements.

What is written is found out by the first trace. A later trace that writes more (another static argument,
another shape) has the wrapper generated again.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jitmagic.options import JitOptions
from jitmagic.state import adapters, codegen, paths, roots, snapshot

_tracing = threading.RLock()  # a trace puts tracers into shared variables, so there is one at a time


class StateError(RuntimeError):
    """A stateful function was called where its state can't be followed; the state is as before."""


class StaleConstantWarning(UserWarning):
    """A value that was baked into a compiled function has changed since."""


class _MoreWrites(Exception):
    """A trace wrote variables that the wrapper does not bring back yet."""


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    dyn_vars: Any = None,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    device: Any = None,
    backend: str | None = None,
    keep_unused: bool = False,
    inline: bool = False,
) -> Any:
    """Compile `fn` with `jax.jit`, with Python state as dynamic variables.

    Args:
        fn: a function, method, or object with `__call__`; without it, a decorator is returned.
        dyn_vars: what may change between calls: path strings (`"w, l.b, params['w']"`), arrays, framework
            variables, objects that hold them, or a (nested) list, tuple or dict of these; `"auto"` for
            every array the function reaches. Without it, framework variables are dynamic by themselves.
        static_argnums: as in `jax.jit`; so are the others. `donate_argnames` takes state paths as well.

    Returns:
        `jax.jit(fn)` itself where there are no dynamic variables, else a function with the same signature
        and with `lower`, `trace`, `eval_shape` and `clear_cache`.

    Raises:
        ValueError: a path does not lead to an array or number, or `fn` does not read a given array.
    """
    options = JitOptions.of(
        static_argnums=static_argnums, static_argnames=static_argnames, donate_argnums=donate_argnums,
        donate_argnames=donate_argnames, device=device, backend=backend, keep_unused=keep_unused, inline=inline,
    )  # fmt: skip
    if fn is None:
        return functools.partial(compile_function, dyn_vars=dyn_vars, options=options)
    return compile_function(fn, dyn_vars, options)


def compile_function(
    fn: Callable[..., Any],
    dyn_vars: Any,
    options: JitOptions,
    namespace: dict[str, Any] | None = None,
    *,
    as_in_jax: bool = False,
) -> Any:
    """`jit` with its options as one value; `namespace` is where names are looked up besides `fn`'s own.

    Under a magic, `self` is an ordinary argument of a method unless a path begins with it or it holds
    framework variables: `as_in_jax` keeps it so.
    """

    method = receiver_name(fn) if _takes_receiver(fn, dyn_vars, as_in_jax) else None
    if method is not None:
        return StatefulMethod(fn, dyn_vars, options, method, namespace)
    places = select(fn, dyn_vars, namespace)
    if not places and dyn_vars in (None, "auto"):
        return options.jit(fn)
    return Stateful(fn, dyn_vars, options, namespace=namespace).call


def receiver_name(fn: Callable[..., Any]) -> str | None:
    """Name of the first parameter (`self`) of a function, or None."""
    try:
        return next(iter(inspect.signature(fn).parameters), None)
    except (TypeError, ValueError):
        return None


def _takes_receiver(fn: Callable[..., Any], dyn_vars: Any, as_in_jax: bool) -> bool:
    """`fn` is the plain function of a method, whose receiver is an object of Python's and no argument of jax's."""
    if not isinstance(fn, types.FunctionType):
        return False
    first = receiver_name(fn)
    texts = [p for p in flatten(dyn_vars) if isinstance(p, str)]
    named = any(paths.parse(p).root == first for t in texts if t != "auto" for p in paths.split_paths(t))
    in_class = "." in fn.__qualname__ and not fn.__qualname__.rpartition(".")[0].endswith("<locals>")
    return first is not None and in_class and (named or (first == "self" and not as_in_jax))


def holds_variables(values: Sequence[Any]) -> bool:
    """Framework variables lie in one of these objects."""
    if not adapters.any_installed():
        return False
    places = (
        p for v in values for p in paths.leaves_below(paths.Place("self", "argument", "item", 0, holder=[v]))
    )
    return any(p.is_variable for p in places)


def flatten(dyn_vars: Any) -> Iterator[Any]:
    """The leaves of a nested list, tuple or dict of dynamic variables."""
    if isinstance(dyn_vars, (list, tuple, set)):
        for v in dyn_vars:
            yield from flatten(v)
    elif isinstance(dyn_vars, dict):
        for v in dyn_vars.values():
            yield from flatten(v)
    elif dyn_vars is not None:
        yield dyn_vars


def select(
    fn: Callable[..., Any],
    dyn_vars: Any,
    namespace: dict[str, Any] | None = None,
    receiver: Any = None,
    receiver_as: str = "self",
) -> list[paths.Place]:
    """The places that `dyn_vars` declares, each holding one array or number, in a stable order."""
    scope = scope_of(fn, namespace, receiver, receiver_as)
    if dyn_vars is None:
        if not adapters.any_installed():
            return []
        found = [p for leaf in _reach(fn, receiver, receiver_as).leaves() if (p := _variable_place(leaf))]
        return _unique(found)
    out: list[paths.Place] = []
    for item in flatten(dyn_vars):
        if isinstance(item, str):
            for text in paths.split_paths(item):
                out += _by_path(text, fn, scope, receiver, receiver_as)
        else:
            out += _by_value(item, fn, receiver, receiver_as)
    return _unique(out)


def scope_of(
    fn: Callable[..., Any], namespace: dict[str, Any] | None, receiver: Any = None, receiver_as: str = "self"
) -> paths.Scope:
    """Where the paths of `fn` are looked up."""
    inner = inspect.unwrap(fn)
    if isinstance(inner, types.MethodType):
        receiver = inner.__self__ if receiver is None else receiver
        inner = inner.__func__
    own: dict[str, Any] | None = getattr(inner, "__globals__", None)
    return paths.Scope((namespace or {}) if own is None else own, inner, receiver, receiver_as)


def _reach(fn: Callable[..., Any], receiver: Any, receiver_as: str) -> roots.Reach:
    return roots.reach(fn, receiver=receiver)


def _by_path(
    text: str, fn: Callable[..., Any], scope: paths.Scope, receiver: Any, receiver_as: str
) -> list[paths.Place]:
    if text == "auto":
        arrays = [leaf.place for leaf in _reach(fn, receiver, receiver_as).leaves() if leaf.is_array]
        return [p for p in arrays if p is not None]
    place = paths.resolve(text, scope)
    below = paths.leaves_below(place)
    if not below:
        kind = type(place.get()).__name__
        raise paths.PathError(
            f"nothing in {text!r} can be dynamic: it is a {kind}, which holds no array or number"
        )
    return below


def _by_value(item: Any, fn: Callable[..., Any], receiver: Any, receiver_as: str) -> list[paths.Place]:
    if adapters.is_variable(item):
        return [adapters.place_of(item)]
    reach = _reach(fn, receiver, receiver_as)
    found = [p for root in reach.values() if root.value is item and root.place for p in [root.place]]
    if found:
        return [leaf for p in found[:1] for leaf in paths.leaves_below(p)]
    what = snapshot.short(item)
    raise ValueError(f"{getattr(fn, '__name__', 'the function')} does not read the {what} given in dyn_vars")


def _variable_place(leaf: Any) -> paths.Place | None:
    return leaf.place if leaf.is_variable else None


def _unique(places: Sequence[paths.Place]) -> list[paths.Place]:
    return list({p.path: p for p in places}.values())


class Stateful:
    """One function with its dynamic variables; `call` is what the user gets."""

    def __init__(
        self,
        fn: Callable[..., Any],
        dyn_vars: Any,
        options: JitOptions,
        *,
        namespace: dict[str, Any] | None = None,
        receiver: Any = None,
        receiver_as: str = "self",
    ) -> None:
        self.fn, self.dyn_vars, self.options = fn, dyn_vars, options
        self.namespace, self.receiver, self.receiver_as = namespace, receiver, receiver_as
        self.name = getattr(fn, "__name__", type(fn).__name__)
        self.written: list[int] | None = None  # indices into places, known after the first trace
        self.added: list[paths.Place] = []
        self.places: list[paths.Place] = []
        self.call = self._public()
        self._select()

    # -- the variables

    def _select(self) -> None:
        """Look the variables up anew: at first, and where the structure of a declared object has changed."""
        self.places = select(self.fn, self.dyn_vars, self.namespace, self.receiver, self.receiver_as)
        self.written, self.added = None, []
        self._build()

    def read(self) -> tuple[Any, ...]:
        """Current values of the dynamic variables, in order."""
        return tuple(p.get() for p in self.places)

    def write(self, values: Sequence[Any]) -> None:
        """Put what a call returned back where the function would have put it."""
        targets = [*(self.places[i] for i in self.written or ()), *self.added]
        self._refuse_tracers(targets, values)
        for place, value in zip(targets, values, strict=True):
            place.put(value)

    def _refuse_tracers(self, targets: Sequence[paths.Place], values: Sequence[Any]) -> None:
        from jitmagic.tracing.compat import is_tracer

        before = [p.get() if p.exists() else None for p in targets]
        for place, old, new in zip(targets, before, values, strict=True):
            if is_tracer(new) and not is_tracer(old):
                raise StateError(
                    f"{self.name} writes {place.path}, but it was called inside a transformation that does not "
                    f"know this variable: its new value would be lost. compile the outer function with "
                    f"jitmagic.jit(..., dyn_vars={place.path!r}) as well, or return the value instead"
                )

    # -- compiling

    def _build(self) -> None:

        count = len(self.places)
        donate = [i for i, p in enumerate(self.places) if p.path in self.options.donate_argnames]
        if self.written is not None:
            self.written = sorted({*self.written, *donate})
        self._donated = donate
        self.traced_fn = codegen.with_state(self.fn, count, self._traced, self.name)
        shifted = self.options.shifted(count, self.fn, donate)
        self.compiled = shifted.jit(self.traced_fn)
        codegen.become(self.call, codegen.generic(self.fn, self._first))

    def _traced(self, state: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What jax traces: `fn` with the traced state in place, then the state as it was."""
        with _tracing:
            before = snapshot.take(_reach(self.fn, self.receiver, self.receiver_as))
            old, bindings = self.read(), self._bindings()
            try:
                for place, value in zip(self.places, state, strict=True):
                    place.put(value)
                out = self.fn(*args, **kwargs)
                return (out, *self._outcome(state))
            except BaseException:
                before.restore()
                raise
            finally:
                for place in self.added:
                    if place.exists():
                        place.delete()
                for place, value in bindings:  # a container bound anew: first the old one, then what it held
                    if place.get() is not value:
                        place.put(value)
                for place, value in zip(self.places, old, strict=True):
                    place.put(value)
                before.restore(only_tracers=True)

    def _bindings(self) -> list[tuple[paths.Place, Any]]:
        """The containers that the variables are found through, outermost first."""
        scope = scope_of(self.fn, self.namespace, self.receiver, self.receiver_as)
        out: dict[str, tuple[paths.Place, Any]] = {}
        for place in self.places:
            try:
                path = paths.parse(place.path)
                for k in range(len(path.steps)):
                    prefix = str(paths.Path(path.root, path.steps[:k]))
                    if prefix not in out and prefix != self.receiver_as:
                        holder = paths.resolve(prefix, scope)
                        out[prefix] = holder, holder.get()
            except ValueError:
                continue  # found by identity, not by a path: it can't be bound anew
        return list(out.values())

    def _outcome(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """The new values of what this trace wrote. Raises _MoreWrites where the wrapper knows fewer."""
        now = self.read()
        changed = {i for i, (old, new) in enumerate(zip(state, now, strict=True)) if new is not old}
        changed |= set(self._donated)
        added = self._new_places()
        if self.written is None:
            self.written, self.added = sorted(changed), added
        elif not changed <= set(self.written) or len(added) > len(self.added):
            self.written = sorted(changed | set(self.written))
            self.added = added
            raise _MoreWrites
        return (*(now[i] for i in self.written), *(p.get() for p in self.added))

    def _new_places(self) -> list[paths.Place]:
        """Places that this trace added to the declared objects."""
        known = {p.path for p in self.places}
        try:
            now = select(self.fn, self.dyn_vars, self.namespace, self.receiver, self.receiver_as)
        except ValueError:
            return []
        return [p for p in now if p.path not in known]

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        """A call before the wrapper is known, or after it turned out to be too narrow."""
        for _ in range(10):
            try:
                out, *new = self.compiled(*self.read(), *args, **kwargs)
                break
            except _MoreWrites:
                self._build()
        else:
            raise StateError(f"{self.name} writes other variables at every trace")
        self.write(new)
        if self.added:
            self._select()
        else:
            self._specialise()
        return out

    def _specialise(self) -> None:
        """Generate the wrapper for what is known to be read and written now."""
        body = codegen.specialised(self)
        if body is not None:
            codegen.become(self.call, body)

    # -- what the user sees

    def _public(self) -> Any:
        call = codegen.generic(self.fn, self._first)
        functools.update_wrapper(call, self.fn, updated=())
        call.lower = lambda *a, **k: self.compiled.lower(*self.read(), *a, **k)  # type: ignore[attr-defined]
        call.trace = lambda *a, **k: self.compiled.trace(*self.read(), *a, **k)  # type: ignore[attr-defined]
        call.eval_shape = lambda *a, **k: self.compiled.eval_shape(*self.read(), *a, **k)[0]  # type: ignore
        call.clear_cache = lambda: self.compiled.clear_cache()  # type: ignore[attr-defined]
        call._cache_size = lambda: self.compiled._cache_size()  # type: ignore[attr-defined]
        call.__jitmagic__ = self  # type: ignore[attr-defined]
        return call


class StatefulMethod:
    """A method whose receiver holds the dynamic variables: one compiled function per instance."""

    def __init__(
        self,
        fn: Callable[..., Any],
        dyn_vars: Any,
        options: JitOptions,
        receiver_as: str,
        namespace: dict[str, Any] | None = None,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn, self.dyn_vars, self.options = fn, dyn_vars, options
        self.receiver_as, self.namespace = receiver_as, namespace
        self._instances: dict[int, tuple[Any, Any]] = {}

    def of(self, receiver: Any) -> Any:
        """The compiled function of one instance, without its first parameter."""
        held = self._instances.get(id(receiver))
        if held is not None and held[0]() is receiver:
            return held[1]
        bound = types.MethodType(self.fn, receiver)
        options = self._without_receiver()
        if (
            select(bound, self.dyn_vars, self.namespace, receiver, self.receiver_as)
            or self.dyn_vars is not None
        ):
            made = Stateful(
                bound, self.dyn_vars, options,
                namespace=self.namespace, receiver=receiver, receiver_as=self.receiver_as,
            ).call  # fmt: skip
        else:
            made = options.jit(bound)
        self._instances[id(receiver)] = (self._reference(receiver), made)
        return made

    def _reference(self, receiver: Any) -> Callable[[], Any]:
        key = id(receiver)
        try:
            return weakref.ref(receiver, lambda _: self._instances.pop(key, None))
        except TypeError:  # slots without __weakref__
            return lambda: receiver

    def _without_receiver(self) -> JitOptions:
        from dataclasses import replace

        def less(numbers: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(n - 1 if n > 0 else n for n in numbers if n != 0)

        o = self.options
        return replace(
            o,
            static_argnums=less(o.static_argnums),
            donate_argnums=less(o.donate_argnums),
            static_argnames=tuple(n for n in o.static_argnames if n != self.receiver_as),
        )

    def __get__(self, receiver: Any, owner: type | None = None) -> Any:
        return self if receiver is None else self.of(receiver)

    def __call__(self, receiver: Any, *args: Any, **kwargs: Any) -> Any:
        return self.of(receiver)(*args, **kwargs)

    def lower(self, receiver: Any, *args: Any, **kwargs: Any) -> Any:
        """As `jax.jit(...).lower`, for one instance."""
        return self.of(receiver).lower(*args, **kwargs)

    def trace(self, receiver: Any, *args: Any, **kwargs: Any) -> Any:
        """As `jax.jit(...).trace`, for one instance."""
        return self.of(receiver).trace(*args, **kwargs)

    def eval_shape(self, receiver: Any, *args: Any, **kwargs: Any) -> Any:
        """As `jax.jit(...).eval_shape`, for one instance."""
        return self.of(receiver).eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forget what was compiled, for every instance."""
        self._instances.clear()


def warn_stale(path: str, before: str, after: str, name: str) -> None:
    """Tell once that a frozen value has changed."""
    warnings.warn(
        f"{name} was compiled with {path} = {before}; it is {after} now, and {name} goes on with the old value. "
        f"declare it dynamic (dyn_vars={path!r}) or pass it as an argument",
        StaleConstantWarning,
        stacklevel=3,
    )
