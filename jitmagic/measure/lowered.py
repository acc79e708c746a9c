"""Source lines in the optimised program: which instructions a line ended in, and which lines were fused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from jitmagic.measure import hlo

INSTRUCTIONS = 8
WIDTH = 160
"""What is kept of a line's instructions."""

PARTNERS = 8
"""How many lines of the same fusions are told by number."""

_NOISE = re.compile(r", (?:metadata|backend_config|frontend_attributes)=\{.*$")
TRIVIAL = frozenset("parameter constant tuple get-tuple-element bitcast broadcast".split())
"""Instructions that cost nothing by themselves."""


@dataclass
class Lowered:
    """What became of one source line."""

    fusions: list[str] = field(default_factory=list)
    """Names of the fusions, or of single instructions (`dot`), in the order of the program."""
    instructions: list[str] = field(default_factory=list)


def lowered_lines(text: str, file: str) -> dict[int, Lowered]:
    """What became of each line of `file`, from the text of an optimised program."""
    program = hlo.read(text)
    fusions = {inner: i.name for i in program if i.opcode == "fusion" for inner in i.called}
    found: dict[int, Lowered] = {}
    for instruction in program:
        line = None if instruction.opcode in TRIVIAL else program.line(instruction, file)
        if line is None:
            continue
        lowered, fused = found.setdefault(line, Lowered()), instruction.opcode == "fusion"
        name = fusions.get(instruction.computation) or (instruction.name if fused else instruction.opcode)
        if name not in lowered.fusions:
            lowered.fusions.append(name)
        if not fused:
            kept = _NOISE.sub("", instruction.text).strip().removeprefix("ROOT ")
            lowered.instructions.append(kept[:WIDTH])
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
