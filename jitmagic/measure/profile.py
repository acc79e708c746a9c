"""One call in jax's profiler: the seconds of each operation of a compiled program, and of each source line.

A trace holds an event for each operation that ran, on a CPU and on what is faster, with the operation's name in the
optimised program. What was fused is one event: it is shared among the lines in it, by the work of their operations.
"""

from __future__ import annotations

import functools
import linecache
import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jax

from jitmagic.measure import hlo
from jitmagic.measure.folding import MOVES, operations
from jitmagic.measure.lowered import TRIVIAL
from jitmagic.report import LineTime
from jitmagic.tracing import compat
from jitmagic.tracing.locate import is_user_file
from jitmagic.work import clock

if TYPE_CHECKING:
    from jax.profiler import ProfileData

LEAST_S = 50e-6
"""Of a program whose operations take less, a trace tells more of the profiler than of the program."""

WANTED_S = 0.02
MOST_CALLS = 20
"""Calls that are traced: as many as last `WANTED_S` together, up to `MOST_CALLS`."""
LONGER_S, LONGER_CALLS, LONGEST_S = 1.0, 1000, 5.0
"""The same for a longer look; and how long that goes on, as a trace of the shortest call takes a tenth of a second."""

NEAR = 4
"""How far the readers of an operation are followed to one that has a line."""

MOST_EVENTS = 200_000
KNOWN = 0.7
"""The part of the time whose lines have to be known."""

_END = "end: "
_NO_NAME = re.compile(r"[^A-Za-z0-9_]")
"""What names of operations have and those of kernels do not."""
_NAMED, _LOOP = re.compile(r'op_name="([^"]*)"'), re.compile(r'op_name="[^"]*/while"')

_SLOW = frozenset(
    "exponential exponential-minus-one log log-plus-one logistic tanh sine cosine tan power erf atan2 cbrt rsqrt sqrt "
    "divide remainder".split()
)
_ELEMENT, _SLOW_ELEMENT, _MOVED_ELEMENT, _LIBRARY_ELEMENT = 8.0, 60.0, 2.0, 200.0
"""What an element costs in units of one operation of a matrix product, roughly: only shares inside of one fusion or
loop hang on it."""


class NotProfiled(Exception):
    """Why there is no profile, in words."""


@dataclass(frozen=True)
class OperationEvent:
    """An operation at work, in nanoseconds; `lane` is a thread or a stream."""

    start: float
    end: float
    name: str
    lane: int


def line_times(
    call: Callable[[], object], program: hlo.Hlo, file: str, call_s: float, longer: bool = False,
    unplaced: Sequence[int] = (),
) -> tuple[LineTime, ...]:  # fmt: skip
    """What each line takes of one call of about `call_s` seconds, those of `file` first; the lines of what jax compiles
    without a place are given. Raises NotProfiled."""
    if call_s < LEAST_S and not longer:
        raise NotProfiled("the program is too short to be measured by line")
    if not program.bodies:
        raise NotProfiled("the compiled program is too long, or shows no text")
    if (events := expected_events(program)) > MOST_EVENTS and not longer:
        raise NotProfiled(f"its loops run about {events:,.0f} operations")
    wanted, most = (LONGER_S, LONGER_CALLS) if longer else (WANTED_S, MOST_CALLS)
    calls = max(1, min(most, math.ceil(wanted / max(call_s, 1e-6))))
    until = clock() + LONGEST_S
    # the fastest call: what held up the others, another program or the machine, is no part of it
    each = [operation_times(_traced(call), program)]
    while len(each) < calls and clock() < until:
        each.append(operation_times(_traced(call), program))
    spent = min(each, key=lambda one: sum(one.values()))
    total = sum(spent.values())
    if total < LEAST_S and not longer:
        raise NotProfiled("the program is too short to be measured by line")
    seconds, shared = _by_line(spent, program, [(file, line) for line in unplaced])
    if total - seconds.pop(None, 0.0) < KNOWN * total:
        raise NotProfiled("the trace does not tell from which lines its operations come")
    found = [_line_time(place, file, s, place in shared) for place, s in seconds.items() if place]
    return tuple(sorted(found, key=lambda time: (time.cell or "", time.line)))


def _line_time(place: hlo.Place, file: str, seconds: float, shared: bool) -> LineTime:
    name, line = place
    if name == file:
        return LineTime(line, seconds, shared)
    return LineTime(line, seconds, shared, name, linecache.getline(name, line).strip())


def _traced(call: Callable[[], object]) -> ProfileData:
    try:
        return compat.profiled(lambda: jax.block_until_ready(call()))
    except compat.ProfilerBusy:
        raise NotProfiled("another tool holds the profiler") from None
    except compat.NoProfiler:
        raise NotProfiled("this jax has no profiler") from None


def keep_trace(call: Callable[[], object], directory: str) -> None:
    """One call more, whose trace is written for other viewers. Raises NotProfiled."""
    try:
        with jax.profiler.trace(directory):
            jax.block_until_ready(call())
    except RuntimeError as exc:
        raise NotProfiled(f"the trace could not be kept: {exc}") from None


def expected_events(program: hlo.Hlo) -> float:
    """About how many events one call gives: operations in loops as often as they run, where that is known."""
    times = _turns(program)
    return sum(times[i.computation] for i in program if i.opcode not in TRIVIAL)


def _turns(program: hlo.Hlo) -> dict[str, float]:
    """How often the operations of a computation run by themselves; those inside of fusions do not."""
    times: dict[str, float] = defaultdict(float)
    bodies = list(program.bodies)
    times[bodies[-1]] = 1.0
    for name in reversed(bodies):  # a computation stands in front of those that call it
        for instruction in program.bodies[name].values():
            if instruction.opcode != "fusion":
                for inner in instruction.called:
                    times[inner] += times[name] * instruction.turns
    return times


# -- from events to operations


def operation_times(data: ProfileData, program: hlo.Hlo) -> dict[str, float]:
    """Seconds by operation. What runs at the same time shares that time; where none runs, those that have begun and not
    ended do (their work goes on in threads that no event tells of)."""
    with (
        warnings.catch_warnings()
    ):  # a warning of the profiler's own types, as an error, would end the process
        warnings.simplefilter("ignore")
        events, ends = _events(data, program)
    changes: list[tuple[float, int, bool, str]] = []
    for piece in _exclusive(events):
        changes += [(piece.start, 1, True, piece.name), (piece.end, -1, True, piece.name)]
    for start, end, name in _waiting(events, ends):
        changes += [(start, 1, False, name), (end, -1, False, name)]
    changes.sort(key=lambda change: change[:2])
    running, begun = Counter[str](), Counter[str]()
    out: dict[str, float] = defaultdict(float)
    before = changes[0][0] if changes else 0.0
    for at, step, runs, name in changes:
        active = running or begun
        if at > before and active:
            share = (at - before) / len(active) / 1e9
            for one in active:
                out[one] += share
        before = at
        counter = running if runs else begun
        counter[name] += step
        if not counter[name]:
            del counter[name]
    return out


def _events(data: ProfileData, program: hlo.Hlo) -> tuple[list[OperationEvent], list[OperationEvent]]:
    """Events of the program's operations, and the marks that tell where one has ended."""
    found: list[OperationEvent] = []
    ends: list[OperationEvent] = []
    kernels: list[OperationEvent] = []
    lines = [(plane.name.startswith("/device:"), line) for plane in data.planes for line in plane.lines]
    for lane, (device, line) in enumerate(lines):
        for event in line.events:
            ended = event.name.removeprefix(_END)
            if ended != event.name:
                if ended in program.by_name:
                    ends.append(OperationEvent(event.start_ns, event.end_ns, ended, lane))
            elif device or event.name in program.by_name:
                told = dict(event.stats)  # a kernel of a GPU has a name of its own
                name = str(told.get("hlo_op", ""))
                if told.get("hlo_module") != program.name:
                    continue
                if name in program.by_name:
                    found.append(OperationEvent(event.start_ns, event.end_ns, name, lane))
                elif device and name:
                    kernels.append(OperationEvent(event.start_ns, event.end_ns, event.name, lane))
    return [*found, *_operations_of(kernels, program)], ends


_MOVED = ("Memset", "Memcpy")


def _operations_of(kernels: list[OperationEvent], program: hlo.Hlo) -> Iterator[OperationEvent]:
    """Kernels that a GPU was given many at a time (as a graph), by their operations: a fusion's kernel has its name, or
    that of an equal fusion, one of a library's belongs to the next call of a library in the order of the program."""
    named = {_NO_NAME.sub("_", i.name): i for i in program if i.opcode not in TRIVIAL}
    seen = {named[kernel.name].name for kernel in kernels if kernel.name in named}
    nameless = [i for i in program if i.opcode == "fusion" and i.name not in seen]
    schedule = _Schedule(program)
    last: hlo.Instruction | None = None
    for kernel in sorted(kernels, key=lambda kernel: kernel.start):
        if kernel.name.startswith(_MOVED):
            continue
        if (operation := named.get(kernel.name)) is not None:
            equal = {i.name for i in nameless if i.shape_text == operation.shape_text}
            last = schedule.next_of({operation.name} | equal, last) or operation
        else:
            last = schedule.library_call_after(last)
        if last is not None:
            yield replace(kernel, name=last.name)


class _Schedule:
    """The operations of a program in the order in which they run, those of a loop's body once."""

    def __init__(self, program: hlo.Hlo) -> None:
        self.program = program
        bodies = list(program.bodies)
        self.order = [i for i in self._flat(bodies[-1]) if i.opcode not in TRIVIAL] if bodies else []
        self.at = {i.name: k for k, i in enumerate(self.order)}

    def _flat(self, computation: str) -> Iterator[hlo.Instruction]:
        for instruction in self.program.bodies.get(computation, {}).values():
            if instruction.opcode != "fusion":
                for inner in instruction.called:
                    yield from self._flat(inner)
            yield instruction

    def library_call_after(self, last: hlo.Instruction | None) -> hlo.Instruction | None:
        """The call of a library that runs next after `last`; `last` itself where it is one and none follows at once: it
        had several kernels."""
        coming = self._coming(last)
        at_once = bool(coming) and coming[0].opcode == "custom-call"
        if last is not None and last.opcode == "custom-call" and not at_once:
            return last
        return next((i for i in coming if i.opcode == "custom-call"), None)

    def next_of(self, names: Collection[str], last: hlo.Instruction | None) -> hlo.Instruction | None:
        """The first of these that runs after `last`."""
        return next((i for i in self._coming(last) if i.name in names), None)

    def _coming(self, last: hlo.Instruction | None) -> list[hlo.Instruction]:
        """What runs after it: the rest of its computation, in a loop that from the top, and then what comes later."""
        if last is None or last.name not in self.at:
            return self.order
        later = self.order[self.at[last.name] + 1 :]
        if last.computation == self.order[-1].computation:
            return later
        turn = [i for i in self.order if i.computation == last.computation]
        return [i for i in later if i.computation == last.computation] + turn + later


def _exclusive(events: Iterable[OperationEvent]) -> Iterator[OperationEvent]:
    """The events of each lane without what others in them take: a loop without its operations."""
    open_: list[OperationEvent] = []
    at = 0.0
    for event in sorted(events, key=lambda e: (e.lane, e.start, -e.end)):
        while open_ and (open_[-1].lane != event.lane or open_[-1].end <= event.start):
            done = open_.pop()
            yield OperationEvent(at, done.end, done.name, done.lane)
            at = done.end
        if open_:
            yield OperationEvent(at, event.start, open_[-1].name, event.lane)
        open_.append(event)
        at = event.start
    while open_:
        done = open_.pop()
        yield OperationEvent(at, done.end, done.name, done.lane)
        at = done.end


def _waiting(
    events: Sequence[OperationEvent], ends: Sequence[OperationEvent]
) -> Iterator[tuple[float, float, str]]:
    """From where an operation was handed to other threads to where it is done."""
    starts: dict[str, list[float]] = defaultdict(list)
    for event in sorted(events, key=lambda e: e.start):
        starts[event.name].append(event.start)
    for end in ends:
        before = [s for s in starts[end.name] if s <= end.start]
        if before:
            yield before[-1], end.end, end.name


# -- from operations to lines


def _by_line(
    seconds: Mapping[str, float], program: hlo.Hlo, unplaced: Sequence[hlo.Place] = ()
) -> tuple[dict[hlo.Place | None, float], set[hlo.Place]]:
    """Each operation's seconds shared among its lines (None: no line of the user's), and the lines that share one."""
    shares = _Shares(program, unplaced)
    out: dict[hlo.Place | None, float] = defaultdict(float)
    shared: set[hlo.Place] = set()
    for name, spent in seconds.items():
        parts = shares.of(program.by_name[name])
        for place, part in parts.items():
            out[place] += spent * part
        shared |= {place for place in parts if place is not None and len(parts) > 1}
    return out, shared


class _Shares:
    """Which parts of an operation belong to which lines."""

    def __init__(self, program: hlo.Hlo, unplaced: Sequence[hlo.Place]) -> None:
        self.program, self.unplaced = program, unplaced
        self.inside = functools.cache(self._inside)

    def of(self, instruction: hlo.Instruction) -> Mapping[hlo.Place | None, float]:
        """The lines in an operation with their parts, which sum up to 1."""
        weights = self._weights(instruction) if instruction.called else {}
        total = sum(weights.values())
        if not total:
            places = self.places(instruction)
            return dict.fromkeys(places, 1 / len(places))
        return {place: weight / total for place, weight in weights.items()}

    def places(self, instruction: hlo.Instruction) -> Sequence[hlo.Place | None]:
        """Where an operation stands, or may stand."""
        is_unplaced = bool(self.unplaced) and self._is_unplaced(instruction)
        return self.unplaced if is_unplaced else [self.place(instruction)]

    def _is_unplaced(self, instruction: hlo.Instruction) -> bool:
        """It has the name of an operation of jax's without the way to it, or runs one that has."""
        if self.program.places(instruction) or instruction.opcode in TRIVIAL:
            return False
        if (named := _NAMED.search(instruction.rest)) is not None:
            return "/" not in named[1]
        return any(map(self._is_unplaced, self.program.applied(instruction)))

    def place(self, instruction: hlo.Instruction) -> hlo.Place | None:
        """The innermost line of the user's; of what has none, that of a reader, or of an operand."""
        program, near = self.program, [instruction]
        for _ in range(NEAR):
            for one in near:
                if (place := self._own_place(one)) is not None:
                    return place
            near = [r for one in near for r in program.readers.get(one.name, ())]
        operands = (program.by_name.get(name) for name in instruction.operands)
        found = next(filter(None, (self._own_place(o) for o in operands if o is not None)), None)
        return found or self._users_place(instruction)

    def _own_place(self, instruction: hlo.Instruction) -> hlo.Place | None:
        """None too for what the compiler has put in a loop's body under the name of the loop."""
        of_loop = _LOOP.search(instruction.rest) is not None
        in_place_of = of_loop and instruction.opcode not in ("while", "call")
        return None if in_place_of else self._users_place(instruction)

    def _users_place(self, instruction: hlo.Instruction) -> hlo.Place | None:
        told = [p for i in (instruction, *self.program.applied(instruction)) for p in self.program.places(i)]
        return next((p for p in told if is_user_file(p[0])), None)

    def _weights(self, instruction: hlo.Instruction) -> dict[hlo.Place, float]:
        """The work inside of an operation, by line."""
        out: dict[hlo.Place, float] = defaultdict(float)
        for name in instruction.called:
            for place, weight in self.inside(name).items():
                out[place] += weight * instruction.turns
        return out

    def _inside(self, computation: str) -> dict[hlo.Place, float]:
        out: dict[hlo.Place, float] = defaultdict(float)
        for instruction in self.program.bodies.get(computation, {}).values():
            inner = self._weights(instruction) if instruction.called else None
            if inner:
                for place, weight in inner.items():
                    out[place] += weight
            elif None not in (places := self.places(instruction)):
                for place in filter(None, places):
                    out[place] += work(instruction, self.program) / len(places)
        return out


def work(instruction: hlo.Instruction, program: hlo.Hlo) -> float:
    """What an instruction costs beside others of the same fusion or loop, roughly."""
    if instruction.opcode in TRIVIAL:
        return 0.0
    if instruction.opcode in MOVES:
        return (_SLOW_ELEMENT if instruction.opcode == "gather" else _MOVED_ELEMENT) * instruction.elements
    done = operations(instruction, program)
    if instruction.opcode == "dot":
        return done
    if math.isinf(done):  # a sort, a decomposition
        operands = (program.by_name.get(name) for name in instruction.operands)
        size = max((o.elements for o in operands if o is not None), default=0)
        return _LIBRARY_ELEMENT * max(size, instruction.elements)
    return done * (_SLOW_ELEMENT if instruction.opcode in _SLOW else _ELEMENT)
