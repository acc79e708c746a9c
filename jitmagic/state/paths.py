"""Names of variables: parsing `params['w'], l.w`, finding what they name, putting something else there."""

from __future__ import annotations

import ast
import dis
import functools
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jitmagic.state import contents, values
from jitmagic.state.adapters import Adapter, adapter_for
from jitmagic.state.values import MISSING, is_a, raw_get

Kind = Literal["global", "closure", "attribute", "item"]
LIMIT = 20_000
Slot = tuple[object, ...]
"""Where a value lies, whatever path leads there: what holds it, and the key in it."""
Location = tuple[Any, ...]
"""A place among the arguments: the name of a parameter, then type and key for each tuple, list and dict on the way."""


class PathError(ValueError):
    """A path that cannot be read or that names nothing; the text is one line for the user."""


@dataclass(frozen=True)
class Step:
    """One step of a path: an attribute's name or an item's literal key."""

    kind: Literal["attribute", "item"]
    key: Any

    def __str__(self) -> str:
        return values.step_text(self.kind, self.key)


@dataclass(frozen=True)
class Path:
    """The name of a variable: a root name and the steps from there."""

    root: str
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return self.root + "".join(map(str, self.steps))


def parse(text: str) -> Path:
    """Read `w`, `l.w` or `params['layer1'][0]`; raises PathError for everything else."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise PathError(f"`{text.strip()}` is not a path; write a name like w, l.w or params['w']") from None
    steps: list[Step] = []
    while not isinstance(node, ast.Name):
        steps.append(_step(node, text.strip()))
        node = node.value  # type: ignore[attr-defined]
    return Path(node.id, tuple(reversed(steps)))


def _step(node: ast.AST, text: str) -> Step:
    if isinstance(node, ast.Attribute):
        return Step("attribute", node.attr)
    if isinstance(node, ast.Subscript):
        key = literal(node.slice)
        if key is not MISSING:
            return Step("item", key)
        raise PathError(f"`{text}`: an item needs a literal key, like params['w'] or layers[0]")
    kind = "a call" if isinstance(node, ast.Call) else "an expression"
    raise PathError(f"`{text}` is {kind}, not a path; write a name like w, l.w or params['w']")


def literal(node: ast.AST) -> object:
    """The hashable literal key that a subscript's slice spells, or MISSING."""
    try:
        key = ast.literal_eval(node)  # type: ignore[arg-type]
        hash(key)
    except (ValueError, TypeError, SyntaxError, MemoryError):
        return MISSING
    return key


def at_or_below(path: str, paths: Iterable[str]) -> bool:
    """Is this one of the paths, or does it lie below one?"""
    return any(path == p or path.startswith((f"{p}.", f"{p}[")) for p in paths)


def split_paths(text: str) -> list[str]:
    """Split `w, params['a,b'], l.w` at the commas outside brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote and text[i - 1] != "\\" else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    parts += [last] if last else []
    if "" in parts:
        raise PathError(f"`{text.strip()}`: a path is missing in front of a comma")
    return parts


class Place:
    """Where a variable lives. It follows its name: what holds it is looked up anew at each use.

    `kind` and `key` say how `holder()` holds it: an entry of a namespace, the contents of a closure cell,
    an attribute, or an item of a dict or list. A framework's variable is the attribute `value` of the
    variable, and `adapter` reads and writes it; its path is that of the variable. Where there is no `parent`, `root`
    is what holds it.
    """

    __slots__ = ("path", "origin", "kind", "key", "parent", "adapter", "root")

    def __init__(
        self, path: str, origin: str, kind: Kind, key: Any, *, holder: object = None,
        parent: Place | None = None, adapter: Adapter | None = None,
    ) -> None:  # fmt: skip
        self.path, self.origin, self.kind, self.key = path, origin, kind, key
        self.parent, self.adapter, self.root = parent, adapter, holder

    def __repr__(self) -> str:
        return f"Place({self.path})"

    @property
    def is_variable(self) -> bool:
        """Does an adapter read and write it, as the value of a framework's variable?"""
        return self.adapter is not None

    @property
    def same_object(self) -> bool:
        """Do two reads give the same object? Not those of a `jax.Ref`, say, which is read by an operation."""
        return self.adapter is None or self.adapter.slot(self.holder()) is not None

    @property
    def step(self) -> contents.Key:
        """The key within its holder; the value inside a framework's variable has one of its own."""
        return contents.INSIDE if self.adapter else (self.kind, self.key)

    def holder(self) -> Any:
        """The object that directly holds the variable: a dict, cell, list or object. Raises PathError."""
        return self.root if self.parent is None else self.parent.get()

    def below(self, kind: Literal["attribute", "item"], key: Any) -> Place:
        """The place one step further down."""
        origin = "attribute" if kind == "attribute" else self.origin
        return Place(self.path + values.step_text(kind, key), origin, kind, key, parent=self)

    def inside(self, adapter: Adapter) -> Place:
        """The place of the value within the framework's variable that lies here."""
        return Place(self.path, self.origin, "attribute", "value", parent=self, adapter=adapter)

    def look(self) -> object:
        """The value, or MISSING where there is none."""
        try:
            holder = self.holder()
            return self.adapter.read(holder) if self.adapter else stored(holder, self.kind, self.key)
        except Exception:
            return MISSING

    def get(self) -> Any:
        """The value; PathError where there is none."""
        found = self.look()
        if found is MISSING:
            raise PathError(f"`{self.path}` does not exist")
        return found

    def exists(self) -> bool:
        """Is there a value?"""
        return self.look() is not MISSING

    def put(self, value: object) -> None:
        """Bind another value there, past frozen dataclasses; PathError where that cannot be done."""
        self.put_in(self.holder(), value)

    def put_in(self, holder: object, value: object) -> None:
        """The same in a holder that was looked up before; MISSING takes the name, attribute or item away."""
        if self.adapter is None:
            store(holder, self.kind, self.key, value, self.path)
        elif value is not MISSING:
            self.adapter.write(holder, value)

    def delete(self) -> None:
        """Take the name, attribute or item away; nothing happens where there is none."""
        if self.exists():
            self.put_in(self.holder(), MISSING)


def stored(holder: Any, kind: Kind, key: Any) -> object:
    """What a holder has under a key, past methods of its own; MISSING, or an error, where there is nothing."""
    if kind == "closure":
        return holder.cell_contents
    if kind == "attribute":
        return raw_get(holder, key)
    if is_a(holder, dict):
        return dict.get(holder, key, MISSING)
    if is_a(holder, list):
        return list.__getitem__(holder, key)
    if is_a(holder, tuple):
        return tuple.__getitem__(holder, key)
    return operator.getitem(holder, key)


def store(holder: Any, kind: str, key: Any, value: object, path: str = "") -> None:
    """Put a value where `stored` finds it, past methods of the holder's own; MISSING takes it away."""
    if kind == "closure":
        if value is MISSING:
            del holder.cell_contents
        else:
            holder.cell_contents = value
    elif kind == "attribute":
        delete_attribute(holder, key) if value is MISSING else put_attribute(holder, key, value, path)
    elif is_a(holder, tuple):
        raise PathError(f"`{path}` is an item of a tuple and cannot be replaced; name the whole tuple")
    elif is_a(holder, dict):
        contents.put_item(holder, key, value)
    elif value is MISSING:
        del holder[key]
    elif is_a(holder, list):
        list.__setitem__(holder, key, value)
    else:
        holder[key] = value


def put_attribute(holder: Any, name: str, value: Any, path: str = "") -> None:
    """Store an attribute without the object's own `__setattr__`, where Python lets one."""
    if is_a(holder, tuple):
        raise PathError(f"`{path}` is a field of a NamedTuple and cannot be replaced; name the whole tuple")
    if is_a(holder, types.ModuleType | type | types.FunctionType):
        return setattr(holder, name, value)
    if is_a(holder, functools.partial) and name in ("func", "args", "keywords"):
        parts = {"func": holder.func, "args": holder.args, "keywords": holder.keywords, name: value}
        return holder.__setstate__((*parts.values(), vars(holder)))  # type: ignore[attr-defined]
    held = values.own_dict(holder)
    if held is not None and name in held and not values.is_slot(type(holder), name):
        held[name] = value
        return
    if _is_property(holder, name, property):
        raise PathError(f"`{path}` is a property; name the attribute that it reads")
    try:
        object.__setattr__(holder, name, value)
    except (TypeError, AttributeError):
        setattr(holder, name, value)


def delete_attribute(holder: Any, name: str) -> None:
    """Remove an attribute without the object's own `__delattr__`."""
    if is_a(holder, types.ModuleType | type):
        return delattr(holder, name)
    try:
        object.__delattr__(holder, name)
    except (TypeError, AttributeError):
        held = values.own_dict(holder)
        if held is not None:
            held.pop(name, None)


def _is_property(holder: object, name: str, kinds: Any = property | functools.cached_property) -> bool:
    found = values.class_attribute(type(holder), name)
    return found is not None and is_a(found[1], kinds)


def place_of(obj: object) -> Place:
    """The place of the value in a variable object, wherever the object is; TypeError for other objects."""
    adapter = adapter_for(obj)
    if adapter is None:
        raise TypeError(f"a {type(obj).__name__} is not a framework's variable")
    name = f"<{type(obj).__name__} {id(obj):#x}>"  # no path: it follows the object
    return Place(name, "global", "global", "variable", holder={"variable": obj}).inside(adapter)


@dataclass(frozen=True)
class Scope:
    """Where the roots of paths are looked up: the receiver, closure cells, globals, modules."""

    namespace: dict[str, object]
    functions: Callable[[], Sequence[types.FunctionType]] | None = None
    receiver: object | None = None
    receiver_name: str = "self"

    def roots(self, name: str) -> Iterator[Place]:
        """The places that a root name can mean, the nearest first."""
        if self.receiver is not None and name == self.receiver_name:
            yield Place(name, "argument", "global", name, holder={name: self.receiver})
        functions = self.functions() if self.functions is not None else ()
        for fn in functions:
            if name in fn.__code__.co_freevars:
                cell = (fn.__closure__ or ())[fn.__code__.co_freevars.index(name)]
                yield Place(name, "closure", "closure", name, holder=cell)
            elif any(name in _globals_of(code) for code in values.codes_in(fn.__code__)):
                yield Place(name, "global", "global", name, holder=fn.__globals__)
        for fn in functions:
            yield Place(name, "global", "global", name, holder=fn.__globals__)
        yield Place(name, "global", "global", name, holder=self.namespace)
        if name in sys.modules:
            yield Place(name, "global", "global", name, holder=sys.modules)


def _globals_of(code: types.CodeType) -> set[str]:
    """Names that the code looks up in its module; other names of it are attributes."""
    return {op.argval for op in dis.get_instructions(code) if op.opname.endswith("_GLOBAL")}


def resolve(path: Path | str, scope: Scope) -> Place:
    """The place that a path names; PathError says which step names nothing, and what there is instead."""
    path = parse(path) if isinstance(path, str) else path
    place = next((p for p in scope.roots(path.root) if p.exists()), None)
    if place is None:
        raise PathError(f"`{path}`: there is no variable `{path.root}`")
    for step in path.steps:
        below = place.below(step.kind, step.key)
        if not below.exists():
            below = _wrapped(place).below(step.kind, step.key)
        if not below.exists():
            raise PathError(f"`{path}`: {_what_is_missing(_wrapped(place), step)}")
        place = below
    return place


def _wrapped(place: Place) -> Place:
    """The object inside a wrapper that calls it, by the same path."""
    inside = place.below("attribute", "__wrapped__")
    if not inside.exists() or is_a(inside.look(), values.FUNCTIONS):
        return place
    inside.path = place.path
    return inside


def _what_is_missing(place: Place, step: Step) -> str:
    value = place.get()
    if step.kind == "attribute":
        if _is_property(value, step.key):
            return f"`{step.key}` is a property of `{place.path}`; name the attribute that it reads"
        has = [k for k in values.raw_attributes(value) if not k.startswith("__")]
        return f"`{place.path}` has no attribute `{step.key}`" + (f"; it has {_some(has)}" if has else "")
    if is_a(value, dict):
        return f"`{place.path}` has no item {step.key!r}; it has {_some([repr(k) for k in value]) or 'none'}"
    if is_a(value, list | tuple) and is_a(step.key, int):
        return f"`{place.path}` has {len(value)} items and no number {step.key}"
    return f"`{place.path}` has no items to take {step.key!r} from"


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
