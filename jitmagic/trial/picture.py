"""What a notebook holds, as plain data that two runs can be compared by: values, containers, objects, and all that
they lead to. No code of the user's runs for it."""

from __future__ import annotations

import collections
import functools
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jitmagic.state import adapters, iterators, values
from jitmagic.state.values import is_a, on_host
from jitmagic.units import counted, short_dtype

MOST_NODES = 20_000
MOST_BYTES = 64 << 20
"""Of NumPy arrays that are copied; of larger ones every so many elements are."""

_BOOKKEEPING = frozenset(
    "_id _state _trace_state _object__state _pytree__state _pytree__nodes _source_info _name _parent_module "
    "_parent_ref _scope _var_metadata _flax_frozen _module__unique_id _unique_id _implicit_vars _been_writen _level "
    "_sequence_counter name".split()
)
"""Attributes that frameworks keep for themselves, and that differ from run to run."""


@dataclass(eq=False)
class Node:
    """One value. `kind` is `number`, `array`, `text`, `sequence`, `set`, `map`, `object`, `class`, `function`,
    `tracer`, `opaque`; `parts` are what it leads to, by the step that names them in a path."""

    kind: str
    label: str = ""
    value: Any = None
    parts: dict[str, Node] = field(default_factory=dict)


@dataclass(frozen=True)
class Gap:
    """A place where two pictures differ: its path, and both values in words."""

    path: str
    before: str
    after: str
    structure: bool = False
    """More than another number: a length, a key, a kind of value."""

    def __str__(self) -> str:
        return f"{self.path}: {self.before} became {self.after}"


class Painter:
    """Draws values. What is met twice is one node; arrays of jax are kept, those of NumPy copied."""

    def __init__(self) -> None:
        self._seen: dict[int, Node] = {}
        self._kept: list[object] = []
        self._bytes = 0
        self.tracers = 0
        """How many traced values were met."""

    def draw(self, value: object) -> Node:
        """The picture of a value."""
        if type(value) in (bool, int, float, complex):
            return Node("number", type(value).__name__, value)
        if value is None or value is Ellipsis or is_a(value, str | bytes):
            return Node("text", type(value).__name__, value)
        if id(value) in self._seen:
            return self._seen[id(value)]
        self._kept.append(value)  # no other object may get its identity
        node = self._seen[id(value)] = Node("opaque", _type_name(value))
        if len(self._seen) <= MOST_NODES:
            try:
                self._fill(node, value)
            except Exception:  # a deleted array, an object in the making
                node.kind, node.parts = "opaque", {}
        return node

    def names(self, namespace: Mapping[str, object]) -> dict[str, Node]:
        """Pictures of what the names of a notebook stand for, and of the random states that no name holds."""
        held = list(namespace.items())
        drawn = {k: self.draw(v) for k, v in held if k not in _SHELL and not _HISTORY.fullmatch(k)}
        for name, state in (*iterators.global_random_states(), *adapters.default_random_states()):
            drawn[f"<{name}>"] = self.draw(state)
        return drawn

    def _fill(self, node: Node, value: object) -> None:
        if values.is_tracer(value):
            node.kind = "tracer"
            self.tracers += 1
        elif values.is_array(value):
            self._array(node, value)
        elif is_a(value, np.ndarray):
            node.kind = "sequence"
            node.parts = {f"[{i}]": self.draw(v) for i, v in enumerate(value.ravel().tolist())}
        elif (adapter := adapters.adapter_for(value)) is not None:
            held = self.draw(adapter.read(value))
            node.kind, node.label, node.value, node.parts = held.kind, held.label, held.value, held.parts
        elif (state := iterators.random_state(value)) is not None:
            node.kind, node.parts = "object", {".state": self.draw(state)}
        elif is_a(value, types.ModuleType):
            self._module(node, value)
        elif is_a(value, type):
            self._class(node, value)
        elif is_a(value, types.MethodType):
            node.kind, node.label, node.parts = "object", "method", {".self": self.draw(value.__self__)}
        elif is_a(value, types.FunctionType):
            self._function(node, value)
        elif is_a(value, functools.partial):
            node.kind, node.label = "object", "partial"
            node.parts = {f".{k}": self.draw(getattr(value, k)) for k in ("func", "args", "keywords")}
        elif iterators.is_iterator(value):
            self._iterator(node, value)
        elif not _is_library(value):
            self._held(node, value)
        elif (inner := _wrapped(value)) is not None:
            other = self.draw(inner)
            node.kind, node.label, node.value, node.parts = other.kind, other.label, other.value, other.parts

    def _array(self, node: Node, array: Any) -> None:
        import jax

        node.kind, shape = "array", tuple(array.shape)
        node.label = f"{short_dtype(array.dtype)}[{','.join(map(str, shape))}]"
        if getattr(array, "is_deleted", bool)():
            node.kind, node.label = "opaque", "a deleted array"
        elif is_a(array, np.ndarray | np.generic):
            self._bytes += array.nbytes
            node.value = np.array(array) if self._bytes <= MOST_BYTES else _sample(array)
        elif jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            node.value = jax.random.key_data(array)
        else:
            node.value = array

    def _module(self, node: Node, module: types.ModuleType) -> None:
        node.label = module.__name__
        if values.is_user_module(module):
            own = {k: v for k, v in vars(module).items() if not k.startswith("__") and not callable(v)}
            node.kind, node.parts = "object", {f".{k}": self.draw(v) for k, v in own.items()}

    def _class(self, node: Node, cls: type) -> None:
        if values.is_user_class(cls):
            node.kind, node.label = "class", cls.__qualname__
            node.parts = {
                f".{k}": self.draw(v) for k, v in values.class_dict(cls).items()
                if not k.startswith(("__", "_abc")) and not is_a(v, _DESCRIPTORS)
            }  # fmt: skip

    def _function(self, node: Node, fn: types.FunctionType) -> None:
        if not values.is_user_file(fn.__code__.co_filename):
            return
        node.kind, node.label = "function", fn.__name__
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            node.parts |= {f".<closure>.{name}": self.draw(v) for v in values.cell_contents(cell)}
        own = {k: v for k, v in vars(fn).items() if not k.startswith("_")}
        node.parts |= {f".{k}": self.draw(v) for k, v in own.items()}

    def _iterator(self, node: Node, value: object) -> None:
        node.kind, node.label = "object", type(value).__name__
        if is_a(value, types.GeneratorType):
            frame = value.gi_frame
            node.parts = {".line": self.draw(frame and frame.f_lineno - value.gi_code.co_firstlineno)}
        elif (copied := iterators.copied(value)) is not None:
            node.parts = {".state": self.draw(iterators.reduced(copied)[1:])}

    def _held(self, node: Node, value: Any) -> None:
        node.kind, node.label = "object", type(value).__qualname__
        if is_a(value, dict):
            node.kind = "map" if type(value) in _MAPS else "object"
            node.parts = {f"[{_key(k)}]": self.draw(v) for k, v in list(dict.items(value))}
        elif is_a(value, set | frozenset):
            node.kind, node.value = "set", sorted(map(_key, list(value)))
        elif is_a(value, list | tuple | collections.deque):
            node.kind = "object" if values.fields_of(value) else "sequence"
            node.parts = {values.step_text(k, key): self.draw(v) for k, key, v in values.children(value)}
        if not is_a(value, tuple) and values.is_walkable(value):
            framework = bool(adapters.framework_classes(type(value))) or adapters.is_module_class(type(value))
            held = {k: v for k, v in values.raw_attributes(value).items() if isinstance(k, str)}
            left_out = {k for k, v in held.items() if k in _BOOKKEEPING or _is_empty_memo(k, v)}
            kept = held.keys() - left_out if framework else held.keys()
            node.parts |= {f".{k}": self.draw(v) for k, v in held.items() if k in kept}


_MAPS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
_SHELL = frozenset(("In", "Out", "get_ipython", "exit", "quit", "open"))
_HISTORY = re.compile(r"_+|_i+|_i?\d+|_[dio]h|_exit_code|__\w+")
"""Names of IPython's own, and of modules."""


def _is_empty_memo(name: str, value: object) -> bool:
    """A place where a framework may keep something later, at the first call say."""
    empty = is_a(value, dict | list | set | collections.deque) and not value
    return name.startswith("_") and (value is None or empty)


def _sample(array: Any) -> np.ndarray:
    """Every so many elements of an array."""
    return np.asarray(array).ravel()[:: array.size // 100_000 + 1].copy()


_DESCRIPTORS = property | types.MemberDescriptorType | types.GetSetDescriptorType


def _is_library(value: object) -> bool:
    known = (dict, list, tuple, set, frozenset, collections.deque)
    return not is_a(value, known) and not values.is_walkable(value)


def _wrapped(value: object) -> object:
    """The user's function in what a library, or a watch of ours, has put around it."""
    inner = (values.own_dict(value) or {}).get("__wrapped__")
    if inner is None and callable(value) and not is_a(value, type):
        inner = getattr(value, "__wrapped__", None)
    return inner


def _key(key: object) -> str:
    plain = key is None or is_a(key, str | int | float | bool | tuple | bytes)
    return repr(key) if plain else _type_name(key)


def _type_name(value: object) -> str:
    cls = type(value)
    return f"{values.module_of(cls)}.{cls.__qualname__}".removeprefix("builtins.").removeprefix("__main__.")


# --- comparing ----------------------------------------------------------------------------------------

_NARROW = {"float16": (2e-2, 2e-3), "bfloat16": (4e-2, 4e-3)}
_CALLABLE = frozenset(("function", "opaque", "class"))


class Differences:
    """Tells where one picture differs from another. `more`: the second may hold more names and attributes, as a
    corrected cell does; `values` False: numbers may differ, shapes and structure may not; `finite`: numbers may differ
    where the first is NaN or infinite."""

    def __init__(self, *, more: bool = False, values: bool = True, finite: bool = False) -> None:
        self.more, self.values, self.finite, self.gaps = more, values, finite, list[Gap]()
        self._seen: set[tuple[int, int]] = set()

    def names(self, a: Mapping[str, Node], b: Mapping[str, Node]) -> list[Gap]:
        """Where two namespaces differ."""
        for name, node in a.items():
            if name not in b:
                if not (self.more and node.kind in _CALLABLE):
                    self._gap(name, said(node), "missing", structure=True)
            elif not (self.more and node.kind in _CALLABLE and b[name].kind in (*_CALLABLE, "object")):
                self.nodes(node, b[name], name)
            elif node.kind == b[name].kind == "class":
                self.nodes(node, b[name], name)
        for name, node in b.items() if not self.more else ():
            if name not in a and node.kind not in _CALLABLE:
                self._gap(name, "missing", said(node), structure=True)
        return self.gaps

    def nodes(self, a: Node, b: Node, path: str) -> list[Gap]:
        """Where two values differ."""
        if (id(a), id(b)) in self._seen or len(self.gaps) > 100:
            return self.gaps
        self._seen.add((id(a), id(b)))
        numbers = ("number", "array")
        if a.kind in numbers and b.kind in numbers:
            self._numbers(a, b, path)
        elif a.kind != b.kind:
            if not {a.kind, b.kind} <= {*_CALLABLE, *(["object"] if self.more else [])}:
                self._gap(path, said(a), said(b), structure=True)
        elif a.kind in ("text", "set"):
            if a.value != b.value:
                self._gap(path, said(a), said(b), structure=a.kind == "set")
        elif a.kind in ("sequence", "map", "object", "class", "function"):
            self._parts(a, b, path)
        return self.gaps

    def _parts(self, a: Node, b: Node, path: str) -> None:
        if a.kind == "sequence" and len(a.parts) != len(b.parts):
            self._gap(path, counted(len(a.parts), "item"), counted(len(b.parts), "item"), structure=True)
        for step, node in a.parts.items():
            if step in b.parts:
                self.nodes(node, b.parts[step], path + step)
            elif a.kind != "sequence" and not (self.more and (node.kind in _CALLABLE or a.kind in _CALLABLE)):
                self._gap(path + step, said(node), "missing", structure=True)
        extra = [s for s in b.parts if s not in a.parts] if a.kind == "map" or not self.more else []
        if extra and a.kind != "sequence" and a.kind not in _CALLABLE:
            self._gap(path + extra[0], "missing", said(b.parts[extra[0]]), structure=True)

    def _numbers(self, a: Node, b: Node, path: str) -> None:
        if isinstance(a.value, int) and isinstance(b.value, int):
            if self.values and a.value != b.value:
                self._gap(path, said(a), said(b))
            return
        x, y = (_plain(n.value) for n in (a, b))
        if self.finite and x.shape == y.shape and x.dtype.kind in "fc":
            y = np.where(np.isfinite(x), y, x)
        if x.shape != y.shape:
            self._gap(path, said(a), said(b), structure=True)
        elif self.values and (at := _first_apart(x, y, {_dtype_of(a.value), _dtype_of(b.value)})) is not None:
            index = f" at [{', '.join(map(str, at))}]" if at else ""
            self._gap(path, _number(x[at]), f"{_number(y[at])}{index}")

    def _gap(self, path: str, before: str, after: str, *, structure: bool = False) -> None:
        self.gaps.append(Gap(path, before, after, structure))


def _dtype_of(value: object) -> str:
    """The type that was computed in: NumPy has no numbers of some, and compares them as others."""
    return str(getattr(value, "dtype", "float64"))


def _plain(value: object) -> np.ndarray:
    array = on_host(value)
    known = array.dtype.kind in "biufcSU" and array.dtype.name in np.sctypeDict
    return array if known else array.astype(np.float32)


_BLOCK = 1 << 18
"""Numbers that are compared at once: what that takes is a small part of a large array."""


def _first_apart(x: np.ndarray, y: np.ndarray, dtypes: set[str]) -> tuple[int, ...] | None:
    """The first index at which two arrays of one shape differ by more than rounding."""
    if _place_of(x) == _place_of(y):
        return None
    exact = x.dtype.kind in "biuSU" and y.dtype.kind in "biuSU"
    relative, absolute = max((_NARROW.get(d, (2e-4, 1e-5)) for d in dtypes), key=lambda t: t[0])
    one, other = x.reshape(-1), y.reshape(-1)
    for start in range(0, x.size, _BLOCK):
        a, b = one[start : start + _BLOCK], other[start : start + _BLOCK]
        with np.errstate(all="ignore"):
            wrong = a != b
            if not exact and np.any(wrong):
                wrong = ~np.isclose(a, b, relative, absolute, equal_nan=True)
        if np.any(wrong):
            return tuple(int(i) for i in np.unravel_index(start + int(np.argmax(wrong)), x.shape))
    return None


def _place_of(array: np.ndarray) -> tuple[object, ...]:
    """Where its numbers are, and how they lie: equal for what is one array."""
    return array.ctypes.data, array.shape, array.strides, array.dtype


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, np.number) and not np.iscomplexobj(value) else str(value)


def said(node: Node) -> str:
    """A value in a few words."""
    if node.kind == "number":
        return f"{node.value:.6g}" if isinstance(node.value, float) else str(node.value)
    if node.kind == "array":
        one = node.value if np.size(node.value) == 1 and "[]" in node.label else None
        return _number(_plain(one)[()]) if one is not None else node.label
    if node.kind == "text":
        return repr(node.value)[:40]
    if node.kind in ("sequence", "map", "set"):
        return f"{node.label} of {len(node.parts) or len(node.value or ())}"
    return {"tracer": "a traced value"}.get(node.kind, node.label or node.kind)


def numbers(node: Node, seen: frozenset[int] = frozenset()) -> Iterator[np.ndarray]:
    """The numbers and arrays of a value, in order."""
    if id(node) in seen:
        return
    if node.kind in ("number", "array"):
        array = _plain(node.value)
        if array.dtype.kind not in "SU":
            yield array
    for part in node.parts.values() if node.kind in ("sequence", "map", "object") else ():
        yield from numbers(part, seen | {id(node)})
