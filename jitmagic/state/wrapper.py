"""The wrapper of a stateful function for exactly the variables that it reads and writes."""

from __future__ import annotations

import types
from collections.abc import Sequence

from jitmagic.state import paths, plan, values
from jitmagic.state.codegen import define
from jitmagic.state.paths import Place
from jitmagic.state.plan import Op, Plan, Recipe
from jitmagic.state.region import root_key
from jitmagic.state.state_program import StateProgram, returned
from jitmagic.state.values import is_a
from jitmagic.state.wrapper_reads import Calls, Reads, can_be_written, is_hidden

_INLINE_PLANS = 16
_CHECKED_SINGLY = 8


def specialised(owner: Calls, program: StateProgram) -> types.FunctionType:
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


def plain(owner: Calls) -> types.FunctionType:
    """The wrapper of a function that has no variables as long as it is called with arrays."""
    return _Writer(owner, owner.program).plain()


class _Writer(Reads):
    """Writes one wrapper."""

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
        hidden = is_hidden(holder, place.key, "__set__")
        if own and not hidden and can_be_written(place.key):
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
