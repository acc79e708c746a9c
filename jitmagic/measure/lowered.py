"""Source lines in the optimised program: which instructions a line ended in, and which lines were fused.

XLA keeps with each instruction the frames that it came from, in tables at the head of the program's text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_CHARACTERS = 2_000_000
"""Of a longer program nothing is read: a report must not take seconds."""

INSTRUCTIONS = 8
WIDTH = 160
"""What is kept of a line's instructions."""

PARTNERS = 8
"""How many lines of the same fusions are told by number."""

_NAME = re.compile(r'^(\d+) "(.*)"$')
_LOCATION = re.compile(r"^(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)")
_FRAME = re.compile(r"^(\d+) \{file_location_id=(\d+)(?: parent_frame_id=(\d+))?")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (?:\(.*?\)|\S+) ([a-z][\w\-]*)\(")
_FUSION = re.compile(r"\bfusion\(.*calls=%?([\w.\-]+)")
_ID = re.compile(r"stack_frame_id=(\d+)")
_OLD = re.compile(r'source_file="([^"]*)" source_line=(\d+)')
_NOISE = re.compile(r", (?:metadata|backend_config|frontend_attributes)=\{.*$")
_TRIVIAL = frozenset("parameter constant tuple get-tuple-element bitcast broadcast".split())


@dataclass
class Lowered:
    """What became of one source line."""

    fusions: list[str] = field(default_factory=list)
    """Names of the fusions, or of single instructions (`dot`), in the order of the program."""
    instructions: list[str] = field(default_factory=list)


def lowered_lines(hlo: str, file: str) -> dict[int, Lowered]:
    """What became of each line of `file`, from the text of an optimised program."""
    if len(hlo) > MOST_CHARACTERS:
        return {}
    frames = _frames(hlo, file)
    fusions = {inner: _INSTRUCTION.match(line)[1] for line in hlo.splitlines()  # type: ignore[index]
               for inner in _FUSION.findall(line) if _INSTRUCTION.match(line)}  # fmt: skip
    found: dict[int, Lowered] = {}
    computation = ""
    for text in hlo.splitlines():
        if (head := _COMPUTATION.match(text)) is not None:
            computation = head[1]
            continue
        match = _INSTRUCTION.match(text)
        line = _line(text, frames, file) if match is not None else None
        if match is None or line is None or match[2] in _TRIVIAL:
            continue
        lowered = found.setdefault(line, Lowered())
        name = fusions.get(computation) or (match[1] if match[2] == "fusion" else match[2])
        if name not in lowered.fusions:
            lowered.fusions.append(name)
        if match[2] != "fusion":
            lowered.instructions.append(_NOISE.sub("", text).strip().removeprefix("ROOT ")[:WIDTH])
    return found


def lines_of_fusions(lines: dict[int, Lowered]) -> dict[str, list[int]]:
    """The lines whose operations lie in each fusion, in order."""
    found: dict[str, list[int]] = {}
    for line in sorted(lines):
        for name in dict.fromkeys(lines[line].fusions):
            if "fusion" in name:
                found.setdefault(name, []).append(line)
    return found


def fused_with(lines: dict[int, Lowered], fusions: dict[str, list[int]], line: int) -> tuple[list[int], int]:
    """The first few of the other lines in the fusions of this one, and how many more there are."""
    mine = [fusions[f] for f in lines[line].fusions if f in fusions] if line in lines else []
    others = sorted({*mine[0]}.union(*mine[1:]) - {line}) if len(mine) > 1 else []
    if len(mine) == 1:  # the usual case: no set of hundreds of lines for each of them
        first = [n for n in mine[0][: PARTNERS + 1] if n != line][:PARTNERS]
        return first, len(mine[0]) - 1 - len(first)
    return others[:PARTNERS], len(others[PARTNERS:])


def _line(text: str, frames: dict[int, int], file: str) -> int | None:
    if (match := _ID.search(text)) is not None:
        return frames.get(int(match[1]))
    old = _OLD.search(text)
    return int(old[2]) if old is not None and old[1] == file else None


def _frames(hlo: str, file: str) -> dict[int, int]:
    """The innermost line of `file` for each frame."""
    names: set[int] = set()
    locations: dict[int, int] = {}
    parents: dict[int, tuple[int, int]] = {}
    section = ""
    for text in hlo.splitlines():
        if text in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            section = text
        elif section == "FileNames" and (match := _NAME.match(text)) is not None:
            names |= {int(match[1])} if match[2] == file else set()
        elif section == "FileLocations" and (match := _LOCATION.match(text)) is not None:
            if int(match[2]) in names:
                locations[int(match[1])] = int(match[3])
        elif section == "StackFrames" and (match := _FRAME.match(text)) is not None:
            parents[int(match[1])] = int(match[2]), int(match[3] or 0)
        elif text.startswith(("%", "ENTRY")):
            break
    # the outermost frame's parent is its own number where XLA counts parents from 1
    shift = 1 if parents.get(1, (0, 0))[1] == 1 else 0
    found: dict[int, int] = {}
    for frame, (at, _) in parents.items():
        seen = 0
        current = frame
        while at not in locations and seen < 100:
            current, seen = parents.get(current, (0, 0))[1] - shift, seen + 1
            if current <= 0 or current not in parents:
                break
            at = parents[current][0]
        if at in locations:
            found[frame] = locations[at]
    return found
