"""The first half of a generated wrapper: its signature, the reads of the variables, the tests for what is frozen."""

from __future__ import annotations

import functools
import inspect
import itertools
import keyword
import types
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jitmagic.state import paths, values
from jitmagic.state.adapters import adapter_for
from jitmagic.state.codegen import NOT_GIVEN, Cells, is_spelled_out, parameter_list, spelling, writes
from jitmagic.state.contents import refill
from jitmagic.state.guards import Guards
from jitmagic.state.paths import Place
from jitmagic.state.plan import build
from jitmagic.state.region import PathNode, root_key
from jitmagic.state.state_program import Instance, Owner, StateProgram
from jitmagic.state.taken_out import Location, path_of
from jitmagic.state.values import is_a
from jitmagic.tracing import compat

_Kind = inspect.Parameter
Form = tuple[str, str, str]
"""A condition on what is given, the arguments as they were given, and as jax gets them."""


class Calls(Owner, Protocol):
    """What a generated wrapper needs of the function that it belongs to."""

    cells: Cells
    guards: Guards | None
    known: dict[tuple[int, ...], Instance]
    receiver: Any
    plain: Any
    program: StateProgram

    def retry_plain(self, exc: BaseException) -> bool: ...
    def receiver_object(self) -> object: ...
    def slow(self, *args: object, **kwargs: object) -> Any: ...
    def retry(self, program: StateProgram, exc: BaseException, state: Sequence[object]) -> bool: ...
    def other(
        self,
        program: StateProgram,
        result: Sequence[object],
        state: Sequence[object],
        objects: Sequence[object],
    ) -> object: ...
    def stale(self, program: StateProgram) -> None: ...


class Reads:
    """The lines that read the variables and look at what is frozen.

    Names of its own begin with `_jm_`; `env` are the globals that the wrapper runs with."""

    def __init__(self, owner: Calls, program: StateProgram) -> None:
        self.owner, self.program = owner, program
        self.lines: list[str] = []
        self.by_place: dict[object, str] = {}
        """Local name of what lies at a place, by its path."""
        self.spelled: dict[int, str] = {}
        """How to read variable number i again, where an expression can."""
        self.sizes: list[tuple[str, int]] = []
        """Containers that may have grown: how to read one, and the length it had."""
        self._count = itertools.count()
        self.roots: dict[int, str] = {}
        self._cells = {id(cell): name for name, cell in owner.cells.items()}
        self.receiver: str | None = None
        self.forms: list[Form] = []
        self.objects: dict[Location, str] = {}
        """Local names of the objects among the arguments."""
        self.env: dict[str, object] = {
            "_jm_compiled": program.compiled, "_jm_slow": owner.slow, "_jm_known": owner.known, "_jm_program": program,
            "_jm_retry": functools.partial(owner.retry, program), "_jm_other": functools.partial(owner.other, program),
            "_jm_outside": compat.outside_check(), "_jm_stale": functools.partial(owner.stale, program),
            "_jm_lookup": (LookupError, AttributeError, TypeError, ValueError, NameError), "_jm_not_given": NOT_GIVEN,
            "_jm_set": object.__setattr__, "_jm_put": paths.put_attribute, "_jm_build": build,
            "_jm_raw": _raw, "_jm_refill": refill, "_jm_type": type, "_jm_id": id, "_jm_writes": writes,
            "_jm_Array": _array_class(),
        }  # fmt: skip

    def _new(self, prefix: str) -> str:
        return f"_jm_{prefix}{next(self._count)}"

    def _const(self, value: object, prefix: str = "k") -> str:
        name = self._new(prefix)
        self.env[name] = value
        return name

    def _local(self, text: str, prefix: str = "t") -> str:
        """A local name for what an expression gives."""
        if text.isidentifier():
            return text
        name = self._new(prefix)
        self.lines.append(f"{name} = {text}")
        return name

    def _bound(self, place: Place) -> str:
        """A name in a namespace, or a closure cell: what reads it and what assigns to it."""
        holder = place.root
        if place.kind == "closure":
            return self._cells.get(id(holder)) or f"{self._held(holder)}.cell_contents"
        return f"{self._held(holder)}[{self._key(place.key)}]"

    def _held(self, holder: object) -> str:
        if id(holder) not in self.roots:
            self.roots[id(holder)] = self._const(holder, "g")
        return self.roots[id(holder)]

    # -- the signature

    def _signature(self) -> str:
        """The parameter list. A default that was not given must not become an argument."""
        parameters = self.owner.parameters
        first = ""
        if self.owner.receiver is not None:
            first = self.receiver = "_jm_self"
        if not is_spelled_out(parameters):
            return f"{first}, /, *args, **kwargs" if first else "*args, **kwargs"
        assert parameters is not None
        self.env |= {f"_default_{p.name}": NOT_GIVEN for p in parameters if p.default is not _Kind.empty}
        head = parameter_list(parameters, [])
        if not first:
            return head
        marked = head if any(p.kind is _Kind.POSITIONAL_ONLY for p in parameters) else f"/, {head}"
        return f"{first}, {marked}".rstrip(", ")

    def _forms(self) -> list[Form]:
        """What can be given: each set of arguments."""
        parameters, forms = self.owner.parameters, list[Form]()
        if not is_spelled_out(parameters):
            whole = "*args, **kwargs"
            return [("", whole, "*_jm_args, **_jm_kwargs" if self.objects else whole)]
        assert parameters is not None
        optional = [p for p in parameters if p.default is not _Kind.empty]
        for there in itertools.product((False, True), repeat=len(optional)):
            left_out = {p.name for p, g in zip(optional, there, strict=True) if not g}
            spelled = list(spelling(parameters, left_out))
            given = [f"{n}={n}" if named else n for n, named in spelled]
            passed = [f"{n}={self._without(n)}" if named else self._without(n) for n, named in spelled]
            tests = [
                f"{p.name} is {'not ' if g else ''}_jm_not_given"
                for p, g in zip(optional, there, strict=True)
            ]
            forms.append((" and ".join(tests), ", ".join(given), ", ".join(passed)))
        return forms

    def _each_form(self, text: str, indent: str = "", *, passed: bool = False) -> None:
        """A line for each set of arguments; `{}` in `text` is where they go, as they were given or as jax gets them."""
        forms = self.forms
        texts = [
            text.format(form[2 if passed else 1]).replace("(, ", "(").replace(", )", ")") for form in forms
        ]
        if len(forms) == 1:
            self.lines.append(indent + texts[0])
            return
        for i, (form, line) in enumerate(zip(forms, texts, strict=True)):
            word = "else" if i == len(forms) - 1 else f"{'elif' if i else 'if'} {form[0]}"
            self.lines += [f"{indent}{word}:", f"{indent}    {line}"]

    def _slow(self, indent: str = "", how: str = "_jm_slow") -> None:
        first = f"{self.receiver}, " if self.receiver else ""
        self._each_form(f"return {how}({first}{{}})", indent)

    # -- the objects among the arguments

    def _without(self, name: str, at: Location = ()) -> str:
        """An argument, or a part of one, with None for the objects."""
        at = at or (name,)
        if at in self.objects:
            return "None"
        inside = [where for where in self.program.locations if where[: len(at)] == at]
        if not inside:
            return name
        steps = sorted({where[len(at)] for where in inside}, key=lambda step: str(step[1]))
        parts = {key: self._without(f"{name}[{self._key(key)}]", (*at, (cls, key))) for cls, key in steps}
        if steps[0][0] is dict:
            return "{" + f"**{name}, " + ", ".join(f"{self._key(k)}: {p}" for k, p in parts.items()) + "}"
        text, start = "", 0
        for i, part in sorted(parts.items()):
            text, start = f"{text}*{name}[{start}:{i}], {part}, ", i + 1
        ends = "[]" if steps[0][0] is list else "()"
        return f"{ends[0]}{text}*{name}[{start}:],{ends[1]}"

    def _name_objects(self) -> None:
        """Local names for the objects; and a look at whether they are the same, with nothing changed in them but their
        variables."""
        if not self.program.locations:
            return
        if not is_spelled_out(self.owner.parameters):
            taken = functools.partial(_taken, self.owner, self.program.locations)
            own = [self._new("o") for _ in self.program.locations]
            self.lines.append(
                f"({', '.join(own)},), _jm_args, _jm_kwargs = {self._const(taken)}(args, kwargs)"
            )
            self.objects = dict(zip(self.program.locations, own, strict=True))
        else:
            self.objects = {at: self._object(at) for at in self.program.locations}
        ids = "".join(f"_jm_id({name}), " for name in self.objects.values())
        self.lines += [f"_jm_i = _jm_known[{ids}]", "if _jm_i.now != _jm_i.then: raise LookupError"]

    def _object(self, at: Location) -> str:
        text = at[0]
        for cls, key in at[1:]:
            self.lines.append(f"if _jm_type({text}) is not {self._const(cls)}: raise LookupError")
            text = f"{text}[{self._key(key)}]"
        return self._local(text, "o")

    # -- reading

    def _reads(self) -> None:
        for node in self.program.tree.roots.values():
            text = self._root(node.place)
            assert text is not None
            self._node(node, text, node.place.look())

    def _root(self, place: Place) -> str | None:
        """An expression for what a path begins with."""
        if place.root is self.program.given:
            return next(name for at, name in self.objects.items() if path_of(at) == place.path)
        plain = type(place.root) is dict
        if root_key(place)[0] != "object":
            return self._bound(place) if plain or place.kind == "closure" else None
        value = place.look()
        if self.receiver and value is self.owner.receiver_object():
            return self.receiver
        # the object of a bound method, or with `__call__`, which the function keeps anyway
        return self._const(value, "o") if plain else None

    def _node(self, node: PathNode, text: str, value: object) -> None:
        if node.leaf is not None:
            self.lines.append(f"_jm_s{node.leaf} = {text}")
            self.spelled[node.leaf] = text
            self.by_place[node.place.path, node.place.step[0]] = f"_jm_s{node.leaf}"
            return
        name = self._local(text)
        self.by_place[node.place.path, node.place.step[0]] = name
        self._size_guard(node, name, value)
        for child in node.children.values():
            self._node(child, self._step(name, value, child), child.place.look())

    def _size_guard(self, node: PathNode, name: str, value: Any) -> None:
        """A container that is dynamic as a whole, or on the way: it may have grown."""
        if node.log or id(node) in self._below_given:
            return
        if is_a(value, dict | list) and type(value).__len__ in (dict.__len__, list.__len__):
            if node.whole or self._whole_above(node):
                self.sizes.append((name, len(value)))
        elif node.whole and type(values.own_dict(value)) is dict and not is_a(value, types.ModuleType):
            if type(value).__getattribute__ is object.__getattribute__ and adapter_for(value) is None:
                self.sizes.append((f"{name}.__dict__", len(values.own_dict(value) or ())))

    def _whole_above(self, node: PathNode) -> bool:
        return id(node) in self._below_whole

    @functools.cached_property
    def _below_given(self) -> set[int]:
        """`id` of the nodes at and below the objects among the arguments."""
        return self._below(lambda node: node.place.root is self.program.given)

    @functools.cached_property
    def _below_whole(self) -> set[int]:
        """`id` of the nodes at and below what is dynamic as a whole."""
        return self._below(lambda node: node.whole or self.owner.everything)

    def _below(self, counts: Callable[[PathNode], bool]) -> set[int]:
        found: set[int] = set()
        todo = [(n, counts(n)) for n in self.program.tree.roots.values()]
        while todo:
            node, whole = todo.pop()
            if whole:
                found.add(id(node))
            todo += [(c, whole or c.whole) for c in node.children.values()]
        return found

    def _step(self, name: str, value: object, child: PathNode) -> str:
        place = child.place
        if place.adapter is not None:
            slot = place.adapter.slot(value)
            if slot is not None and type(value).__getattribute__ is object.__getattribute__:
                return f"{name}.{slot}"
            return f"{self._const(place.adapter.read, 'read')}({name})"
        if place.kind == "attribute":
            return self._attribute(name, value, place.key)
        if plain_items(value):
            return f"{name}[{self._key(place.key)}]"
        return f"{self._const(place.get, 'get')}()"

    def _attribute(self, name: str, value: object, key: str) -> str:
        usual = is_a(value, types.ModuleType) or type(value).__getattribute__ is object.__getattribute__
        hidden = is_hidden(value, key, "__get__")
        named = is_a(value, tuple) and key in values.fields_of(value)
        if usual and can_be_written(key) and (not hidden or named):
            return f"{name}.{key}"
        return f"_jm_raw({name}, {self._key(key)})"

    def _key(self, key: Any) -> str:
        """A key as it stands in the code: text of the user's that is no name stays out of it."""
        plain = (
            key.isidentifier() and "_jm_" not in key
            if type(key) is str
            else type(key) in (int, bool, type(None))
        )
        return repr(key) if plain else self._const(key)

    # -- guards

    def _guards(self) -> None:
        frozen, settings = self._frozen(), self._settings()
        reads = self.lines
        self.lines = [f"    {line}" for line in reads] or ["    pass"]
        self.lines.insert(0, "try:")
        self.lines.append("except _jm_lookup:")
        self._slow("    ")
        if self.objects:
            self.lines.append("if _jm_i.program is not _jm_program:")
            self._slow("    ", "_jm_i.program.run")
        changed = [f"len({n}) != {size}" for n, size in self.sizes] + settings
        if changed:
            self.lines.append(f"if {' or '.join(changed)}:")
            self._slow("    ")
        if frozen:
            self.lines.append(f"if {' or '.join(frozen)}:")
            self.lines.append("    _jm_stale()")

    def _settings(self) -> list[str]:
        """Tests that are true where another program has to serve."""
        tests = []
        for place, value in self.program.settings:
            text = self._frozen_read(place)
            if text is not None:
                tests.append(self._is_another(text, value))
        return tests

    def _is_another(self, text: str, value: object) -> str:
        """A test that is true where this expression gives something else than `value`."""
        name, then = self._new("f"), self._const(value, "v")
        self.lines.append(f"{name} = {text}")
        equal = type(value) in (int, float, complex, str, bytes, set)
        return f"{name} is not {then} and {name} != {then}" if equal else f"{name} is not {then}"

    def _frozen(self) -> list[str]:
        """Tests that are true where a frozen value has changed."""
        held = self.owner.guards
        tests = []
        for guard in held.all if held is not None else ():
            text = self._frozen_read(guard.place)
            if text is None:
                continue
            tests.append(self._is_another(text, guard.value))
            if guard.peek is not None:
                tests.append(f"{self._const(guard.peek, 'peek')}() != {self._const(guard.seen, 'h')}")
        return tests

    def _frozen_read(self, place: Place) -> str | None:
        """An expression for a place; the steps above it become local names that are used again."""
        known = self.by_place.get((place.path, place.step[0]))
        if known is not None:
            return known
        if place.parent is None:
            return self._root(place)
        above = self._frozen_read(place.parent)
        if above is None:
            return None
        above = self.by_place[place.parent.path, place.parent.step[0]] = self._local(above)
        holder = place.parent.look()
        if place.adapter is None and place.kind == "item" and not plain_items(holder):
            return None
        return self._step(above, holder, PathNode(place))


def is_hidden(value: object, key: str, by: str) -> bool:
    """The class has something under this name that reads (`__get__`) or stores (`__set__`) in its own way."""
    found = values.class_attribute(type(value), key)
    return (
        found is not None and hasattr(type(found[1]), by) and not is_a(found[1], types.MemberDescriptorType)
    )


def can_be_written(key: str) -> bool:
    """A name that may stand after a dot."""
    return key.isidentifier() and not keyword.iskeyword(key)


def plain_items(value: object) -> bool:
    """`value[key]` runs Python's own code alone."""
    get = getattr(type(value), "__getitem__", None)
    return get in (dict.__getitem__, list.__getitem__, tuple.__getitem__)


def _taken(
    owner: Calls, wanted: Sequence[Location], args: tuple[object, ...], kwargs: dict[str, object]
) -> object:
    objects, args, kwargs = owner.taken(args, kwargs)
    if tuple(objects) != wanted:
        raise LookupError
    return objects.values(), args, kwargs


def _raw(value: object, name: str) -> object:
    found = values.raw_get(value, name)
    if found is paths.MISSING:
        raise AttributeError(name)
    return found


def _array_class() -> type:
    import jax

    with jax.ensure_compile_time_eval():
        return type(jax.device_put(0.0))  # which compiles nothing, as jnp.zeros would
