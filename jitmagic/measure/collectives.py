"""What the compiler inserted so that devices can share an array: collectives in the optimised program."""

from __future__ import annotations

import math
import re

from jitmagic.report import Collective

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)

_INSTRUCTION = re.compile(rf"^\s*(?:ROOT )?%?[\w.\-]+ = (\(.*?\)|\S+) ({'|'.join(KINDS)})(-start)?\(")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_SHAPE = re.compile(r"([a-z]+)(\d*)\w*\[([\d,]*)\]")
_BODY = re.compile(r"(?:body|condition)=%?([\w.\-]+)")


def collectives(hlo: str) -> tuple[Collective, ...]:
    """Kinds of communication in the text of an optimised program, with their number and bytes.

    Bytes are those of the results on one device; of a start with its operands beside the result, the larger."""
    loops = set(_BODY.findall(hlo))
    counts: dict[str, list[int]] = {}
    inside: dict[str, bool] = {}
    computation = ""
    for line in hlo.splitlines():
        if (match := _COMPUTATION.match(line)) is not None:
            computation = match[1]
        if (match := _INSTRUCTION.match(line)) is None:
            continue
        shape, name, start = match.groups()
        counts.setdefault(name, []).append(_bytes(shape, bool(start)))
        inside[name] = inside.get(name, False) or computation in loops
    return tuple(Collective(n, len(sizes), sum(sizes), inside[n]) for n, sizes in sorted(counts.items()))


def _bytes(shape: str, start: bool) -> int:
    sizes = [_size(*match) for match in _SHAPE.findall(shape)]
    return max(sizes, default=0) if start else sum(sizes)


def _size(kind: str, bits: str, dimensions: str) -> int:
    width = 8 if kind == "pred" or not bits else int(bits)
    return math.prod(int(d) for d in dimensions.split(",") if d) * width // 8
