"""What the calls of one function have shown so far."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from jitmagic import evidence as ev
from jitmagic import report
from jitmagic.evidence import root
from jitmagic.state.frozen import Frozen
from jitmagic.state.values import is_a, is_user_class
from jitmagic.tracing.minimal_static import StaticSearch


class KeptCall:
    """One call that is kept so that a fix can be tried on it."""

    def __init__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self._given: Any = args, kwargs
        self._is_loose = False

    @property
    def args(self) -> tuple[object, ...]:
        return self._all()[0]

    @property
    def kwargs(self) -> dict[str, object]:
        return self._all()[1]

    def loosen(self) -> None:
        """From now on nothing lives on for this call alone: the user has taken something out."""
        if not self._is_loose:
            self._given, self._is_loose = _mapped(_weak, self._given), True

    @property
    def is_whole(self) -> bool:
        """All that it was given is still alive."""
        return all(value is not _GONE for value in _inside(self._all()))

    def _all(self) -> Any:
        return _mapped(_alive, self._given) if self._is_loose else self._given


class _Weak(weakref.ref[Any]):
    """Ours, and no reference that the call was given."""


_GONE = object()
_KEPT = (FunctionType, BuiltinFunctionType, ModuleType, type)
"""What is defined rather than made: it lives on."""


def _weak(value: object) -> object:
    if is_a(value, _KEPT):
        return value
    try:
        return _Weak(value)
    except TypeError:
        # Numbers, texts and named tuples may live on, an object of the user's with slots may not.
        return _GONE if is_user_class(type(value)) and not is_a(value, tuple | int | float | str) else value


def _alive(value: object) -> object:
    if not is_a(value, _Weak):
        return value
    found: object = value()
    return _GONE if found is None else found


def _mapped(change: Callable[[object], object], value: Any, depth: int = 8) -> Any:
    """A value with what lies in its plain containers changed."""
    if type(value) not in (tuple, list, dict) or not depth:
        return change(value)
    if type(value) is dict:
        return {k: _mapped(change, v, depth - 1) for k, v in value.items()}
    return type(value)(_mapped(change, v, depth - 1) for v in value)


def _inside(value: Any, depth: int = 8) -> Iterator[object]:
    """What lies in plain containers, to the same depth."""
    if type(value) not in (tuple, list, dict) or not depth:
        yield value
        return
    for part in value.values() if type(value) is dict else value:
        yield from _inside(part, depth - 1)


@dataclass
class Seen:
    """What the calls so far have shown; turned into frozen evidence when somebody asks."""

    calls: list[ev.Call] = field(default_factory=list)
    kept: list[KeptCall] = field(default_factory=list)
    priced: weakref.WeakSet[KeptCall] = field(default_factory=weakref.WeakSet)
    """Calls whose costs are counted when the cell has ended, and that live until then."""
    problems: list[ev.Problem] = field(default_factory=list)
    kinds: set[object] = field(default_factory=set)
    """Kinds of calls that were looked at, as jax tells them apart."""
    diagnosed: set[object] = field(default_factory=set)
    """Forms of calls with the place where they failed, once they were looked into."""
    variables: dict[str, ev.Variable] = field(default_factory=dict)
    writes: dict[str, ev.Write] = field(default_factory=dict)
    differences: list[ev.Difference] = field(default_factory=list)
    lost: list[ev.Loss] = field(default_factory=list)
    waits: tuple[ev.Wait, ...] = ()
    exhausted: ev.Exhausted | None = None
    exhausted_by: BaseException | None = None
    """What said that there was no memory left."""
    too_large: str = ""
    """Why it may not run without jit: what that would take of the memory."""
    notes: list[str] = field(default_factory=list)
    traces: int = 0
    compiles: int = 0
    count: int = 0
    interrupted: bool = False
    """The call that was under way was, and none has ended."""
    printed: str = ""
    tracers_printed: list[tuple[CodeType, int]] = field(default_factory=list)
    """Where the user's code printed some: code, and the instruction in it."""
    compared: bool = False
    """A compiled call's result was held against that of a run without jit."""
    answered: list[tuple[CodeType, int]] = field(default_factory=list)
    """Lines in a `try` of the user's that took an error of jax's tracing for an answer."""
    equations: int | None = None
    folded: bool = False
    dynamic_inputs: int | None = None
    static_verified: tuple[str, ...] | None = None
    silent: ev.Silent | None = None
    search: StaticSearch | None = None
    stages: report.Stages = report.Stages()
    all_stages: report.Stages | None = None
    timing: report.Timing = report.Timing()
    cost: report.Cost = report.Cost()
    lines: tuple[report.LineCost, ...] = ()
    line_times: tuple[report.LineTime, ...] = ()
    remarks: list[report.Remark] = field(default_factory=list)
    earlier: tuple[report.FunctionReport, str] | None = None
    """An earlier run of the same function, and what it is called."""
    what_if: tuple[report.WhatIf, ...] = ()

    def remark(self, remark: report.Remark) -> None:
        """Say once what a reader of the numbers has to know."""
        if remark not in self.remarks:
            self.remarks.append(remark)

    def loosen(self) -> None:
        """Nothing lives on for these calls alone."""
        for call in (*self.kept, *self.priced):
            call.loosen()

    @property
    def samples(self) -> list[KeptCall]:
        """The calls that are kept, and can still be made."""
        return [call for call in self.kept if call.is_whole]

    @property
    def is_wrong(self) -> bool:
        """The compiled calls give or leave something else than plain ones."""
        wrong = ("values", "shape", "structure", "raises")
        return bool(self.lost) or any(d.reason in wrong for d in self.differences)

    @property
    def known(self) -> object:
        """Differs where a look has shown something new."""
        listed = self.problems, self.writes, self.differences, self.notes
        return self.silent, *map(tuple, listed)

    def settle(self, again: Iterable[ev.Write]) -> None:
        """Tell which writes were made once and for all: a run after the first one changed only what is in `again`."""
        moved = {name for w in again for name in (root(w.path), w.path.rpartition(".")[2])}
        for path, write in self.writes.items():
            if not write.tracer and moved.isdisjoint((root(path), path.rpartition(".")[2])):
                self.writes[path] = replace(write, settled=True)

    def add(self, found: ev.Silent) -> None:
        """Add facts to the silent ones that are known, each once."""
        if (old := self.silent) is not None:
            names = [name for name in vars(found) if name != "program"]
            both = {n: tuple(dict.fromkeys([*getattr(old, n), *getattr(found, n)])) for n in names}
            found = replace(found, program=old.program or found.program, **both)
        self.silent = found

    def heard(self, printed: str, of_tracers: Iterable[tuple[CodeType, int]]) -> None:
        """What the user's code printed while jax traced it, and where it printed traced values."""
        self.printed = self.printed or printed
        self.tracers_printed += of_tracers

    def note(self, text: str) -> None:
        """Say once what was left out."""
        if text not in self.notes:
            self.notes.append(text)


class Variants:
    """The frozen values of each trace. Kinds of calls are told apart only once two traces hold different values."""

    def __init__(self) -> None:
        self.newest: Frozen | None = None
        self.differ = False
        """Two of the traces hold different values, or those of different objects."""
        self._by_kind: dict[tuple[int, Hashable], Frozen] = {}
        self._by_first: dict[Hashable, list[Frozen]] = {}

    def add(self, kind: tuple[int, Hashable], frozen: Frozen, first: Hashable = None) -> None:
        """A call of this kind was traced, with these values; `first`: the kind of its first argument."""
        others = any(of != kind[0] for of, _ in self._by_kind)
        self.differ = self.differ or others or (self.newest is not None and bool(self.newest.changed()))
        self._by_kind[kind] = self.newest = frozen
        self._by_first.setdefault(first, []).append(frozen)

    def of(self, kind: Callable[[], tuple[int, Hashable]]) -> Frozen | None:
        """What a call goes on with that jax does not trace anew; `kind` tells which one it is, where that matters."""
        return self._by_kind.get(kind(), self.newest) if self.differ else self.newest

    def begun_with(self, first: Hashable) -> Frozen | None:
        """What a call goes on with of which only the kind of the first argument is known; None where that may be
        the one or the other."""
        found = self._by_first.get(first, ())
        return found[0] if len(found) == 1 else None
