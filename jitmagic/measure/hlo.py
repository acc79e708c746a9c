"""The text of an optimised program, read once: its instructions, what they call, and the source lines they come from.

XLA keeps with each instruction the frames that it came from, in tables at the head of the text.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST_CHARACTERS = 2_000_000
"""Of a longer program nothing is read: a report must not take seconds."""

Place = tuple[str, int]
"""A file and a line of it."""

_MODULE = re.compile(r"HloModule ([\w.\-]+)")
_NAME = re.compile(r'^(\d+) "(.*)"$')
_LOCATION = re.compile(r"^(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)")
_FRAME = re.compile(r"^(\d+) \{file_location_id=(\d+)(?: parent_frame_id=(\d+))?")
_TABLES = frozenset(("FileNames", "FunctionNames", "FileLocations", "StackFrames"))
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((.*)$")
_CALLED = re.compile(
    r"\b(?:calls|body|condition|(?:true|false)_computation)=%?([\w.\-]+)|branch_computations=\{([^}]*)\}"
)
_APPLIED = re.compile(r"\bto_apply=%?([\w.\-]+)")
_OPERAND = re.compile(r"%([\w.\-]+)")
_SHAPE = re.compile(r"([a-z]+)(\d*)\w*\[([\d,]*)\]")
_ID = re.compile(r"stack_frame_id=(\d+)")
_OLD = re.compile(r'source_file="([^"]*)" source_line=(\d+)')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


@dataclass(frozen=True)
class ArrayShape:
    """One array of an instruction's result."""

    dimensions: tuple[int, ...]
    width: int
    """Bytes of an element."""

    @property
    def elements(self) -> int:
        """Their number."""
        return math.prod(self.dimensions)


@dataclass(frozen=True)
class Instruction:
    """One line of the program: `%name = shape opcode(rest`."""

    name: str
    shape_text: str
    opcode: str
    rest: str
    computation: str
    text: str

    @functools.cached_property
    def shapes(self) -> tuple[ArrayShape, ...]:
        """The arrays that it gives, one unless it gives a tuple."""
        found = _SHAPE.findall(self.shape_text)
        return tuple(
            ArrayShape(
                tuple(int(d) for d in dims.split(",") if d),
                1 if kind == "pred" or not bits else int(bits) // 8,
            )
            for kind, bits, dims in found
        )

    @property
    def elements(self) -> int:
        """Elements of all that it gives."""
        return sum(shape.elements for shape in self.shapes)

    @functools.cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of the instructions that it reads."""
        return tuple(_OPERAND.findall(self.rest.partition("), ")[0]))

    @functools.cached_property
    def called(self) -> tuple[str, ...]:
        """Names of the computations that it runs as a whole: a fusion's, a loop's, a call's."""
        found = [name for one, many in _CALLED.findall(self.rest) for name in (one or many).split(",")]
        if self.opcode in ("call", "async-start"):
            found += _APPLIED.findall(self.rest)
        return tuple(name.strip(" %") for name in found)

    @property
    def turns(self) -> int:
        """How often a loop runs its body, where the compiler knows; else 1."""
        match = _TRIPS.search(self.rest) if self.opcode == "while" else None
        return int(match[1]) if match is not None else 1


@dataclass
class Hlo:
    """An optimised program."""

    name: str = ""
    bodies: dict[str, dict[str, Instruction]] = field(default_factory=dict)
    """Instructions by their names, for each computation in the order of the text."""
    frames: dict[int, tuple[Place, ...]] = field(default_factory=dict)
    """The places of each frame, the innermost first."""

    def __iter__(self) -> Iterator[Instruction]:
        for body in self.bodies.values():
            yield from body.values()

    @functools.cached_property
    def by_name(self) -> dict[str, Instruction]:
        """Every instruction; names are unique in a program."""
        return {instruction.name: instruction for instruction in self}

    @functools.cached_property
    def readers(self) -> dict[str, list[Instruction]]:
        """The instructions that read each, by its name."""
        found: dict[str, list[Instruction]] = {}
        for instruction in self:
            for name in instruction.operands:
                found.setdefault(name, []).append(instruction)
        return found

    def applied(self, instruction: Instruction) -> list[Instruction]:
        """What gives the results of the computations that it runs for each element."""
        runs = (self.bodies.get(name) for name in _APPLIED.findall(instruction.rest))
        return [body[next(reversed(body))] for body in runs if body]

    def places(self, instruction: Instruction) -> tuple[Place, ...]:
        """Source lines that the instruction comes from, the innermost first."""
        if (match := _ID.search(instruction.rest)) is not None:
            return self.frames.get(int(match[1]), ())
        old = _OLD.search(instruction.rest)
        return ((old[1], int(old[2])),) if old is not None else ()

    def line(self, instruction: Instruction, file: str) -> int | None:
        """The innermost line of `file` that the instruction comes from."""
        return next((line for name, line in self.places(instruction) if name == file), None)


def text_of(compiled: object) -> str:
    """The text of what `jax.stages.Lowered.compile` returned; '' where there is none."""
    try:
        return str(getattr(compiled, "as_text")() or "")  # noqa: B009
    except Exception:
        return ""


@functools.lru_cache(maxsize=1)
def read(text: str) -> Hlo:
    """The program in this text; an empty one where it is longer than `MOST_CHARACTERS`. Not to be changed."""
    module = _MODULE.match(text)
    found = Hlo(module[1] if module is not None else "")
    if len(text) > MOST_CHARACTERS:
        return found
    tables: dict[str, list[str]] = {name: [] for name in _TABLES}
    section, computation = "", ""
    for line in text.splitlines():
        if (head := _COMPUTATION.match(line)) is not None:
            computation, section = head[1], ""
        elif (match := _INSTRUCTION.match(line)) is not None:
            found.bodies.setdefault(computation, {})[match[1]] = Instruction(
                match[1], match[2], match[3], match[4], computation, line
            )
        elif line in tables:
            section = line
        elif section:
            tables[section].append(line)
    found.frames = _frames(tables)
    return found


def _frames(tables: dict[str, list[str]]) -> dict[int, tuple[Place, ...]]:
    names = {int(m[1]): m[2] for m in map(_NAME.match, tables["FileNames"]) if m}
    located = [m for m in map(_LOCATION.match, tables["FileLocations"]) if m]
    locations = {int(m[1]): (names.get(int(m[2]), ""), int(m[3])) for m in located}
    framed = [m for m in map(_FRAME.match, tables["StackFrames"]) if m]
    parents = {int(m[1]): (int(m[2]), int(m[3] or 0)) for m in framed}
    # the outermost frame's parent is its own number where XLA counts parents from 1
    shift = 1 if parents.get(1, (0, 0))[1] == 1 else 0
    found: dict[int, tuple[Place, ...]] = {}
    for frame, (at, parent) in sorted(parents.items()):
        outer = found.get(parent - shift, ()) if parent - shift < frame else ()
        found[frame] = ((locations[at], *outer) if at in locations else outer)[:100]
    return found
