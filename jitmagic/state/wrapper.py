"""The wrapper of a stateful function for exactly the variables that it reads and writes."""

from __future__ import annotations

import functools
import inspect
import itertools
import keyword
import types
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jitmagic.state import paths, plan, values
from jitmagic.state.adapters import adapter_for
from jitmagic.state.codegen import NOT_GIVEN, define, is_spelled_out, parameter_list, spelling, writes
from jitmagic.state.contents import refill
from jitmagic.state.paths import Place
from jitmagic.state.plan import Op, Plan, Recipe, build
from jitmagic.state.region import PathNode, root_key
from jitmagic.state.state_program import Owner, StateProgram, returned
from jitmagic.state.taken_out import Location, path_of
from jitmagic.state.values import is_a
from jitmagic.tracing import compat

_Kind = inspect.Parameter
Form = tuple[str, str, str]
"""A condition on what is given, the arguments as they were given, and as jax gets them."""
_INLINE_PLANS = 16
_CHECKED_SINGLY = 8


def specialised(owner: Owner, program: StateProgram) -> types.FunctionType:
    """The wrapper for exactly the variables read and written.

    def call(x):
        try:
            t0 = _g0['l']
            s0 = t0.w
        except _Lookup:
            return _slow(x)
        try:
            r = _compiled(s0, x)
        except BaseException as e:
            if _retry(e, (s0,)):
                return _slow(x)
            raise
        if len(r) == 2:
            out, n0 = r
            if n0.__class__ is not _Array or t0.w is not s0:     # inside a trace; or another thread was faster
                return _slow(x)
            t0.w = n0
            return out
        r = _other(r, (s0,), ())                                 # jax has traced anew
        if r is not None:
            return r[0]
        return _slow(x)

    Of objects among the arguments (a model) the way to their variables is spelled out in front, after a look at whether
    they are as before.
    """
    return _Writer(owner, program).function()


def plain(owner: Owner) -> types.FunctionType:
    """The wrapper of a function that has no variables as long as it is called with arrays."""
    return _Writer(owner, owner.program).plain()


class _Writer:
    """Writes one wrapper. Names of its own begin with `_jm_`; `env` are the globals that the wrapper runs with."""

    def __init__(self, owner: Owner, program: StateProgram) -> None:
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

    def function(self) -> types.FunctionType:
        head = self._signature()
        self._name_objects()
        self.forms = self._forms()
        self._reads()
        self._guards()
        if any(len(made.ops) > _CHECKED_SINGLY for made in self.program.plans.values()):
            self.lines.insert(0, "_jm_before = _jm_writes[0]")
        self._call()
        return self._defined(head)

    def _defined(self, head: str) -> types.FunctionType:
        body = "\n".join(f"    {line}" for line in self.lines)
        return define(f"def call({head}):\n{body}\n", self.env, self.owner.name, self.owner.cells)

    def plain(self) -> types.FunctionType:
        """Nothing is read, nothing is written."""
        head = self._signature()
        self.forms = self._forms()
        self._try("return _jm_compiled({})", "_jm_e")
        self.env |= {"_jm_compiled": self.owner.plain, "_jm_retry": self.owner.retry_plain}
        return self._defined(head)

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
            if node.whole or id(node) in self._below_whole:
                self.sizes.append((name, len(value)))
        elif node.whole and type(values.own_dict(value)) is dict and not is_a(value, types.ModuleType):
            if type(value).__getattribute__ is object.__getattribute__ and adapter_for(value) is None:
                self.sizes.append((f"{name}.__dict__", len(values.own_dict(value) or ())))

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
        if _plain_items(value):
            return f"{name}[{self._key(place.key)}]"
        return f"{self._const(place.get, 'get')}()"

    def _attribute(self, name: str, value: object, key: str) -> str:
        usual = is_a(value, types.ModuleType) or type(value).__getattribute__ is object.__getattribute__
        hidden = _is_hidden(value, key, "__get__")
        named = is_a(value, tuple) and key in values.fields_of(value)
        if usual and _can_be_written(key) and (not hidden or named):
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
        if place.adapter is None and place.kind == "item" and not _plain_items(holder):
            return None
        return self._step(above, holder, PathNode(place))

    # -- the call

    def _try(self, call: str, seen: str, *, passed: bool = False) -> None:
        """The call of what jax has compiled; the slow way where `retry` says so of an exception."""
        self.lines.append("try:")
        self._each_form(call, "    ", passed=passed)
        self.lines += ["except BaseException as _jm_e:", f"    if _jm_retry({seen}):"]
        self._slow("        ")
        self.lines.append("    raise")

    def _call(self) -> None:
        state = "".join(f"_jm_s{i}, " for i in range(len(self.program.places)))
        self._try(f"_jm_r = _jm_compiled({state}{{}})", f"_jm_e, ({state})", passed=True)
        plans = [p for p in self.program.plans.values() if not p.structural][:_INLINE_PLANS]
        objects = "".join(f"{name}, " for name in self.objects.values())
        self.lines, held = ["if _jm_outside():"], self.lines
        self.lines.append(f"    _jm_r = _jm_other(_jm_r, ({state}), ({objects}))")
        self.lines += ["    if _jm_r is not None:", "        return _jm_r[0]"]
        self._slow()
        self.lines, other = held, self.lines
        if len(plans) == 1:
            self._unpack(plans[0], other)
            self._results(plans[0])
            return
        self.lines.append("_jm_n = len(_jm_r)")
        for made in plans:
            self.lines.append(f"if _jm_n == {made.size}:")
            start = len(self.lines)
            self._unpack(made)
            self._results(made)
            self.lines[start:] = [f"    {line}" for line in self.lines[start:]]
        self.lines += other

    def _unpack(self, made: Plan, other: Sequence[str] = ()) -> None:
        """Names for the results; `other` is what to do with a result of another length."""
        names = ["_jm_out", *(f"_jm_n{i}" for i in range(made.outputs))]
        spare = ["_jm_x"] * (made.size - 1 - made.outputs)
        text = f"{', '.join([*names, *spare])}, = _jm_r"
        if not other:
            self.lines.append(text)
            return
        self.lines += ["try:", f"    {text}", "except ValueError:", *(f"    {line}" for line in other)]

    def _results(self, made: Plan) -> None:
        names = [f"_jm_n{i}" for i in range(made.outputs)]
        inside = " or ".join(f"_jm_type({n}) is not _jm_Array" for n in names or ["_jm_out"])
        if len(names) > _CHECKED_SINGLY:
            self.lines.append("if not _jm_outside():")
        else:
            self.lines.append(f"if ({inside}) and not _jm_outside():")
        self._slow("    ")
        raced = [
            f"{self.spelled[op.leaf]} is not _jm_s{op.leaf}"
            for op in made.ops
            if op.leaf is not None and op.leaf in self.spelled and op.place.same_object
        ]
        if raced:
            test = " or ".join(raced)
            if len(raced) > _CHECKED_SINGLY:  # only where a stateful function has written anything meanwhile
                test = f"_jm_writes[0] != _jm_before and ({test})"
            self.lines.append(f"if {test}:")
            self._slow("    ")
        if made.ops:
            self.lines.append("_jm_writes[0] += 1")
        self._stores(made)
        if made.returned:
            self._bind_objects()
            self.lines.append(f"return {self._const(returned)}(_jm_out, {self._const(made)})")
        else:
            self.lines.append("return _jm_out")

    def _bind_objects(self) -> None:
        """From here on the objects are where their places look for them."""
        found = "".join(f"{self._const(at)}: {name}, " for at, name in self.objects.items())
        self.lines.append(f"{self._const(self.program.given.bind)}({{{found}}})")

    def _stores(self, made: Plan) -> None:
        targets = [self._target(op) for op in made.ops]
        if any(target is None for target in targets):  # by looking each place up
            self._bind_objects()
            outputs = "".join(f"_jm_n{i}, " for i in range(made.outputs))
            self.lines.append(f"{self._const(plan.apply)}({self._const(made.ops)}, ({outputs}))")
            return
        memo = ""
        if any(op.recipe is not None and not op.recipe.plain() for op in made.ops):
            memo = self._new("m")
            self.lines.append(f"{memo} = {{}}")
        values_ = ["" if op.recipe is None else self._value(op.recipe, made, memo) for op in made.ops]
        late = [target.format(value) for value, target in zip(values_, targets, strict=True)]  # type: ignore[union-attr]
        if not any("(" in target.partition("{}")[0] for target in targets):  # type: ignore[union-attr]
            self.lines += late
            return
        # an interrupt can come after each call: all is written or nothing
        indented = [f"    {line}" for line in late]
        self.lines += ["try:", *indented, "except BaseException:", *indented, "    raise"]

    def _value(self, recipe: Recipe, made: Plan, memo: str) -> str:
        if recipe.kind == "out":
            return f"_jm_n{recipe.value}"
        if recipe.kind == "const":
            return repr(recipe.value) if recipe.value in (None, True, False) and type(recipe.value) in (
                bool, type(None),
            ) else self._const(recipe.value)  # fmt: skip
        if recipe.kind == "number":
            return f"{recipe.value[0].__name__}(_jm_n{recipe.value[1]})"
        if recipe.kind == "held":
            return self._held_value(recipe.value)
        if not recipe.plain():
            outputs = "(" + "".join(f"_jm_n{i}, " for i in range(made.outputs)) + ")"
            return f"_jm_build({self._const(recipe)}, {outputs}, {memo})"
        parts = [self._value(p, made, memo) for _, p in recipe.parts]
        if recipe.kind == "dict":
            items = (f"{self._key(k)}: {p}" for (k, _), p in zip(recipe.parts, parts, strict=True))
            return "{" + ", ".join(items) + "}"
        if recipe.kind == "list":
            return "[" + ", ".join(parts) + "]"
        text = "(" + "".join(f"{p}, " for p in parts) + ")"
        return text if recipe.kind == "tuple" else f"{self._const(recipe.value)}._make({text})"

    def _held_value(self, place: Place) -> str:
        """What lies there before the writes."""
        known = self.by_place.get((place.path, place.step[0]))
        if known is None:
            known = self._new("h")
            self._bind_objects()
            self.lines.append(f"{known} = {self._const(place.get)}()")
        return known

    def _addition(self, op: Op) -> str | None:
        """The same for the items of a list, deque or set; doing it twice does no harm."""
        name = self.by_place.get((op.place.path, op.place.step[0]))
        if name is None:
            return None
        held, before = op.place.look(), self._new("b")
        if op.how == "refill" or is_a(held, set):
            return f"_jm_refill({name}, {{}})" if op.how == "refill" else f"{name}.update({{}})"
        if is_a(held, list):
            self.lines.append(f"{before} = len({name})")
            return f"{name}[{before}:] = {{}}"
        self.lines.append(f"{before} = list({name})")
        return f"_jm_refill({name}, [*{before}, *{{}}])"

    def _target(self, op: Op) -> str | None:
        """An assignment with `{}` for the value, or None where only `put` can do it."""
        place = op.place
        if op.recipe is None:
            return None
        if op.how != "put":
            return self._addition(op)
        if place.parent is None:
            plain = type(place.root) is dict and root_key(place)[0] != "object"
            return f"{self._bound(place)} = {{}}" if plain or place.kind == "closure" else None
        name = self.by_place.get((place.parent.path, place.parent.step[0]))
        if name is None or not name.isidentifier():
            return None
        holder = place.parent.look()
        if place.adapter is not None:
            slot = place.adapter.slot(holder)
            return None if slot is None else self._slot_target(name, holder, slot)
        if place.kind == "item":
            there = paths.MISSING is not place.look()
            return f"{name}[{self._key(place.key)}] = {{}}" if _plain_stores(holder) and there else None
        own = is_a(holder, types.ModuleType) or type(holder).__setattr__ is object.__setattr__
        hidden = _is_hidden(holder, place.key, "__set__")
        if own and not hidden and _can_be_written(place.key):
            return f"{name}.{place.key} = {{}}"
        return f"_jm_put({name}, {self._key(place.key)}, {{}})"

    def _slot_target(self, name: str, holder: object, slot: str) -> str:
        """Frameworks forbid or watch assignment; `object.__setattr__` takes three times as long as these."""
        found = values.class_attribute(type(holder), slot)
        if found is not None and is_a(found[1], types.MemberDescriptorType):
            return f"{self._const(found[1].__set__, 'set')}({name}, {{}})"
        if found is None and slot in (values.own_dict(holder) or {}):
            return f"{name}.__dict__[{self._key(slot)}] = {{}}"
        return f"_jm_set({name}, {self._key(slot)}, {{}})"


def _plain_stores(value: object) -> bool:
    return getattr(type(value), "__setitem__", None) in (dict.__setitem__, list.__setitem__)


def _is_hidden(value: object, key: str, by: str) -> bool:
    """The class has something under this name that reads (`__get__`) or stores (`__set__`) in its own way."""
    found = values.class_attribute(type(value), key)
    return (
        found is not None and hasattr(type(found[1]), by) and not is_a(found[1], types.MemberDescriptorType)
    )


def _can_be_written(key: str) -> bool:
    """A name that may stand after a dot."""
    return key.isidentifier() and not keyword.iskeyword(key)


def _plain_items(value: object) -> bool:
    """`value[key]` runs Python's own code alone."""
    get = getattr(type(value), "__getitem__", None)
    return get in (dict.__getitem__, list.__getitem__, tuple.__getitem__)


def _taken(
    owner: Owner, wanted: Sequence[Location], args: tuple[object, ...], kwargs: dict[str, object]
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
    with jax.ensure_compile_time_eval():
        return type(jax.device_put(0.0))  # which compiles nothing, as jnp.zeros would
