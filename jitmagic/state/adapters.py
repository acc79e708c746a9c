"""Variables of frameworks: one small adapter for each, duck-typed, only for what is imported already.

Values are read from the raw slot first: the public `value` of some frameworks counts as a read in a trace of
their own, and flax refuses a write of it inside one of jax.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jitmagic import patches
from jitmagic.state.values import MISSING, class_dict, module_of, mro, own_dict, raw_get

_PLAIN = {"Array", "BaseArray", "ndarray", "JaxArray", "Quantity", "ShardedArray"}
FRAMEWORKS = ("brainpy", "brainstate", "flax", "brainunit")
INTERNAL = ("_pytree__", "_object__")
"""How attributes begin in which flax keeps track of a module's other attributes."""
OWN_NAME = "_name"
"""Where an object of BrainPy has a name that no other has."""
TRACE_STATES = ("_pytree__state", "_object__state")
"""Those in which it notes the trace that a module belongs to."""
OWN_JITS = ("brainpy.math.jit", "brainstate.transform.jit")
"""What compiles as `jax.jit` does, and follows the variables of a framework."""
OWN_LOOPS = ("brainpy.math", "brainstate.transform")
"""Where the `for_loop(body, xs)` and `scan(body, start, xs)` are that follow the variables of a framework."""
VARIABLES = {"brainpy.math": "Variable", "brainstate": "State", "flax.nnx": "Variable"}
"""What holds state in each framework; its content is `.value`."""
FOLLOWING_ARGUMENTS = ("flax.nnx",)
"""Where the `jit` is that follows the variables of its arguments."""
DECLARED_STATIC = {
    "equinox.Module": ("equinox.field", "static=True"),
    "flax.struct.dataclass": ("flax.struct.field", "pytree_node=False"),
}
"""By what makes a class a pytree: the function that declares a field of it, and what makes the field static."""
OWN_JIT = {"equinox": "equinox.filter_jit"}
"""The `jit` of a framework that takes objects as they are, settings and all."""
TAKES_CONVERTER = frozenset(("equinox.Module",))
"""Classes whose fields take a `converter`."""
_known: weakref.WeakKeyDictionary[type, tuple[type, ...]] = weakref.WeakKeyDictionary()
_RAW = ("raw_value", "_raw_value", "_value")
WRITTEN = "_been_writen"
"""Where a variable of brainstate's notes that it was written."""
_open: threading.local = threading.local()


@dataclass(frozen=True)
class Adapter:
    """How variables of one framework are read and written."""

    name: str
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    is_rng: bool = False
    """Its variables are random states: what a function draws from them it also advances."""
    is_state: bool = True
    """False for a mere wrapper around an array, which nobody declared to be a variable."""
    openly: bool = False
    """Inside a trace its framework has to see reads and writes, through the public `value`."""

    def slot(self, obj: object) -> str | None:
        """Name of the attribute that holds the value of `obj` as it is, or None."""
        return raw_slot(obj) if self.read is read_value else None


def adapter_for(obj: object) -> Adapter | None:
    """The adapter of a framework's variable (or array wrapper), or None."""
    classes = framework_classes(type(obj))
    if not classes:
        return _REF if is_ref(obj) else None
    for framework in FRAMEWORKS:
        own = tuple(c for c in classes if module_of(c).split(".")[0] == framework)
        if own and _has_value(obj, own):
            names = [c.__name__ for c in own]
            rng = any(n.startswith(("Random", "Rng")) for n in names)
            is_state = any(n not in _PLAIN for n in names)
            return _ADAPTERS[framework, "array" if not is_state else "random state" if rng else "variable"]
    return None


def is_variable(obj: object) -> bool:
    """Is this a framework's variable: BrainPy `Variable`, brainstate `State`, `nnx.Variable`, `jax.Ref`?"""
    found = adapter_for(obj)
    return found is not None and found.is_state


def any_installed() -> bool:
    """Is a framework with variables of its own imported?"""
    return any(name in sys.modules for name in FRAMEWORKS)


def raw_slot(obj: object) -> str | None:
    """The attribute behind the public `value` of a variable: reading and assigning it is all there is to it."""
    for name in _RAW:
        found = raw_get(obj, name)
        if found is not MISSING and found is not None:
            return name if getattr(obj, name, None) is found else None
    return None


def is_module_class(cls: type) -> bool:
    """A class of modules of an imported framework, whose objects may make variables when first called."""
    return any(c is not cls and module_of(c).split(".")[0] in (*FRAMEWORKS, "spark") for c in mro(cls))


def is_of_framework(value: object) -> bool:
    """An object of a class of a framework's own: a layer, a cell."""
    return module_of(type(value)).split(".")[0] in (*FRAMEWORKS, "equinox", "spark")


def gives_away(value: object, donated: bool) -> bool:
    """A compiled function that donates arguments (`donated`: as jax tells of it), or what holds one: the functions that
    equinox compiles always have one to donate, which is empty where its wrapper does not say otherwise."""
    if type(value).__name__ == "_JitWrapper" and module_of(type(value)) == "equinox._jit":
        return bool(value.donate_first or value.donate_rest)  # type: ignore[attr-defined]
    return donated and getattr(value, "__module__", "") != "equinox._jit"


def keeps_numbers(cls: type) -> bool:
    """A class of modules in which everything that is no array is a setting."""
    return any(module_of(c).split(".")[0] == "equinox" for c in mro(cls))


def is_stateful_class(cls: type) -> bool:
    """A class whose objects jax does not take as arguments, and which may hold variables of BrainPy or brainstate."""
    return any(module_of(c).split(".")[0] in ("brainpy", "brainstate") for c in mro(cls))


def default_random_states() -> Iterator[tuple[str, object]]:
    """The random states that functions of imported frameworks draw from where they are given none, by path."""
    seen: set[int] = set()
    for name in ("brainpy.math.random", "brainstate.random"):
        state = default_random_state(sys.modules.get(name))
        if state is not None and id(state) not in seen:
            seen.add(id(state))
            yield f"{name}.DEFAULT", state


def environments() -> Iterator[tuple[str, Any]]:
    """Where functions of imported frameworks find what they share (the time step, the mode, what `bp.share` was given),
    by path: objects with `settings` and `functions`, and with `contexts`, the values that `with` has set on top."""
    for path, module, name in (
        ("brainstate.environ", "brainstate.environ", "_ENV_STATE"),
        ("bp.share", "brainpy.math.defaults", "env"),
    ):
        found = getattr(sys.modules.get(module), name, None)
        if all(hasattr(found, kept) for kept in ("settings", "functions", "contexts")):
            yield path, found


def default_random_state(module: object) -> object:
    """The random state that the functions of a framework's `random` module draw from, or None."""
    if not is_framework(module):
        return None
    state = getattr(module, "DEFAULT", None)
    return state if state is not None and is_variable(state) else None


def random_state_of(function: object) -> tuple[str, object] | None:
    """Path and random state that a function of a framework's `random` module draws from."""
    home = str(getattr(function, "__module__", "")).partition("._")[0]
    state = default_random_state(sys.modules.get(home))
    return None if state is None else (f"{home}.DEFAULT", state)


def is_framework(module: object) -> bool:
    """A module of a framework with variables of its own."""
    return str(getattr(module, "__name__", "")).partition(".")[0] in FRAMEWORKS


def trace_holders(obj: object) -> Iterator[Any]:
    """The objects that keep the trace in which a framework lets `obj` be changed."""
    if raw_get(obj, "_trace_state") is not MISSING:
        yield obj
    state = raw_get(obj, "_pytree__state")
    if state is not MISSING and raw_get(state, "_trace_state") is not MISSING:
        yield state


def of_this_trace(obj: object) -> None:
    """Let a framework's object be changed in the trace that is under way now (or outside all traces)."""
    for holder in trace_holders(obj):
        object.__setattr__(holder, "_trace_state", type(holder._trace_state)())


@contextmanager
def entered(objects: Iterable[object]) -> Iterator[None]:
    """While this holds, frameworks take the present trace for the one that their objects belong to."""
    holders = [h for obj in objects for h in trace_holders(obj)]
    before = [h._trace_state for h in holders]
    try:
        for h in holders:
            object.__setattr__(h, "_trace_state", type(h._trace_state)())
        yield
    finally:
        for h, old in zip(holders, before, strict=True):
            object.__setattr__(h, "_trace_state", old)


class _Deaf:
    """Stands in a framework's stack of traces for one that is not to hear of reads and writes."""

    name = None

    def read_its_value(self, state: object) -> None:
        """Nothing is recorded."""

    def write_its_value(self, state: object) -> None:
        """Nothing is recorded."""


@contextmanager
def unheard() -> Iterator[None]:
    """While this holds, traces of brainstate's (and BrainPy's) that are under way do not hear of variables.

    They replace a variable's value at its first read by a traced value of their own, also inside a trace
    that has brought one already. The number of stacks stays: variables know how deep they were made."""
    context = getattr(sys.modules.get("brainstate._state"), "TRACE_CONTEXT", None)
    stack = getattr(context, "state_stack", None)
    if not stack:
        yield
        return
    held = list(stack)
    stack[:] = [_Deaf() for _ in held]
    try:
        yield
    finally:
        stack[:] = held


@contextmanager
def _apart() -> Iterator[None]:
    """What brainstate (and BrainPy) traces inside is not what it remembers for the user's own calls."""
    cache = getattr(sys.modules.get("brainstate.util._cache"), "BoundedCache", None)
    if cache is None:
        yield
        return
    made, put = list[tuple[Any, Any]](), cache.set

    def noted(self: Any, key: object, value: object) -> None:
        put(self, key, value)
        made.append((self, key))

    try:
        with patches.replaced(cache, set=patches.here(noted, put)):
            yield
    finally:
        for holder, key in made:
            holder.pop(key, None)


patches.around_runs.append(_apart)


@contextmanager
def openly() -> Iterator[None]:
    """While this holds, variables are written through their public `value` where the framework has to see it."""
    _open.on = True
    try:
        yield
    finally:
        _open.on = False


def read_value(obj: Any) -> Any:
    """The value of an object with a `value`, from its raw slot where it has one."""
    for name in _RAW:
        found = raw_get(obj, name)
        if found is not MISSING and found is not None:
            return found
    getter = getattr(obj, "get_value", None)
    return getter() if callable(getter) else obj.value


def write_value(obj: Any, value: Any) -> None:
    """Set the value of an object with a `value`, in its raw slot where it has one."""
    if getattr(_open, "on", False) and (found := adapter_for(obj)) is not None and found.openly:
        obj.value = value
        return
    for name in _RAW:
        if raw_get(obj, name) is not MISSING:
            object.__setattr__(obj, name, value)
            return
    obj.value = value


def framework_classes(cls: type) -> tuple[type, ...]:
    """The classes of known frameworks that `cls` inherits from."""
    found = _known.get(cls)
    if found is None:
        found = _known[cls] = tuple(c for c in mro(cls) if module_of(c).split(".")[0] in FRAMEWORKS)
    return found


def _has_value(obj: object, classes: tuple[type, ...]) -> bool:
    """The framework's own class has a `value`: a property of that name on a user's module makes no variable.

    Nor does a field of a frozen dataclass, which nobody can write (`flax.nnx` notes the settings of modules so)."""
    if getattr(getattr(type(obj), "__dataclass_params__", None), "frozen", False):
        return False
    if any("value" in class_dict(c) for c in classes):
        return True
    return type(obj) in classes and "value" in (own_dict(obj) or {})


def is_ref(obj: object) -> bool:
    """A mutable array of jax's (`jax.Ref`)."""
    cls = type(obj)
    return "jax" in sys.modules and cls.__name__ in ("Ref", "ArrayRef") and module_of(cls).startswith("jax")


def _write_ref(ref: Any, value: Any) -> None:
    ref[...] = value


_REF = Adapter("jax.Ref", lambda ref: ref[...], _write_ref)
_ADAPTERS = {
    (framework, kind): Adapter(
        f"{framework} {kind}".removesuffix(" variable"), read_value, write_value,
        is_rng=kind == "random state", is_state=kind != "array", openly=kind != "array" and framework != "flax",
    )
    for framework in FRAMEWORKS for kind in ("random state", "variable", "array")
}  # fmt: skip
