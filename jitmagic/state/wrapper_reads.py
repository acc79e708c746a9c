"""The first half of a generated wrapper: its signature, the reads of the variables, the tests for what is frozen."""

from __future__ import annotations

import functools
import inspect
import itertools
import keyword
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.state import paths, values
from jitmagic.state.adapters import adapter_for
from jitmagic.state.codegen import NOT_GIVEN, is_spelled_out, parameter_list, spelling, writes
from jitmagic.state.paths import Place
from jitmagic.state.plan import build
from jitmagic.state.region import Node, root_key, step_key
from jitmagic.state.values import is_a

if TYPE_CHECKING:
    from jitmagic.state.stateful import Stateful

_Kind = inspect.Parameter


class Reads:
    """The lines that read the variables and look at what is frozen.

    Names of its own begin with `_jm_`; `env` are the globals that the wrapper runs with."""

    def __init__(self, stateful: Stateful) -> None:
        self.stateful = stateful
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        """Local names of the objects on the way, by `id` of their node."""
        self.by_place: dict[Any, str] = {}
        """Local name of what lies at a place, by its path."""
        self.spelled: dict[int, str] = {}
        """How to read variable number i again, where an expression can."""
        self.sizes: list[tuple[str, int]] = []
        """Containers that may have grown: how to read one, and the length it had."""
        self._count = itertools.count()
        self._holders: dict[int, str] = {}
        self._cells = {id(cell): name for name, cell in stateful.cells.items()}
        self.receiver: str | None = None
        from jitmagic.tracing.compat import outside_check

        self.env: dict[str, Any] = {
            "_jm_compiled": stateful.compiled, "_jm_slow": stateful._call, "_jm_retry": stateful.retry,
            "_jm_other": stateful._finish, "_jm_outside": outside_check(), "_jm_stale": stateful.stale,
            "_jm_lookup": (LookupError, AttributeError, TypeError, ValueError, NameError), "_jm_not_given": NOT_GIVEN,
            "_jm_set": object.__setattr__, "_jm_put": paths.put_attribute, "_jm_build": build,
            "_jm_raw": _raw, "_jm_type": type, "_jm_writes": writes,
        }  # fmt: skip
        self.env["_jm_Array"] = _array_class()

    def _new(self, prefix: str) -> str:
        return f"_jm_{prefix}{next(self._count)}"

    def _const(self, value: Any, prefix: str = "k") -> str:
        name = self._new(prefix)
        self.env[name] = value
        return name

    def _bound(self, place: Place) -> str:
        """A name in a namespace, or a closure cell: what reads it and what assigns to it."""
        holder = place._holder
        if place.kind == "closure":
            return self._cells.get(id(holder)) or f"{self._held(holder)}.cell_contents"
        return f"{self._held(holder)}[{place.key!r}]"

    def _held(self, holder: Any) -> str:
        if id(holder) not in self._holders:
            self._holders[id(holder)] = self._const(holder, "g")
        return self._holders[id(holder)]

    # -- the signature

    def _signature(self) -> tuple[str, list[tuple[str, str]]]:
        """Parameter list, and for each set of arguments that can be given its condition and how to pass it on.

        A default that was not given must not become an argument."""
        parameters = self.stateful.parameters
        first = ""
        if self.stateful.receiver is not None:
            first = self.receiver = "_jm_self"
        optional = [p for p in parameters or () if p.default is not _Kind.empty]
        if not is_spelled_out(parameters):
            head = "*args, **kwargs"
            return (f"{first}, /, {head}" if first else head), [("", head)]
        assert parameters is not None
        self.env |= {f"_default_{p.name}": NOT_GIVEN for p in optional}
        head = parameter_list(parameters, [])
        if first:
            marked = head if any(p.kind is _Kind.POSITIONAL_ONLY for p in parameters) else f"/, {head}"
            head = f"{first}, {marked}".rstrip(", ")
        return head, list(self._forms(parameters, optional))

    @staticmethod
    def _forms(
        parameters: Sequence[inspect.Parameter], optional: Sequence[inspect.Parameter]
    ) -> list[tuple[str, str]]:
        forms = []
        for given in itertools.product((False, True), repeat=len(optional)):
            left_out = {p.name for p, g in zip(optional, given, strict=True) if not g}
            passed = [f"{n}={n}" if named else n for n, named in spelling(parameters, left_out)]
            tests = [
                f"{p.name} is {'not ' if g else ''}_jm_not_given"
                for p, g in zip(optional, given, strict=True)
            ]
            forms.append((" and ".join(tests), ", ".join(passed)))
        return forms

    def _each_form(self, forms: Sequence[tuple[str, str]], text: str, indent: str = "") -> None:
        """A line for each set of arguments; `{}` in `text` is where they go."""
        if len(forms) == 1:
            self.lines.append(indent + text.format(forms[0][1]).replace("(, ", "(").replace(", )", ")"))
            return
        for i, (test, passed) in enumerate(forms):
            word = "else" if i == len(forms) - 1 else f"{'elif' if i else 'if'} {test}"
            self.lines.append(f"{indent}{word}:")
            self.lines.append(f"{indent}    {text.format(passed).replace('(, ', '(').replace(', )', ')')}")

    def _slow(self, forms: Sequence[tuple[str, str]], indent: str = "") -> None:
        first = f"{self.receiver}, " if self.receiver else ""
        self._each_form(forms, f"return _jm_slow({first}{{}})", indent)

    # -- reading

    def _reads(self) -> None:
        for node in self.stateful.tree.roots.values():
            self._root(node)

    def _root(self, node: Node) -> None:
        place = node.place
        if root_key(place)[0] == "object":
            value = place.look()
            if self.receiver and value is self.stateful._self():
                text = self.receiver
            else:
                text = self._const(value, "o")
        else:
            text = self._bound(place)
        self._node(node, text, place.look())

    def _node(self, node: Node, text: str, value: Any) -> None:
        if node.leaf is not None:
            self.lines.append(f"_jm_s{node.leaf} = {text}")
            self.spelled[node.leaf] = text
            self.by_place[node.place.path, step_key(node.place)[0]] = f"_jm_s{node.leaf}"
            return
        name = text
        if not text.isidentifier():
            name = self._new("t")
            self.lines.append(f"{name} = {text}")
        self.by_place[node.place.path, step_key(node.place)[0]] = name
        self._size_guard(node, name, value)
        for child in node.children.values():
            self._node(child, self._step(name, value, child), child.place.look())

    def _size_guard(self, node: Node, name: str, value: Any) -> None:
        """A container that is dynamic as a whole, or on the way: it may have grown."""
        if is_a(value, dict | list) and type(value).__len__ in (dict.__len__, list.__len__):
            if node.whole or self._whole_above(node):
                self.sizes.append((name, len(value)))
        elif node.whole and type(values.own_dict(value)) is dict and not is_a(value, types.ModuleType):
            if type(value).__getattribute__ is object.__getattribute__ and adapter_for(value) is None:
                self.sizes.append((f"{name}.__dict__", len(values.own_dict(value) or ())))

    def _whole_above(self, node: Node) -> bool:
        return id(node) in self._below_whole

    @functools.cached_property
    def _below_whole(self) -> set[int]:
        """`id` of the nodes at and below what is dynamic as a whole."""
        found: set[int] = set()
        todo = [(n, n.whole or self.stateful.declared.everything) for n in self.stateful.tree.roots.values()]
        while todo:
            node, whole = todo.pop()
            if whole:
                found.add(id(node))
            todo += [(c, whole or c.whole) for c in node.children.values()]
        return found

    def _step(self, name: str, value: Any, child: Node) -> str:
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

    def _attribute(self, name: str, value: Any, key: str) -> str:
        usual = is_a(value, types.ModuleType) or type(value).__getattribute__ is object.__getattribute__
        found = values.class_attribute(type(value), key)
        hidden = (
            found is not None
            and hasattr(type(found[1]), "__get__")
            and not is_a(found[1], types.MemberDescriptorType)
        )
        named = is_a(value, tuple) and key in values.fields_of(value)
        if usual and key.isidentifier() and not keyword.iskeyword(key) and (not hidden or named):
            return f"{name}.{key}"
        return f"_jm_raw({name}, {key!r})"

    def _key(self, key: Any) -> str:
        return repr(key) if type(key) in (str, int, bool, type(None)) else self._const(key)

    # -- guards

    def _guards(self, forms: Sequence[tuple[str, str]]) -> None:
        frozen = self._frozen()
        reads = self.lines
        self.lines = [f"    {line}" for line in reads] or ["    pass"]
        self.lines.insert(0, "try:")
        self.lines.append("except _jm_lookup:")
        self._slow(forms, "    ")
        if self.sizes:
            test = " or ".join(f"len({n}) != {size}" for n, size in self.sizes)
            self.lines.append(f"if {test}:")
            self._slow(forms, "    ")
        if frozen:
            self.lines.append(f"if {' or '.join(frozen)}:")
            self.lines.append("    _jm_stale()")

    def _frozen(self) -> list[str]:
        """Tests that are true where a frozen value has changed."""
        held = self.stateful.guards
        tests = []
        for guard in held.all if held is not None else ():
            text = self._frozen_read(guard.place)
            if text is None:
                continue
            name = self._new("f")
            self.lines.append(f"{name} = {text}")
            then = self._const(guard.value, "v")
            if type(guard.value) in (int, float, complex, str):
                tests.append(f"{name} is not {then} and {name} != {then}")
            else:
                tests.append(f"{name} is not {then}")
            if guard.peek is not None:
                tests.append(f"{self._const(guard.peek, 'peek')}() != {self._const(guard.held, 'h')}")
        return tests

    def _frozen_read(self, place: Place) -> str | None:
        """An expression for a place; the steps above it become local names that are used again."""
        known = self.by_place.get((place.path, step_key(place)[0]))
        if known is not None:
            return known
        if place.parent is None:
            key = root_key(place)
            if key[0] == "object":
                if self.receiver and place.look() is self.stateful._self():
                    return self.receiver
                # the object of a bound method, or with `__call__`, which the function keeps anyway
                return self._const(place.look(), "o") if type(place._holder) is dict else None
            return self._bound(place) if place.kind == "closure" or type(place._holder) is dict else None
        above = self._frozen_read(place.parent)
        if above is None:
            return None
        if not above.isidentifier():
            name = self._new("t")
            self.lines.append(f"{name} = {above}")
            above = self.by_place[place.parent.path, step_key(place.parent)[0]] = name
        holder = place.parent.look()
        if place.adapter is None and place.kind == "item" and not plain_items(holder):
            return None
        return self._step(above, holder, Node(place))


def plain_items(value: Any) -> bool:
    """`value[key]` runs Python's own code alone."""
    get = getattr(type(value), "__getitem__", None)
    return get in (dict.__getitem__, list.__getitem__, tuple.__getitem__)


def _raw(value: Any, name: str) -> Any:
    found = values.raw_get(value, name)
    if found is paths.MISSING:
        raise AttributeError(name)
    return found


def _array_class() -> type:
    import jax.numpy as jnp

    return type(jnp.zeros(()))
