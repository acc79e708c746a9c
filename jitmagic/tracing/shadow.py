"""The recording run's tracer and trace: every value is concrete and knows which leaves it came from.

A `ShadowTracer` answers `bool`, `int`, `np.asarray` and the like with its value, and the recorder notes who
asked. Questions that library code asks only to probe (`is_concrete`) are answered as jit would.
"""

from __future__ import annotations

import contextlib
import operator
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive

from jitmagic import patches
from jitmagic.evidence import Op
from jitmagic.tracing import compat
from jitmagic.tracing.expressions import called_object
from jitmagic.tracing.locate import is_user_file, namespace_of
from jitmagic.tracing.probing import is_probe
from jitmagic.tracing.recorder import Leaves, Recorder
from jitmagic.tracing.sites import site_of

T = TypeVar("T")
_CONVERSIONS: dict[str, Op] = {
    "__bool__": "bool", "__int__": "int", "__float__": "float", "__complex__": "complex",
    "__index__": "index", "__hex__": "index", "__oct__": "index",
}  # fmt: skip
_SEQUENCES = (list, tuple, str, bytes)
_SILENT = frozenset(("debug_callback", "debug_print"))


def _refusal(op: Op, tracer: Any) -> Exception:
    """The exception that jit's own tracer would raise."""
    errors = jax.errors
    if op == "bool":
        return errors.TracerBoolConversionError(tracer)
    if op == "index":
        return errors.TracerIntegerConversionError(tracer)
    if op == "array":
        return errors.TracerArrayConversionError(tracer)
    return (
        TypeError("unsupported format string") if op == "format" else errors.ConcretizationTypeError(tracer)
    )


class ShadowTracer(compat.TypedTracer):
    """A concrete value `val` with the leaves it depends on."""

    __slots__ = ["val", "leaves", "home"]

    def __init__(self, trace: ShadowTrace, val: Any, leaves: Leaves) -> None:
        super().__init__(trace, jax.typeof(val))
        self.val, self.leaves, self.home = val, leaves, trace

    def _short_repr(self) -> str:
        return f"JitTracer({self.aval})"

    def full_lower(self) -> ShadowTracer:
        return self

    def to_concrete_value(self) -> object:
        return _answer(self.home.recorder, self.val, self.leaves, sys._getframe(1))

    def _ask(self, op: Op, convert: Callable[[Any], T]) -> T:
        if is_probe(sys._getframe(2)):
            raise _refusal(op, self)
        value = convert(self.val)
        self.home.recorder.add(op, self.leaves, value, sys._getframe(2))
        return value

    def __bool__(self) -> bool:
        return self._ask("bool", bool)

    def __int__(self) -> int:
        return self._ask("int", int)

    def __float__(self) -> float:
        return self._ask("float", float)

    def __complex__(self) -> complex:
        return self._ask("complex", complex)

    def __index__(self) -> int:
        return self._ask("index", operator.index)

    def __array__(self, *args: Any, **kwargs: object) -> np.ndarray:
        return self._ask("array", lambda v: np.array(v, *args[:1]))

    def tolist(self) -> object:
        return self._ask("tolist", lambda v: v.tolist())

    def item(self, *args: object) -> object:
        return self._ask("item", lambda v: v.item(*args))

    def __hash__(self) -> int:
        caller = sys._getframe(1)
        if not is_user_file(caller.f_code.co_filename):
            # Library code that asks whether a value may be a key must hear what jit would say.
            raise TypeError("unhashable type: 'DynamicJaxprTracer'")
        return _hash(self, caller)

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        return self._ask("format", lambda v: format(v.item() if v.ndim == 0 else v, spec))

    def __mul__(self, other: object) -> object:
        if isinstance(other, _SEQUENCES):
            return other * self._ask("index", operator.index)
        return super().__mul__(other)

    def __rmul__(self, other: object) -> object:
        if isinstance(other, _SEQUENCES):
            return other * self._ask("index", operator.index)
        return super().__rmul__(other)

    def __setitem__(self, key: object, value: object) -> None:
        if hasattr(self.aval, "inner_aval"):  # a mutable reference: the assignment is allowed
            super().__setitem__(key, value)
            return
        self.home.recorder.add("setitem", self.leaves, None, sys._getframe(1))
        # numpy's meaning, so that the run goes on as the user meant it.
        new = self.at[key].set(value)
        if isinstance(new, ShadowTracer):
            self.val, self.leaves = new.val, self.leaves | new.leaves


_LEAVES = frozenset((ShadowTracer, bool, int, float, complex, np.ndarray))


def _direct(name: str) -> Callable[..., object]:
    """An operator that works on the values themselves where nothing else traces."""
    usual = getattr(ShadowTracer, name)

    def method(self: ShadowTracer, *other: object) -> Any:
        trace = self.home
        if trace.is_direct() and not isinstance(next(iter(other), None), _SEQUENCES):
            return trace.operate(name, self, other)
        return usual(self, *other)

    return method


_TWO = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
_OPERATORS = [*_TWO, *(f"r{n}" for n in _TWO), *"eq ne lt le gt ge neg pos abs invert".split()]
for _name in _OPERATORS:
    setattr(ShadowTracer, f"__{_name}__", _direct(f"__{_name}__"))


def _hash(tracer: ShadowTracer, caller: types.FrameType) -> int:
    recorder = tracer.home.recorder
    found = site_of(caller.f_code, caller.f_lasti)
    called = called_object(found.node, namespace_of(caller)) if found else None
    if compat.is_jitted(called):
        raise TypeError("unhashable type: 'DynamicJaxprTracer'")
    recorder.add("hash", tracer.leaves, None, caller)
    if hasattr(called, "cache_clear"):
        recorder.lru_caches.append(called)
        return id(tracer)
    # Equal to its value, so that a look-up by value finds what it would find without jit.
    return hash(tracer.val.item()) if tracer.val.ndim == 0 else id(tracer)


def _answer(recorder: Recorder, value: Any, leaves: Leaves, frame: types.FrameType | None) -> object:
    """What `to_concrete_value` says: the value, recorded, or None where jit's answer matters more."""
    while frame is not None and frame.f_code.co_name == "to_concrete_value":
        frame = frame.f_back  # tracers of grad hand the question on to what they wrap
    if frame is None:
        return None
    asked = frame.f_code.co_name
    if asked == "is_concrete":
        return _probe(recorder, value, leaves, frame.f_back)
    if asked not in _CONVERSIONS and asked != "concrete_or_error":
        return (
            None  # jax asks what it can do better with a value (`device_put`, reducers): it goes on without
        )
    if is_probe(frame):
        return None
    context = str(frame.f_locals.get("context", "") or "") if asked == "concrete_or_error" else ""
    if context and np.ndim(value) == 0:
        context += " shape int32[]"  # as jax's own message has it: a scalar is a size
    recorder.add(_CONVERSIONS.get(asked, "concrete"), leaves, value, frame, context)
    return np.asarray(value)


def _probe(recorder: Recorder, value: object, leaves: Leaves, asker: types.FrameType | None) -> object:
    name = asker.f_code.co_name if asker is not None else ""
    if name in _CONVERSIONS:
        return np.asarray(value)  # the conversion asks again, and is recorded then
    if name.endswith("expand_bool_indices"):
        recorder.add("boolean-mask", leaves, None, asker)
        return np.asarray(value)
    if name == "_is_slice_element_none_or_constant_or_symbolic":
        return np.asarray(value)  # `__index__` of the bound is recorded next
    if recorder.inside and name in ("cond", "switch", "_cond", "_switch_internal", "while_loop", "fori_loop"):
        return np.asarray(value)
    return None


OFTEN = 64
"""Calls of one program from which on a compilation of its own is cheaper than jax's way of binding it."""


@dataclass
class _Program:
    closed: object
    """Kept so that its id stays its own."""
    calls: int = 0
    run: Callable[..., list[Any]] | None = None


class ShadowTrace(compat.Trace):  # type: ignore[misc, valid-type]
    """Binds every primitive on concrete values under the parent trace and joins the leaves."""

    def __init__(self, recorder: Recorder, constants: Mapping[int, str]) -> None:
        super().__init__()
        self.recorder, self.constants = recorder, constants
        self.parent = compat.current_trace()
        self.programs: dict[int, _Program] = {}
        self.library: dict[int, bool] = {}
        """Whether a function is no code of the user's, by the identity of its code."""

    def unwrap(self, value: object) -> tuple[Any, Leaves]:
        if isinstance(value, ShadowTracer) and value.home is self:
            return value.val, value.leaves
        name = self.constants.get(id(value))
        return value, frozenset((name,)) if name is not None else frozenset()

    def wrap(self, value: object, leaves: Leaves) -> object:
        return ShadowTracer(self, value, leaves)

    def stage_value(self, value: object) -> object:
        if isinstance(value, ShadowTracer):
            return value
        raw, leaves = self.unwrap(value)
        with compat.set_current_trace(self.parent):
            return self.wrap(jnp.asarray(raw), leaves)

    def is_direct(self) -> bool:
        """Only this run traces at the moment: no grad or vmap inside it."""
        return compat.current_trace() is self

    def operate(self, name: str, tracer: ShadowTracer, others: tuple[object, ...]) -> object:
        """An operator on the values themselves: jax's arrays do it faster than tracers can."""
        self.recorder.tick()
        value, leaves = tracer.val, tracer.leaves
        given = []
        for other in others:
            raw, own = self.unwrap(other)
            given.append(raw)
            leaves = leaves | own if own else leaves
        with compat.set_current_trace(self.parent):
            if self.recorder.inside:
                with jax.disable_jit(False):  # an operator of jax's asks nothing
                    out = getattr(value, name)(*given)
            else:
                out = getattr(value, name)(*given)
        return out if out is NotImplemented else self.wrap(out, leaves)

    def call(self, jitted: Callable[..., object], fun: Any, args: Sequence[object], kwargs: object) -> Any:
        """A call of a library's compiled function on the values themselves."""
        if not self.is_direct() or not self._is_library(fun.__code__):
            return NotImplemented
        leaves: Leaves = frozenset()

        def unwrapped(value: object) -> object:
            nonlocal leaves
            raw, own = self.unwrap(value)
            leaves = leaves | own if own else leaves
            return raw

        if not kwargs and all(type(a) in _LEAVES for a in args):  # no tree to take apart
            plain, named = [unwrapped(a) for a in args], {}
        else:
            plain, named = jax.tree.map(unwrapped, (args, kwargs))
        if not leaves:
            return NotImplemented
        self.recorder.tick()
        try:
            with compat.set_current_trace(self.parent):
                out = jitted(*plain, **named)
        except Exception:  # the long way raises it as a trace would
            return NotImplemented
        if isinstance(out, jax.Array):
            return self.wrap(out, leaves)
        return jax.tree.map(lambda value: self.wrap(value, leaves), out)

    def _is_library(self, code: types.CodeType) -> bool:
        if id(code) not in self.library:
            self.library[id(code)] = not is_user_file(code.co_filename)
        return self.library[id(code)]

    def process_primitive(
        self, primitive: Primitive, tracers: Sequence[object], params: dict[str, Any], /
    ) -> object:
        self.recorder.tick()
        if primitive.name in _SILENT:
            return []
        if primitive.name in ("jit", "pjit") and "jaxpr" in params:
            if is_user_file(compat.traced_file(params["jaxpr"])):
                with compat.set_current_trace(self):
                    return compat.eval_jaxpr(params["jaxpr"], tracers)
            # A program of jax's own asks nothing: as one operation it costs what it costs without us.
            return self._call(primitive, tracers, params)
        values, leaves = self._taken_apart(tracers)
        with compat.set_current_trace(self.parent):
            if (
                primitive.name == "io_callback"
            ):  # called, it would be seen outside; what it gives is not known
                out = [jnp.zeros(a.shape, a.dtype) for a in params["result_avals"]]
            else:
                out = primitive.bind(*values, **params)
            outs = list(out) if primitive.multiple_results else [out]
        wrapped = [self.wrap(o, leaves) for o in outs]
        return wrapped if primitive.multiple_results else wrapped[0]

    def _call(self, primitive: Primitive, tracers: Sequence[object], params: dict[str, Any]) -> list[Any]:
        """A traced program of a library as one operation; one that comes often is compiled for this run."""
        closed = params["jaxpr"]
        known = self.programs.setdefault(id(closed), _Program(closed))
        known.calls += 1
        if known.calls == OFTEN:
            known.run = jax.jit(compat.program_of(closed))
        values, leaves = self._taken_apart(tracers)
        with compat.set_current_trace(self.parent):
            outs = known.run(*values) if known.run is not None else primitive.bind(*values, **params)
        return [self.wrap(out, leaves) for out in outs]

    def _taken_apart(self, tracers: Sequence[object]) -> tuple[list[Any], Leaves]:
        """The values of several, and all of their leaves."""
        pairs = [self.unwrap(t) for t in tracers]
        return [value for value, _ in pairs], frozenset().union(*(leaves for _, leaves in pairs))

    def process_call(
        self, primitive: object, fun: object, tracers: Sequence[object], params: object, /
    ) -> object:
        with compat.set_current_trace(self):
            return compat.call_wrapped(fun)(*tracers)

    def process_custom_jvp_call(self, primitive: object, fun: object, /, *rest: Any, **_: object) -> object:
        """`rest` are the rules, which a run on values does not need, and the tracers."""
        return self.process_call(primitive, fun, rest[-1], {})

    process_custom_vjp_call = process_custom_jvp_call


# --- tracers of vmap and grad that stand on ours ----------------------------------------------------------


def standing_on(tracer: object) -> tuple[object, Leaves, Recorder] | None:
    """(value, leaves, recorder) of a tracer that stands on a shadow, lane 0 of a vmap; None for others."""
    if isinstance(tracer, ShadowTracer):
        return tracer.val, tracer.leaves, tracer.home.recorder
    if not compat.is_tracer(tracer):
        return None
    inner, axis = compat.primal_of(tracer)
    base = standing_on(inner)
    if base is None:
        return None
    value, leaves, recorder = base
    if isinstance(axis, int) and not isinstance(axis, bool):
        value = np.take(np.asarray(value), 0, axis=axis)
    return value, leaves, recorder


@contextlib.contextmanager
def answering_tracers() -> Iterator[None]:
    """While the block runs, tracers of vmap and grad that stand on shadows answer as shadows do."""
    kind: Any = compat.Tracer
    names = ("to_concrete_value", "__float__", "__complex__", "__array__", "tolist")
    saved = {name: kind.__dict__[name] for name in names if name in kind.__dict__}

    def to_concrete_value(self: object) -> object:
        base = standing_on(self)
        return None if base is None else _answer(base[2], base[0], base[1], sys._getframe(1))

    def asking(name: str, op: Op, convert: Callable[[object], object]) -> Callable[..., object]:
        original = saved[name]

        def method(self: object, *args: object, **kwargs: object) -> Any:
            base = standing_on(self)
            if base is None:
                return original(self, *args, **kwargs)
            if is_probe(sys._getframe(1)):
                return original(self, *args, **kwargs)
            value = convert(np.asarray(base[0]))
            base[2].add(op, base[1], value, sys._getframe(1))
            return value

        return method

    methods: dict[str, Callable[..., object]] = {"to_concrete_value": to_concrete_value}
    converters: dict[str, tuple[Op, Callable[[Any], Any]]] = {
        "__float__": ("float", float), "__complex__": ("complex", complex),
        "__array__": ("array", np.asarray), "tolist": ("tolist", lambda v: v.tolist()),
    }  # fmt: skip
    for name, (op, convert) in converters.items():
        if name in saved:
            methods[name] = asking(name, op, convert)
    with patches.replaced(kind, **{n: f for n, f in methods.items() if n in saved}):
        yield
