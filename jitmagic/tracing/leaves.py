"""The leaves of a call's arguments, by the names that the user knows them by."""

from __future__ import annotations

import dataclasses
import dis
import enum
import inspect
import re
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np

from jitmagic import raw
from jitmagic.evidence import Leaf
from jitmagic.options import JitOptions, argument_names, parameters_of
from jitmagic.raw import is_a
from jitmagic.tracing import compat, trees
from jitmagic.tracing.locate import is_user_file

_Kind = inspect.Parameter
_NO_SETTINGS = ("builtins", "numpy", "random", "jax", "jaxlib", "functools")
"""Modules whose objects are no settings, whatever they hold."""
_STORES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "STORE_DEREF", "STORE_SLICE", "DELETE_")
_CHANGES = frozenset(
    "print open write next append extend update add insert pop remove discard clear setattr".split()
)
_restless: weakref.WeakKeyDictionary[type, dict[str, bool]] = weakref.WeakKeyDictionary()


def is_array(value: object) -> bool:
    """What a filtering jit traces: arrays of jax and numpy."""
    return isinstance(value, jax.Array) or (
        isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "OUSMmV"
    )


def bound_arguments(fn: Callable[..., Any], args: Any, kwargs: Any) -> list[tuple[str, str, object]]:
    """(parameter, path, value) of each argument as given; `args[i]` where there is no signature to bind."""
    bound = _bound(fn, args, kwargs)
    if bound is None:
        named = [(f"args[{i}]", f"args[{i}]", v) for i, v in enumerate(args)]
        return named + [(k, k, v) for k, v in kwargs.items()]
    out: list[tuple[str, str, object]] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is _Kind.VAR_POSITIONAL:
            out += [(name, f"{name}[{i}]", v) for i, v in enumerate(value)]
        elif kind is _Kind.VAR_KEYWORD:
            out += [(key, key, v) for key, v in value.items()]
        else:
            out.append((name, name, value))
    return out


def _bound(
    fn: Callable[..., object], args: Sequence[object], kwargs: dict[str, object]
) -> inspect.BoundArguments | None:
    try:
        return inspect.signature(fn).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None


def by_keyword(fn: Callable[..., object], path: str) -> str:
    """`mode` for `options['mode']`, as jax calls what a parameter `**options` took in; other paths as they are."""
    rest = next((p.name for p in parameters_of(fn) or () if p.kind is _Kind.VAR_KEYWORD), None)
    match = re.match(r"(\w+)\['(\w+)'\]", path)
    return match[2] + path[match.end() :] if match and match[1] == rest else path


def map_leaves(
    fn: Callable[..., Any], args: Any, kwargs: Any, change: Callable[[str, object], object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """The same call with each leaf replaced by `change(path, leaf)`."""
    bound = _bound(fn, args, kwargs)
    known = list(bound.signature.parameters.values()) if bound is not None else None

    def changed(path: str, value: object) -> object:
        return jtu.tree_map_with_path(lambda keys, leaf: change(path + keystr(keys), leaf), value)

    new = tuple(
        changed(path, value) for path, value in zip(argument_names(known, len(args)), args, strict=True)
    )
    return new, {key: changed(key, value) for key, value in kwargs.items()}


def named_leaves(fn: Callable[..., object], args: object, kwargs: object) -> list[tuple[str, object]]:
    """(path, leaf) of every leaf of the arguments: `x`, `cfg['deep']`, `args[1]`, `net.w`."""
    return [(path, leaf) for _, path, leaf in _leaves(fn, args, kwargs)]


def ref_paths(fn: Callable[..., object], args: object, kwargs: object) -> set[str]:
    """Paths of the leaves that are mutable arrays of jax's: what is stored in them, the caller sees."""
    return {path for path, leaf in named_leaves(fn, args, kwargs) if compat.is_ref(leaf)}


def _leaves(fn: Callable[..., object], args: object, kwargs: object) -> Iterator[tuple[str, str, object]]:
    for name, path, value in bound_arguments(fn, args, kwargs):
        yield from ((name, *below) for below in leaves_below(path, value))


def leaves_below(path: str, value: object) -> Iterator[tuple[str, Any]]:
    """(path, leaf) of each leaf of a value, which has a path itself."""
    yield from ((path + keystr(keys), leaf) for keys, leaf in trees.with_paths(value))


def keystr(keys: Any) -> str:
    """`['deep'][0].w`, with positions of unnamed children as items."""
    out = ""
    for key in keys:
        if isinstance(key, jtu.DictKey):
            out += f"[{key.key!r}]"
        elif isinstance(key, jtu.SequenceKey):
            out += f"[{key.idx}]"
        elif isinstance(key, jtu.GetAttrKey):
            out += f".{key.name}"
        else:
            out += f"[{getattr(key, 'key', key)!r}]"
    return out


def call_leaves(
    fn: Callable[..., object],
    args: object,
    kwargs: object,
    *,
    static_argnums: Collection[int] = (),
    static_argnames: Collection[str] = (),
    filtering: bool = False,
) -> tuple[Leaf, ...]:
    """The leaves of one call as plain data; a static argument is one leaf, whatever it holds. For a `filtering` jit
    every leaf that is no array is static."""
    static = static_names(fn, static_argnums, static_argnames)
    out: list[Leaf] = []
    for position, (name, path, value) in enumerate(bound_arguments(fn, args, kwargs)):
        if name in static or position in static_argnums and name == path and name.startswith("args["):
            out.append(_leaf(path, name, value, static=True))
            continue
        below = leaves_below(path, value)
        out += [_leaf(p, name, v, static=filtering and not is_array(v)) for p, v in below]
    return tuple(out)


def static_names(fn: Callable[..., object], numbers: Collection[int], names: Collection[str]) -> set[str]:
    """Names of the static parameters, whichever way they were declared."""
    options = JitOptions(static_argnums=tuple(numbers), static_argnames=tuple(names))
    return set(options.static_parameters(fn))


def _leaf(path: str, argument: str, value: Any, *, static: bool = False) -> Leaf:
    kind = type(value).__name__
    hashable = is_hashable(value)
    if is_a(value, jax.Array) or compat.is_tracer(value):
        return Leaf(path, argument, "array", kind, tuple(value.shape), str(value.dtype),
                    bool(getattr(value, "weak_type", False)), "", static, hashable)  # fmt: skip
    if is_a(value, (np.ndarray, np.generic)):
        text = repr(value)[:60] if value.ndim == 0 else ""
        return Leaf(
            path, argument, "numpy", kind, tuple(value.shape), str(value.dtype), False, text, static, hashable
        )
    if is_a(value, (bool, int, float, complex)):
        dtype = str(jax.dtypes.canonicalize_dtype(type(value)))
        return Leaf(path, argument, "scalar", kind, (), dtype, True, repr(value)[:60], static, hashable)
    is_compiled = inspect.getattr_static(type(value), "eval_shape", None) is not None
    return Leaf(
        path,
        argument,
        "other",
        "function" if is_compiled else kind,
        value=_short(value),
        static=static,
        hashable=hashable,
        settles=_settles(value),
        code=_code(value),
    )


def _is_dataclass(cls: type) -> bool:
    return inspect.getattr_static(cls, "__dataclass_fields__", None) is not None


def _settles(value: object) -> bool:
    """An object that gives no data, and holds settings alone, by which it compares; or that holds nothing."""
    kind: Any = type(value)
    held = dict(raw.own_dict(value) or {})
    if _is_dataclass(kind):
        held = {f.name: inspect.getattr_static(value, f.name, None) for f in dataclasses.fields(kind)}
    elif inspect.getattr_static(kind, "__slots__", ()):
        return False
    gives = any(inspect.getattr_static(kind, n, None) for n in ("__iter__", "__next__", "__getitem__"))
    if gives or kind.__module__.partition(".")[0] in _NO_SETTINGS:
        return False
    by_value = kind.__eq__ is not object.__eq__ and kind.__hash__ not in (object.__hash__, None)
    return not held or by_value and all(map(_is_setting, held.values())) and is_hashable(value)


def _is_setting(value: object) -> bool:
    if is_a(value, tuple):
        return all(map(_is_setting, raw.inside(value)))
    return is_a(value, (str, bytes, bool, int, float, complex, type(None), type)) or callable(value)


def _code(value: object) -> int | None:
    """A number for what a Python function does: its instructions, and the names and constants in them."""
    value = value.__func__ if is_a(value, types.MethodType) else value
    return _what_it_does(value.__code__) if is_a(value, types.FunctionType) else None


def _what_it_does(code: types.CodeType) -> int:
    parts = (_what_it_does(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts)
    return hash((code.co_code, code.co_names, *parts))


def _short(value: object) -> str:
    if is_a(value, (str, bytes, enum.Enum)) or value is None:
        return repr(value)[:60]
    if is_a(value, (tuple, list, dict)) and raw.length(value) < 8:
        text = _repr(value)
        restless = any(is_restless(type(v), "__hash__") for v in _items(value))
        if "<function" in text and not restless and is_hashable(value):  # by the hash, as jax does
            return f"{type(value).__name__} with <function …> at {hash(value) & 0xFFFFFFFFFF:#x}"
        return text
    if _is_dataclass(type(value)) and type(value).__eq__ is not object.__eq__:
        return _by_fields(value)
    asked = callable(value) and inspect.getattr_static(type(value), "__getattr__", None) is None
    name = getattr(value, "__qualname__", None) if asked else None
    by_hash = type(value).__hash__ is not object.__hash__ and not is_restless(type(value), "__hash__")
    if not isinstance(name, str) and by_hash and is_hashable(value):  # equal objects are one to jax
        return f"{_repr(value)} of hash {hash(value) & 0xFFFFFFFFFF:#x}"
    return f"{name if isinstance(name, str) else type(value).__name__} at {id(value):#x}"


def _by_fields(value: Any) -> str:
    """`Hyper(lr=0.1)` for an object that is compared by its fields."""
    fields = ((f.name, getattr(value, f.name, None)) for f in dataclasses.fields(type(value)) if f.compare)
    return f"{type(value).__name__}({', '.join(f'{name}={_short_item(v)}' for name, v in fields)})"[:200]


def _short_item(value: object) -> str:
    return repr(value) if isinstance(value, (int, float, complex)) else _short(value)


def _repr(value: object) -> str:
    if any(is_restless(type(v), "__repr__") for v in _items(value)):
        return type(value).__name__
    try:
        return repr(value)[:60]
    except Exception:
        return type(value).__name__


def is_hashable(value: object) -> bool:
    """`hash` works: needed of a static argument. One that does more than tell is not asked."""
    if any(is_restless(type(v), "__hash__") for v in _items(value)):
        return True
    try:
        hash(value)
    except Exception:
        return False
    return True


def is_restless(cls: type, name: str) -> bool:
    """The user's own special method stores something, or calls what may: to ask it would change the program."""
    known = _restless.setdefault(cls, {})
    if name not in known:
        known[name] = False  # while it is looked at: it may call itself
        known[name] = _may_change(inspect.getattr_static(cls, name, None), cls)
    return known[name]


def _may_change(value: object, cls: type, depth: int = 8) -> bool:
    """What the user wrote stores something outside of its local variables, or calls what does."""
    value = getattr(value, "fget", getattr(value, "__func__", value)) if _is_descriptor(value) else value
    if isinstance(value, type) or not callable(value):
        return False
    if not isinstance(value, types.FunctionType):
        call = inspect.getattr_static(type(value), "__call__", None)
        return isinstance(call, types.FunctionType) and _may_change(call, type(value), depth)
    if not is_user_file(value.__code__.co_filename) or not depth:
        return not depth
    cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    inside = {
        **value.__globals__,
        **{n: c.cell_contents for n, c in cells if n != "__class__" and _is_full(c)},
    }
    for code in _codes(value.__code__):
        names = (*code.co_names, *code.co_freevars)
        if not _CHANGES.isdisjoint(names) or any(
            i.opname.startswith(_STORES) for i in dis.get_instructions(code)
        ):
            return True
        called = [inside[n] for n in names if n in inside] + [
            inspect.getattr_static(cls, n, None) for n in names
        ]
        if any(_may_change(v, cls, depth - 1) for v in called if v is not value):
            return True
    return False


def _is_descriptor(value: object) -> bool:
    return isinstance(value, (property, staticmethod, classmethod, types.MethodType))


def _is_full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


def _items(value: object) -> list[object]:
    """It, and what is directly in a small container."""
    return [value, *raw.inside(value)] if is_a(value, (tuple, list, dict)) else [value]


def signature_key(
    fn: Callable[..., object],
    args: object,
    kwargs: object,
    *,
    static_argnums: Collection[int] = (),
    static_argnames: Collection[str] = (),
    filtering: bool = False,
) -> Any:
    """A hashable key that changes when `jax.jit` would trace anew: shapes, dtypes, weak types, static values
    and the structure of the arguments."""
    leaves = call_leaves(
        fn, args, kwargs, static_argnums=static_argnums, static_argnames=static_argnames, filtering=filtering
    )
    structure = trees.structure((args, kwargs), is_leaf=lambda v: v is None)
    parts = tuple((x.path, x.shape, x.dtype, x.weak_type, x.value if x.static or x.kind == "other" else "")
                  for x in leaves)  # fmt: skip
    return str(structure), parts
