"""The wrapper of a stateful function for exactly the variables that it reads and writes."""

from __future__ import annotations

import keyword
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.state import paths, values
from jitmagic.state.codegen import define
from jitmagic.state.plan import Op, Plan, Recipe
from jitmagic.state.region import root_key, step_key
from jitmagic.state.values import is_a
from jitmagic.state.wrapper_reads import Reads

if TYPE_CHECKING:
    from jitmagic.state.stateful import Stateful

_INLINE_PLANS = 4
_CHECKED_SINGLY = 8


def specialised(stateful: Stateful) -> types.FunctionType:
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
        return _other(r)
    """
    return _Writer(stateful).function()


class _Writer(Reads):
    """Writes one wrapper."""

    def function(self) -> types.FunctionType:
        head, forms = self._signature()
        if any(len(made.ops) > _CHECKED_SINGLY for made in self.stateful.plans.values()):
            self.lines.append("_jm_before = _jm_writes[0]")
        self._reads()
        self._guards(forms)
        self._call(forms)
        body = "\n".join(f"    {line}" for line in self.lines)
        return define(f"def call({head}):\n{body}\n", self.env, self.stateful.name, self.stateful.cells)

    # -- the call

    def _call(self, forms: Sequence[tuple[str, str]]) -> None:
        state = ", ".join(f"_jm_s{i}" for i in range(len(self.stateful.places)))
        self.lines.append("try:")
        self._each_form(forms, f"_jm_r = _jm_compiled({state}, {{}})", "    ")
        self.lines.append("except BaseException as _jm_e:")
        self.lines.append(f"    if _jm_retry(_jm_e, ({state}{',' if state else ''})):")
        self._slow(forms, "        ")
        self.lines.append("    raise")
        plans = [p for p in self.stateful.plans.values() if not p.structural][:_INLINE_PLANS]
        other = ["if not _jm_outside():"]
        self.lines, held = other, self.lines
        self._slow(forms, "    ")
        self.lines = held
        other.append(f"return _jm_other(_jm_r, ({state}{',' if state else ''}))")
        if len(plans) == 1:
            self._unpack(plans[0], other)
            self._results(plans[0], forms)
            return
        self.lines.append("_jm_n = len(_jm_r)")
        for made in plans:
            self.lines.append(f"if _jm_n == {made.size}:")
            start = len(self.lines)
            self._unpack(made)
            self._results(made, forms)
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

    def _results(self, made: Plan, forms: Sequence[tuple[str, str]]) -> None:
        names = [f"_jm_n{i}" for i in range(made.outputs)]
        inside = " or ".join(f"_jm_type({n}) is not _jm_Array" for n in names or ["_jm_out"])
        if len(names) > _CHECKED_SINGLY:
            self.lines.append("if not _jm_outside():")
        else:
            self.lines.append(f"if ({inside}) and not _jm_outside():")
        self._slow(forms, "    ")
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
            self._slow(forms, "    ")
        if made.ops:
            self.lines.append("_jm_writes[0] += 1")
        self._stores(made)
        self.lines.append("return _jm_out")

    def _stores(self, made: Plan) -> None:
        memo = ""
        if any(op.recipe is not None and not op.recipe.plain() for op in made.ops):
            memo = self._new("m")
            self.lines.append(f"{memo} = {{}}")
        values_, targets = [], []
        for op in made.ops:
            values_.append("" if op.recipe is None else self._value(op.recipe, made, memo))
            targets.append(self._target(op))
        # first everything is made and every holder looked up, then it is put: a write may move what holds them
        late = []
        for op, value, target in zip(made.ops, values_, targets, strict=True):
            if target is None:
                holder = self._const(op, "op")
                self.lines.append(f"{holder}_h = {holder}.place.holder()")
                late.append(f"{self._const(_apply_one)}({holder}, {holder}_h, {value or 'None'})")
            else:
                late.append(target.format(value))
        calls = any("(" in target.partition("{}")[0] for target in targets if target is not None)
        if not calls or any(op.recipe is None for op in made.ops):
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
        if recipe.kind == "object":
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

    def _target(self, op: Op) -> str | None:
        """An assignment with `{}` for the value, or None where only `put` can do it."""
        place = op.place
        if op.recipe is None:
            return None
        if place.parent is None:
            plain = type(place._holder) is dict and root_key(place)[0] != "object"
            return f"{self._bound(place)} = {{}}" if plain or place.kind == "closure" else None
        name = self.by_place.get((place.parent.path, step_key(place.parent)[0]))
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
        found = values.class_attribute(type(holder), place.key)
        hidden = (
            found is not None
            and hasattr(type(found[1]), "__set__")
            and not is_a(found[1], types.MemberDescriptorType)
        )
        if own and not hidden and place.key.isidentifier() and not keyword.iskeyword(place.key):
            return f"{name}.{place.key} = {{}}"
        return f"_jm_put({name}, {place.key!r}, {{}})"

    def _slot_target(self, name: str, holder: Any, slot: str) -> str:
        """Frameworks forbid or watch assignment; `object.__setattr__` takes three times as long as these."""
        found = values.class_attribute(type(holder), slot)
        if found is not None and is_a(found[1], types.MemberDescriptorType):
            return f"{self._const(found[1].__set__, 'set')}({name}, {{}})"
        if found is None and slot in (values.own_dict(holder) or {}):
            return f"{name}.__dict__[{slot!r}] = {{}}"
        return f"_jm_set({name}, {slot!r}, {{}})"


def _apply_one(op: Op, holder: Any, value: Any) -> None:
    from jitmagic.state import region

    value = paths.MISSING if op.recipe is None else value
    if op.place.parent is None:
        op.place.delete() if value is paths.MISSING else op.place.put(value)
    else:
        region.put(holder, step_key(op.place), value)


def _plain_stores(value: Any) -> bool:
    return getattr(type(value), "__setitem__", None) in (dict.__setitem__, list.__setitem__)
