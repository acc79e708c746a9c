"""The search for everything that a function can read without taking it as an argument; nothing is run for it."""

from __future__ import annotations

import collections
import dis
import functools
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from jitmagic.source.tree import ByCode
from jitmagic.state import adapters, values
from jitmagic.state.adapters import adapter_for, is_framework
from jitmagic.state.iterators import is_iterator
from jitmagic.state.paths import Place, Step
from jitmagic.state.reached import Reach, Root
from jitmagic.state.uses import Facts, Use, facts_of
from jitmagic.state.values import MISSING, is_a, is_user_class, is_user_module, is_users_function
from jitmagic.state.wrappers import full_name, inner, is_library, parts, unwrap

_CALLABLES_WITHIN = 2000
_CONSTRUCTORS = ("__init__", "__new__", "__post_init__", "__del__")
_NOT_CALLED = (*_CONSTRUCTORS, "__repr__", "__str__", "__init_subclass__")
_CALLING = (types.MethodWrapperType, types.BuiltinMethodType)
"""What else of Python's own calls the user's functions."""
Function = types.FunctionType
_READ_CLOSELY = frozenset(
    "globals locals exec eval getattr setattr delattr hasattr vars dir next __dict__".split()
)
"""Names with which a function may reach what it does not name, or use up what it names."""
_WRITES = ("STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_SUBSCR", "STORE_SLICE", "DELETE_", "IMPORT_")
_OTHER = ("LOAD_SUPER", "LOAD_NAME", "LOAD_LOCALS", "LOAD_BUILD_CLASS", "LOAD_CLASSDEREF", "LOAD_FROM_DICT")
_CLOSELY = frozenset(
    code for name, code in dis.opmap.items() if name.startswith((*_WRITES, *_OTHER))
)  # fmt: skip
_straight: ByCode[bool] = ByCode()
_BySteps = Mapping[tuple[Step, ...], list[Use]]


def reach(
    fn: object,
    *,
    receiver: object | None = None,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    receiver_as: str = "",
) -> Reach:
    """Scan a callable (function, method, partial, jitted function, object with `__call__`) transitively.

    `receiver` is the object that the first parameter stands for, `args` and `kwargs` those of a call. The object
    of a bound method is called `receiver_as`. Costs about a millisecond: only names that the code loads are
    looked up.
    """
    return _Scan(receiver_as).run(fn, receiver, tuple(args), dict(kwargs or {}))


class _Scan:
    def __init__(self, receiver_as: str = "") -> None:
        self.receiver_as = receiver_as
        self.reach = Reach()
        self.functions: dict[int, Function] = {}
        self.roots: dict[object, Root] = {}
        self.names: dict[str, int] = {}
        self.attributes: dict[str, None] = {}
        self.stored: dict[str, None] = {}
        self.constructed: set[int] = set()
        self.classes: dict[int, type] = {}
        self.makes_classes = False
        self.seen: dict[int, object] = {}
        self.target: Function | None = None
        self.receiver: object | None = None
        self.drawn: dict[int, tuple[str, object]] = {}
        """Default random states of frameworks that the functions name, by path."""

    def run(self, fn: object, receiver: object, args: tuple[object, ...], kwargs: dict[str, object]) -> Reach:
        self.reach.called = fn
        bound, plain = unwrap(fn)
        receiver = bound if receiver is None else receiver
        self.target, self.receiver = plain, receiver
        if is_a(fn, functools.partial):
            self._partial(fn, "partial")
        if is_users_function(plain):
            self._function(plain)
        self._callable(fn, plain.__qualname__ if plain is not None else "")
        if plain is not None:
            self._arguments(plain, receiver, args, kwargs)
            if bound is not None:
                self._rename(plain, bound)
        elif receiver is None and not is_a(fn, type):
            self._add("self", Place("self", "argument", "global", "self", holder={"self": fn}), "argument")
        self._settle()
        self._random_states()
        r = self.reach
        # these names first: an object may hold the same random state somewhere inside
        r.roots = sorted(self.roots.values(), key=lambda root: root.path not in r.offered)
        r.functions = tuple(self.functions.values())
        r.classes, r.attributes = tuple(self.classes.values()), tuple(self.attributes)
        r.fields = frozenset(self.stored) | {"__annotations__"}.intersection(self.attributes)
        r.remade = tuple(name for name in ("__class__", "__bases__") if name in self.stored)
        return r

    def _settle(self) -> None:
        """Visit methods of the objects reached until no new attribute name turns up."""
        count = -1
        names = (self.attributes, self.stored, self.constructed)
        self._found: tuple[object, ...] = (*names, self.functions, self.classes, self.seen, self.roots)
        while count != (size := sum(len(found) for found in self._found)):
            count = size
            for cls in list(self.classes.values()):
                self._methods(cls)

    def _random_states(self) -> None:
        """Frameworks keep a random state that their functions and modules draw from unless they are given one."""
        if not adapters.any_installed():
            return
        held = [root.value for root in self.roots.values()]
        seen = [*self.classes.values(), *(type(v) for v in held if adapter_for(v) is None)]
        if any(adapters.is_module_class(cls) and adapters.is_stateful_class(cls) for cls in seen):
            for path, state in adapters.default_random_states():
                self.drawn.setdefault(id(state), (path, state))
        for path, state in self.drawn.values():
            self._add(path, Place(path, "global", "global", "state", holder={"state": state}), "global")
            near = path.removesuffix("DEFAULT")
            self.reach.offered[path] = tuple(
                facts.where(use.nodes[index])
                for text, facts, uses, index in self.reach.modules_used
                for use in uses
                if text.startswith(near)
            )

    def _arguments(
        self, fn: Function, receiver: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        names = list(fn.__code__.co_varnames[: fn.__code__.co_argcount])
        given = dict(kwargs)
        if receiver is not None:
            if not args or args[0] is not receiver:
                args = (receiver, *args)
        for i, value in enumerate(args):
            given.setdefault(names[i] if i < len(names) else f"args[{i - len(names)}]", value)
        for name, value in given.items():
            # an array of numpy may be written in place
            buffer = values.is_array(value) and not values.is_jax_array(value)
            if (buffer or not values.is_leaf(value)) and not values.is_tracer(value):
                self._add(name, Place(name, "argument", "global", name, holder={name: value}), "argument")

    def _rename(self, fn: Function, bound: object) -> None:
        """The object that a method is bound to has a name of its own outside."""
        first = fn.__code__.co_varnames[:1]
        for key, root in list(self.roots.items()):
            if (
                self.receiver_as
                and (root.path,) == first
                and root.origin == "argument"
                and root.value is bound
            ):
                root.place.path = self.receiver_as
                self.roots[key] = Root(self.receiver_as, root.place, root.origin, root.uses)

    def _callable(self, value: Any, name: str) -> None:
        """Follow something that may be called: a function, wrapper, method, partial, class or object."""
        whole = value
        for _ in range(20):
            if is_users_function(value):
                return self._function(value)
            if id(value) in self.seen or values.is_leaf(value):
                return None
            self.seen[id(value)] = value
            self.reach.stateful |= "__jitmagic__" in (values.own_dict(value) or ())
            if is_a(value, functools._lru_cache_wrapper):
                self.reach.caches.append((name, value))
            if is_a(value, type):
                self.constructed |= {id(base) for base in values.mro(value)}
                return self._class(value)
            if is_a(value, types.MethodType):
                self._object(value.__self__, name)
            elif is_a(value, functools.partial):
                for part in (*value.args, *value.keywords.values()):
                    self._value(part, name)
            elif is_iterator(value) or is_a(value, _CALLING):
                for part in values.referents(value):  # what it calls, and what it draws from
                    self._value(part, name)
            elif values.module_of(type(value)).startswith(("jax", "numpy")):
                for part in values.raw_attributes(
                    value
                ).values():  # rules of custom_vjp, what np.vectorize calls
                    self._callable(part, name) if callable(part) else None
            inside = inner(value)
            keeps = values.is_user_class(type(value)) and (inside is not None or value is not whole)
            keeps &= value is not self.receiver
            if keeps:  # it stands for its function, or is called by what stands for it
                path = name if value is whole else f"{name}.__wrapped__"
                self._add(path, Place(path, "global", "global", path, holder={path: value}), "global")
            if inside is None:
                return self._object(value, name) if not is_a(value, Function) else self._cells(value)
            if keeps:
                self._object(value, name)
            value = inside

    def _function(self, fn: Function) -> None:
        if id(fn) in self.functions:
            return
        self.functions[id(fn)] = fn
        self.makes_classes |= any("__qualname__" in getattr(c, "co_names", ()) for c in fn.__code__.co_consts)
        if uses_libraries_alone(fn):  # nothing to find but what its arguments are asked for
            self.attributes |= dict.fromkeys(fn.__code__.co_names)
            self._defaults(fn)
            return
        facts = facts_of(fn)
        self.attributes |= dict.fromkeys(facts.attributes)
        self.stored |= dict.fromkeys(facts.stored)
        self.reach.any_attribute |= facts.any_attribute
        if facts.whole_namespace and not any(n is fn.__globals__ for n in self.reach.namespaces):
            self.reach.namespaces.append(fn.__globals__)
        self._cells(fn, facts)
        self._defaults(fn)
        for name in facts.names:
            if name not in fn.__code__.co_freevars:
                self._name(fn, facts, name)
        for name, uses in facts.imported.items():
            if name in sys.modules:
                self._import(fn, facts, name, sys.modules[name], uses)
            else:
                self.reach.unimported.append((name, fn))

    def _cells(self, fn: Function, facts: Facts | None = None) -> None:
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            if facts is None:  # a library's wrapper: only what it wraps is the user's
                self._callable(next(iter(values.cell_contents(cell)), MISSING), name)
            else:
                place = Place(name, "closure", "closure", name, holder=cell)
                self._add(name, place, self._origin("closure", fn), facts)

    def _defaults(self, fn: Function) -> None:
        names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        held = Place(fn.__qualname__, "default", "global", "fn", holder={"fn": fn})
        first = len(names) - len(fn.__defaults__ or ())
        pairs: list[tuple[str, str, object]] = [(k, "__defaults__", i) for i, k in enumerate(names[first:])]
        pairs += [(k, "__kwdefaults__", k) for k in fn.__kwdefaults__ or {}]
        for name, attribute, key in pairs:
            whole = Place(attribute, "default", "attribute", attribute, parent=held)
            if getattr(fn, attribute)[key] is not None:
                self._add(name, _DefaultPlace(name, "default", "item", key, parent=whole), "default")

    def _origin(self, origin: str, fn: Function) -> str:
        return origin if fn is self.target or self.target is None else "helper"

    def _name(self, fn: Function, facts: Facts, name: str) -> None:
        value = fn.__globals__.get(name, MISSING)
        if is_a(value, types.ModuleType):
            return self._module(fn, facts, name, value)
        uses = [u for same in facts.free.get(name, {}).values() for u in same]
        if value is MISSING and not any(u.action == "write" for u in uses):
            return None
        origin = self._origin("global", fn)
        if is_library(value):
            self._note(facts, name, full_name(value) or name)
            if (found := adapters.random_state_of(value)) is not None:
                self.drawn.setdefault(id(found[1]), found)
        return self._add(name, Place(name, origin, "global", name, holder=fn.__globals__), origin, facts)

    def _module(self, fn: Function, facts: Facts, name: str, module: types.ModuleType) -> None:
        place = Place(name, self._origin("global", fn), "global", name, holder=fn.__globals__)
        self._of_module(place, module, facts, facts.free.get(name, {}))

    def _import(
        self, fn: Function, facts: Facts, name: str, module: types.ModuleType, uses: _BySteps
    ) -> None:
        """A module that the function imports itself; `--dyn` finds one that has a name outside, too."""
        known = next((k for k, v in fn.__globals__.items() if v is module), None)
        holder = fn.__globals__ if known is not None else sys.modules
        place = Place(known or name, self._origin("global", fn), "global", known or name, holder=holder)
        self._of_module(place, module, facts, uses)

    def _of_module(self, place: Place, module: types.ModuleType, facts: Facts, found: _BySteps) -> None:
        for steps, uses in found.items():
            keys = tuple(step.key for step in steps)
            named = [keys] if keys else []
            named += dict.fromkeys(
                (*keys, u.method) for u in uses if u.method.isidentifier()
            )  # `update`, say, of a module
            if named:
                self._read_of_module(uses, facts)
                self._draws(place.path, module, uses[0])
            for names in named:
                below = place
                for name in names:
                    if not is_user_module(below.look()):
                        break
                    below = below.below("attribute", name)
                    below.origin = place.origin
                if below is not place:
                    self._add(below.path, below, place.origin)

    def _read_of_module(self, uses: list[Use], facts: Facts) -> None:
        steps = [s for s in uses[0].steps if s.kind == "attribute"]
        if uses[0].nodes:
            text = ".".join([uses[0].root, *(s.key for s in steps)])
            self.reach.modules_used.append((text, facts, uses, len(steps)))

    def _draws(self, name: str, module: object, use: Use) -> None:
        """`bm.random.normal`, or `normal` from there: its numbers come from the module's random state."""
        path, steps = name, iter(use.steps)
        while (state := adapters.default_random_state(module)) is None:
            step = next(steps, None)
            module = values.raw_get(module, str(step.key)) if step is not None else None
            if not is_a(module, types.ModuleType) or not adapters.is_framework(module):
                return
            path += str(step)
        self.drawn.setdefault(id(state), (f"{path}.DEFAULT", state))

    def _note(self, facts: Facts, name: str, text: str) -> None:
        for steps, uses in facts.free.get(name, {}).items():
            full = text + "".join(f".{s.key}" for s in steps if s.kind == "attribute")
            if uses[0].nodes:
                self.reach.modules_used.append((full, facts, uses, -1))

    def _partial(self, value: functools.partial[object], name: str) -> None:
        base = Place(name, "global", "global", name, holder={name: value})
        for attribute, items in (("args", enumerate(value.args)), ("keywords", value.keywords.items())):
            for key, _ in items:  # type: ignore[attr-defined]
                place = base.below("attribute", attribute).below("item", key)
                place.origin = "default"
                self._add(place.path, place, "default")

    def _add(self, path: str, place: Place, origin: str, facts: Facts | None = None) -> None:
        uses = tuple(u for same in facts.free.get(path, {}).values() for u in same) if facts else ()
        holder = place.root if place.parent is None else place.parent.root
        key = (id(holder) if holder is not None else id(place.parent), place.kind, place.path, str(place.key))
        if origin == "default" or place.parent is not None:
            key = (id(place), *key[1:])
        old = self.roots.get(key)
        if old is not None:
            merged = old.origin if old.origin != "helper" else origin
            self.roots[key] = Root(old.path, old.place, merged, (*old.uses, *uses))
            return
        place.path = self._distinct(path, place)
        self.roots[key] = Root(place.path, place, origin, uses)
        self._value(place.look(), place.path)

    def _distinct(self, path: str, place: Place) -> str:
        if place.origin == "argument":
            return path
        number = self.names[path] = self.names.get(path, 0) + 1
        return path if number == 1 else f"{path} ({number})"

    def _value(self, value: Any, name: str) -> None:
        """Follow the callables and objects in a value, containers included."""
        todo, left = [value], _CALLABLES_WITHIN
        while todo and left:
            v = todo.pop()
            left -= 1
            if v is MISSING or values.is_leaf(v) or is_a(v, types.ModuleType):
                if is_user_class(type(v)):  # a number, text or array of the user's own kind
                    self._class(type(v))
            elif type(v) in (dict, list, tuple, collections.deque, set):
                if id(v) not in self.seen:
                    self.seen[id(v)] = v
                    todo += list(v.values())[:left] if is_a(v, dict) else list(v)[:left]
            else:
                self._callable(v, name)

    def _object(self, value: object, name: str) -> None:
        """An object reached: its class's methods, and what its attributes hold."""
        cls = type(value)
        if is_user_class(cls):
            self._class(cls)
        if values.is_walkable(value) and adapter_for(value) is None:
            for _, _, child in values.children(value):
                if not values.is_leaf(child):
                    self._value(child, name)

    def _class(self, cls: type) -> None:
        for base in (*values.mro(cls), *values.mro(type(cls))):
            if is_user_class(base):
                self.classes.setdefault(id(base), base)

    def _receiver_is_called(self) -> bool:
        """Do the methods reached use the bare receiver (`self(x)`), or names that may stand for it?"""
        names = {f.__code__.co_varnames[:1] for f in self.functions.values() if "." in f.__qualname__}
        uses = (u for f in self.functions.values() for u in facts_of(f).uses)
        return any(u.action == "read" and not u.steps and (u.root,) in names for u in uses)

    def _methods(self, cls: type) -> None:
        for name, member in list(values.class_dict(cls).items()):
            special = name.startswith("__") and name not in _NOT_CALLED and not _is_generated(cls, member)
            special |= name in _CONSTRUCTORS and id(cls) in self.constructed
            special |= name == "__init_subclass__" and self.makes_classes
            own = cls in values.mro(type(self.receiver))
            if name == "__call__" and own and not self._receiver_is_called():
                continue
            if name in self.attributes or name in self.stored or special or self.reach.any_attribute:
                for part in parts(member):
                    if is_a(part, type):
                        self._callable(part, name) if is_user_class(part) else None
                    elif callable(part):
                        self._callable(part, f"{cls.__name__}.{name}")
                    elif is_user_class(type(part)):  # a descriptor
                        self._class(type(part))


def _is_generated(cls: type, member: object) -> bool:
    """`__eq__`, `__hash__`, `__setattr__` as `dataclasses` writes them: they do nothing outside of the object."""
    made = "__dataclass_fields__" in values.class_dict(cls) and is_a(member, types.FunctionType)
    return made and member.__code__.co_filename == "<string>"  # type: ignore[attr-defined]


def uses_libraries_alone(fn: types.FunctionType) -> bool:
    """Every name that the function looks up outside is a module of a library or one of Python's own, and it stores
    nothing but local variables; told from its bytecode, without its source. False where that cannot be told.

    What it asks of its arguments is among `fn.__code__.co_names`."""
    code = fn.__code__
    if not _is_straight(code):
        return False
    names = fn.__globals__
    return all(_is_library_module(names[name]) for name in code.co_names if name in names)


def _is_straight(code: types.CodeType) -> bool:
    known = _straight.get(code)
    if known is not None:
        return known
    nested = any(isinstance(c, types.CodeType) for c in code.co_consts)
    straight = (
        not (nested or code.co_freevars or code.co_cellvars)
        and _READ_CLOSELY.isdisjoint(code.co_names)
        and _CLOSELY.isdisjoint(code.co_code[::2])
    )
    return _straight.put(code, straight)


def _is_library_module(value: object) -> bool:
    return is_a(value, types.ModuleType) and not is_user_module(value) and not is_framework(value)


class _DefaultPlace(Place):
    """A parameter's default: an item of a tuple that only its function can replace."""

    __slots__ = ()

    def put(self, value: object) -> None:
        parent = self.parent
        assert parent is not None
        held = parent.get()
        if is_a(held, dict):
            held[self.key] = value
            return
        parent.holder().__defaults__ = (*held[: self.key], value, *held[self.key + 1 :])
