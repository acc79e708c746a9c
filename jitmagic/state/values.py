"""Looking at the user's objects without running their code: kinds, short texts, what lies below a value.

No property, `__getattr__`, `__repr__` or `__eq__` of a user's class is called here. jax is looked at only
where it was imported already.
"""

from __future__ import annotations

import collections
import enum
import functools
import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar

import numpy as np

from jitmagic import raw, units
from jitmagic.raw import class_dict as class_dict
from jitmagic.raw import is_a as is_a
from jitmagic.raw import module_of as module_of
from jitmagic.raw import mro as mro
from jitmagic.raw import own_dict as own_dict
from jitmagic.raw import raw_attributes as raw_attributes
from jitmagic.raw import slots as slots
from jitmagic.tracing.libraries import LIBRARIES, is_library_file

if TYPE_CHECKING:
    import jax


class ArrayLike(Protocol):
    """What an array of numpy or jax tells of itself."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<nothing>", "__slots__": ()})()
"""Stands for a name, attribute or item that is not there."""

T = TypeVar("T")
SCALARS = (bool, int, float, complex, str, bytes, type(None))
LOCK, REENTRANT = type(threading.Lock()), type(threading.RLock())
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
_OPAQUE = frozenset(
    "jitmagic IPython ipykernel traitlets matplotlib jax jaxlib numpy pandas polars threading logging asyncio io "
    "zmq concurrent multiprocessing socket subprocess weakref ast inspect".split()
)
_OPEN = frozenset("types collections functools dataclasses random queue _thread argparse __main__".split())

GENERATED = "<jitmagic>"
"""The file name of wrappers that we generate: what they wrap is the user's."""


def jax_type(name: str) -> type | None:
    """`jax.Array` or `jax.core.Tracer`, say, or None where jax is not imported."""
    owner: Any = sys.modules.get("jax")
    for step in name.split("."):
        owner = getattr(owner, step, None)
    return owner if is_a(owner, type) else None


def is_tracer(value: object) -> bool:
    """Is this a traced value of jax?"""
    tracer = jax_type("core.Tracer")
    return tracer is not None and issubclass(type(value), tracer)


def is_jax_array(value: object) -> TypeGuard[jax.Array]:
    """Is this a `jax.Array` (a tracer is one too)?"""
    array = jax_type("Array")
    if array is None or type(value) in SCALARS:
        return False
    # `isinstance` would also ask the object's own `__class__`; tracers are no subclass of `jax.Array`.
    return issubclass(type(value), array) or is_tracer(value)


def is_pytree_leaf(value: object) -> bool:
    """Does jax take this as it is, not apart into children?"""
    jax = sys.modules.get("jax")
    return jax is None or bool(jax.tree_util.all_leaves([value]))


def reference(value: object, gone: Callable[[object], object] | None = None) -> Callable[[], object]:
    """Gives the value as long as it lives, without keeping it alive where Python can do that."""
    try:
        return weakref.ref(value, gone)
    except TypeError:  # slots without __weakref__
        return lambda: value


def is_array(value: object) -> TypeGuard[ArrayLike]:
    """A jax array, a tracer, or a numpy array or scalar of numbers."""
    if is_a(value, np.ndarray) or is_a(value, np.generic):
        return value.dtype.kind in "biufcV" and value.dtype.names is None
    return is_jax_array(value)


def on_host(value: Any) -> np.ndarray:
    """An array as one of NumPy's. Raises what its computation ended with: jaxlib ends the whole process where NumPy
    asks for the memory of an array that could not be computed."""
    if is_jax_array(value) and not is_tracer(value):
        value.block_until_ready()
    return np.asarray(value)


def is_number(value: object) -> bool:
    """An array, or a Python number (bools are numbers too)."""
    return type(value) in (bool, int, float, complex) or is_array(value)


def is_function(value: object) -> bool:
    """A function, also in a compiled or watched form, or one of a library's own kind."""
    if not callable(value) or is_a(value, type | types.MethodType):
        return False
    named = is_a(value, FUNCTIONS) or "__name__" in (own_dict(value) or ())
    return named or class_attribute(type(value), "__name__") is not None


def is_leaf(value: object) -> bool:
    """Has this nothing below it that a path could name?"""
    return is_a(value, SCALARS) or is_array(value) or is_a(value, np.ndarray)


def is_user_file(file: str) -> bool:
    """Is this source file the user's own: not of jax, an installed package or the standard library?"""
    return bool(file) and not file.startswith(GENERATED) and not is_library_file(file)


def is_users_function(value: object) -> TypeGuard[types.FunctionType]:
    """Is this a Python function of the user's own?"""
    return is_a(value, types.FunctionType) and is_user_file(value.__code__.co_filename)


def is_of_python(file: str) -> bool:
    """Is this source file Python's own?"""
    file = file.replace("\\", "/")
    return file.startswith(_STDLIB) and "/site-packages/" not in file and "/dist-packages/" not in file


def is_user_module(value: object) -> bool:
    """Is this a module of the user's own: its source lies outside of the libraries, or it was made in the notebook?"""
    name = str(getattr(value, "__name__", "") or "")
    return is_a(value, types.ModuleType) and name != "__main__" and _is_user_module(name)


_STDLIB = (types.__file__ or "/-").replace("\\", "/").rsplit("/", 1)[0] + "/"


def is_user_class(cls: type) -> bool:
    """Was this class defined in the user's own code (a notebook cell or a module outside the libraries)?"""
    if not is_a(cls, type):
        return False
    known = _user_classes.get(cls)
    if known is None:
        known = _user_classes[cls] = _is_user_module(module_of(cls))
    return known


_user_classes: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def _is_user_module(name: str) -> bool:
    root = name.split(".")[0]
    if root in ("__main__", ""):
        return bool(root)
    if root in sys.stdlib_module_names or root in _OPAQUE:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return is_user_file(file) if file else root not in LIBRARIES


def is_walkable(value: object) -> bool:
    """May a walk look into the attributes of this object?"""
    if is_a(value, (types.ModuleType, type, types.CodeType, *FUNCTIONS)):
        return False
    root = module_of(type(value)).split(".")[0]
    return root in _OPEN or root not in _OPAQUE and root not in sys.stdlib_module_names


def top_alone() -> Callable[[object], bool]:
    """`is_leaf` of a walk that takes apart the top of a tree alone, one that holds itself too."""
    top = iter((False,))
    return lambda value: next(top, True)


MOST_LEVELS = 200


def is_endless(tree: object) -> bool:
    """Lists, tuples and dicts in it hold themselves, or lie hundreds deep: jaxlib, which takes them apart by recursion,
    leaves Python's count of calls broken then."""
    level: list[Any] = [(tree,)]
    for _ in range(MOST_LEVELS):
        held = (c for v in level for c in (v.values() if type(v) is dict else v))
        level = list({id(c): c for c in held if type(c) in (list, tuple, dict)}.values())
        if not level:
            return False
    return True


def is_memory(value: object) -> bool:
    """An object of a library that guards what it holds by a lock: a cache of its own, and no state of the program."""
    held = own_dict(value) or {}
    return any(type(v) in (LOCK, REENTRANT) for v in held.values()) and not is_user_class(type(value))


def class_attribute(cls: type, name: str) -> tuple[type, Any] | None:
    """The class that binds `name` for objects of `cls`, and what it binds there, unbound."""
    for base in mro(cls):
        if name in class_dict(base):
            return base, class_dict(base)[name]
    return None


def is_slot(cls: type, name: str) -> bool:
    """Objects of this class have a slot for the attribute."""
    found = class_attribute(cls, name)
    return found is not None and is_a(found[1], types.MemberDescriptorType)


def raw_get(value: Any, name: str) -> object:
    """Attribute `name` as stored, or MISSING. Properties and `__getattr__` are not called."""
    if is_a(value, types.ModuleType):
        return vars(value).get(name, MISSING)
    if is_a(value, type):
        found = class_attribute(value, name)
        return MISSING if found is None else found[1]
    if is_a(value, functools.partial) and name in ("func", "args", "keywords"):
        return getattr(value, name)
    if is_a(value, types.FunctionType) and name in ("__defaults__", "__kwdefaults__"):
        return getattr(value, name)
    found = class_attribute(type(value), name)
    if found is not None and is_a(found[1], types.MemberDescriptorType):  # goes before the `__dict__`
        try:
            return found[1].__get__(value)
        except AttributeError:
            return MISSING
    held = own_dict(value)
    if held is not None and name in held:
        return held[name]
    if found is None:
        return MISSING
    member = found[1]
    if is_a(value, tuple) and name in fields_of(value):
        return tuple.__getitem__(value, fields_of(value).index(name))
    return MISSING if _is_descriptor(member) else member


def _is_descriptor(member: object) -> bool:
    return any("__get__" in class_dict(base) for base in mro(type(member)))


def fields_of(value: tuple[object, ...]) -> tuple[str, ...]:
    """Field names of a NamedTuple; empty for a plain tuple."""
    found = class_attribute(type(value), "_fields")
    return found[1] if found and is_a(found[1], tuple) else ()


def whole(read: Callable[[], T]) -> T:
    """What `read` copies; once more where another thread has written meanwhile."""
    for _ in range(100):
        try:
            return read()
        except RuntimeError:  # it changed size during iteration
            continue
    return read()


Child = tuple[str, Any, Any]
"""Kind (`item` or `attribute`), key, value."""


def children(value: Any) -> Iterator[Child]:
    """What lies directly below a value: items of dict, list, tuple and deque, attributes of objects."""
    if is_a(value, dict):
        yield from (("item", k, v) for k, v in whole(lambda: list(dict.items(value))))
    elif is_a(value, (list, collections.deque)):
        yield from (("item", k, v) for k, v in enumerate(whole(lambda: raw.inside(value))))
    elif is_a(value, tuple):
        names = fields_of(value)
        parts = raw.inside(value)
        pairs = zip(names, parts, strict=False) if names else enumerate(parts)
        yield from (("attribute" if names else "item", k, v) for k, v in pairs)
    elif is_a(value, functools.partial):
        yield from (("attribute", k, getattr(value, k)) for k in ("args", "keywords"))
    if not is_a(value, tuple) and is_walkable(value):
        yield from (("attribute", k, v) for k, v in raw_attributes(value).items())


def step_text(kind: str, key: object) -> str:
    """The step as it is written in a path: `.w` or `['layer1']`."""
    return _named(kind, key) if type(key) is str else _step_text(kind, key)


def _step_text(kind: str, key: object) -> str:
    if kind == "attribute":
        return f"[{key}]" if str(key).isdigit() else f".{key}"  # as `nnx.List` keeps its items
    parts = key if type(key) is tuple else (key,)
    literal = all(type(k) in SCALARS for k in parts)
    if is_a(key, enum.Enum):
        return f"[{type(key).__qualname__.replace('<locals>.', '')}.{key._name_}]"  # type: ignore[attr-defined]
    return f"[{key!r}]" if literal else f"[<{type(key).__name__}>]"


_named = functools.lru_cache(maxsize=4096)(_step_text)


def short(value: object, width: int = 40) -> str:
    """Short text of a value: `f32[10,3]`, a scalar's repr cut to `width` characters, else its type's name."""
    if value is MISSING:
        return ""
    if is_tracer(value):
        return f"traced {_shape_text(value)}"
    if is_array(value) and not is_a(value, np.generic):
        return _shape_text(value)
    if type(value) in SCALARS or is_a(value, np.generic):
        text = str(value) if is_a(value, np.generic) else _repr(value, width)
        return text if len(text) <= width else text[: width - 1] + "…"
    if is_a(value, types.FunctionType):
        return value.__qualname__.replace("<locals>.", "")
    if type(value) in (list, tuple, dict, set, frozenset):
        return f"{type(value).__name__} of {len(value)}"  # type: ignore[arg-type]
    name = type.__dict__["__name__"].__get__(type(value))
    return str(name)


def _repr(value: Any, width: int) -> str:
    if type(value) is int and value.bit_length() > 4000:  # Python refuses to spell out very long ones
        return f"int of {value.bit_length()} bits"
    return repr(value[: width + 1] if type(value) in (str, bytes) else value)


def _shape_text(value: Any) -> str:
    try:
        return units.array_type(units.short_dtype(value.dtype), value.shape)
    except Exception:
        return "array"


def contains_tracer(value: object, limit: int = 2000) -> bool:
    """Is a tracer of jax in this value: an item, an attribute, a closure cell? Looks at `limit` objects."""
    if jax_type("core.Tracer") is None:
        return False
    todo, seen = [value], set()
    while todo and limit:
        limit -= 1
        v = todo.pop()
        if is_tracer(v):
            return True
        if id(v) in seen or is_leaf(v) and not (is_a(v, np.ndarray) and v.dtype.hasobject):
            continue
        seen.add(id(v))
        todo += _held(v)
    return False


def is_traced_key(key: object) -> bool:
    """A traced value, or what is equal to others by one: a tuple with it, an object with a hash of its own."""
    if type(key) in (str, int, float, bytes, type(None)):
        return False
    if is_leaf(key) or is_tracer(key):
        return is_tracer(key)
    by_value = class_attribute(type(key), "__hash__")
    return by_value is not None and by_value[0] is not object and contains_tracer(key, 50)


def codes_in(code: object) -> Iterator[types.CodeType]:
    """A function's code and that of the functions inside."""
    if isinstance(code, types.CodeType):
        yield code
        for constant in code.co_consts:
            yield from codes_in(constant)


def cell_values(fn: types.FunctionType) -> list[object]:
    """What the filled closure cells of a function hold."""
    return [v for cell in fn.__closure__ or () for v in cell_contents(cell)]


def cell_contents(cell: types.CellType) -> tuple[object, ...]:
    """What a closure cell holds; nothing where it is empty."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def referents(value: object) -> list[object]:
    """What an object of a class written in C holds; in place of a tuple or list with empty places, which only such
    classes have and Python code crashes on, what is in it."""
    found: list[object] = []
    for part in gc.get_referents(value):
        inside = gc.get_referents(part) if type(part) in (tuple, list) else ()
        found += [part] if type(part) not in (tuple, list) or len(inside) == len(part) else inside  # type: ignore[arg-type]
    return found


def _held(value: Any) -> list[object]:
    if class_attribute(type(value), "__next__") and not is_user_class(type(value)):
        return referents(value)
    if is_a(value, np.ndarray):
        return list(value.reshape(-1)[:2000])
    if is_a(value, BaseException):
        return [*value.args, *raw_attributes(value).values()]
    if is_a(value, types.FunctionType):
        return [*cell_values(value), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if is_a(value, types.MethodType):
        return [value.__self__, value.__func__]
    if is_a(value, set | frozenset):
        return list(value)
    return [v for _, _, v in children(value)]
