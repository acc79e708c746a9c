"""The function vmapped, differentiated or shared by devices: what it would cost, beside what it costs now."""

from __future__ import annotations

from collections.abc import Sequence

from jitmagic import units
from jitmagic.render.escape import shorten
from jitmagic.render.parts import Cell, Inline, Para, Part, Phrase, Section, Table, runs
from jitmagic.report import Cost, WhatIf

WORDS = 400
NAMES = 8

COLLECTIVES = {
    "all-reduce": "adds up parts of all devices",
    "all-gather": "gives every device the whole array",
    "reduce-scatter": "adds up, and leaves a part on each device",
    "all-to-all": "splits along another axis",
    "collective-permute": "moves parts to neighbours",
    "collective-broadcast": "sends one device's array to all",
}


def section(answers: Sequence[WhatIf]) -> Section | None:
    """One table of costs, and what is to be said about each answer."""
    if not answers:
        return None
    good = [a for a in answers if a.works]
    parts: list[Part] = []
    if good:
        rows = [_plain(good[0].plain), *(row for a in good for row in _rows(a))]
        head = ("what", "flop", "bytes", "memory", "trace", "compile")
        parts.append(Table(head, tuple(rows), frozenset({1, 2, 3, 4, 5})))
    for answer in answers:
        parts += _remarks(answer)
    return Section((Phrase("what if:", "strong"),), tuple(parts))


def _plain(cost: Cost) -> tuple[Cell, ...]:
    return ((Phrase("as it is"),), *_costs(cost, cost), (Phrase(""),), (Phrase(""),))


def _rows(answer: WhatIf) -> list[tuple[Cell, ...]]:
    title = answer.title + (", each" if answer.kind == "devices" else "")
    stages = answer.stages
    compiling = sum(s or 0.0 for s in (stages.lower_s, stages.compile_s)) if stages.compile_s else None
    times = (units.seconds(s) if s is not None else "" for s in (stages.trace_s, compiling))
    return [(runs(title), *_costs(answer.cost, answer.plain), *((Phrase(t),) for t in times))]


def _costs(cost: Cost, plain: Cost) -> list[Inline]:
    pairs = (
        (cost.flops, plain.flops, "flop"),
        (cost.bytes, plain.bytes, "B"),
        (cost.peak_bytes, plain.peak_bytes, "B"),
    )
    return [(Phrase(_beside(value, before, unit)),) for value, before, unit in pairs]


def _beside(value: float | None, before: float | None, unit: str) -> str:
    if value is None:
        return ""
    ratio = value / before if before else None
    same = ratio is None or 0.97 <= ratio <= 1.03
    times = "" if same else f" ({units.times(ratio or 0.0)})"
    return units.scaled(value, unit) + times


def _remarks(answer: WhatIf) -> list[Part]:
    if not answer.works:
        line = f" (line {answer.line})" if answer.line else ""
        return [
            Para((*runs(f"{answer.title} does not work{line}: "), *runs(shorten(answer.message, WORDS))), "-")
        ]
    told = [f"{answer.title}: {note}" for note in answer.notes]
    if answer.kind == "devices":
        told += [_communication(answer), _replicated(answer)]
    return [Para(runs(shorten(text, WORDS)), "-") for text in told if text]


def _communication(answer: WhatIf) -> str:
    if not answer.collectives:
        return "the devices exchange nothing" if answer.stages.compile_s is not None else ""
    each = [
        f"{c.count} × {c.name} ({COLLECTIVES.get(c.name, 'moves data')}, {units.size(c.bytes)}"
        f"{', some in a loop, once a round' if c.in_loop else ''})"
        for c in answer.collectives
    ]
    return f"per call the compiler inserted {units.listed(each)} on each device"


def _replicated(answer: WhatIf) -> str:
    if not answer.replicated:
        return ""
    names = units.listed([f"`{name}`" for name in answer.replicated], NAMES)
    return f"every device holds {names} whole, {units.size(answer.replicated_bytes)} on each"
