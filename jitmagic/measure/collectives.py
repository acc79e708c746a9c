"""What the compiler inserted so that devices can share an array: collectives in the optimised program."""

from __future__ import annotations

from jitmagic.measure import hlo
from jitmagic.report import Collective

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)


def collectives(text: str) -> tuple[Collective, ...]:
    """Kinds of communication in the text of an optimised program, with their number and bytes.

    Bytes are those of the results on one device; of a start with its operands beside the result, the larger."""
    program = hlo.read(text)
    loops = {name for i in program if i.opcode == "while" for name in i.called}
    counts: dict[str, list[int]] = {}
    inside: dict[str, bool] = {}
    for instruction in program:
        name = instruction.opcode.removesuffix("-start")
        if name not in KINDS:
            continue
        sizes = [shape.elements * shape.width for shape in instruction.shapes]
        size = sum(sizes) if name == instruction.opcode else max(sizes, default=0)
        counts.setdefault(name, []).append(size)
        inside[name] = inside.get(name, False) or instruction.computation in loops
    return tuple(Collective(n, len(sizes), sum(sizes), inside[n]) for n, sizes in sorted(counts.items()))
