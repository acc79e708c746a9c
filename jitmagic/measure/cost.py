"""What a traced program costs: operations and bytes, in all and per source line.

Counted from the jaxpr and not asked of the backend, whose own analysis counts a loop's body once and differs
from device to device. A scan counts its length; of a choice's branches the dearest counts; the rounds of a
while loop are unknown, so lines in one (and the total) report no operations.
Bytes are those each operation reads and writes by itself, before the compiler fuses any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jitmagic.measure import hlo
from jitmagic.measure.lowered import (
    INSTRUCTIONS,
    equations_by_line,
    fused_with,
    lines_of_fusions,
    lowered_lines,
)
from jitmagic.measure.program import OPAQUE, Operation, walk
from jitmagic.report import Cost, LineCost

MOST_OPERATIONS = 3000


def line_costs(closed_jaxpr: object, file: str) -> tuple[LineCost, ...]:
    """Cost of each line of `file`, in order. Operations that no line of it made are left out.

    `equations` counts each operation once, however often it runs; `flops` and `bytes` are those of a whole
    call, None where they depend on the rounds of a while loop or on code that jax cannot look into."""
    lines: dict[int, list[Operation]] = {}
    for operation in walk(closed_jaxpr, file):
        if operation.line is not None:
            lines.setdefault(operation.line, []).append(operation)
    return tuple(LineCost(line, len(ops), *_totals(ops)) for line, ops in sorted(lines.items()))


def explained(
    lines: Sequence[LineCost],
    closed_jaxpr: object,
    compiled: object,
    file: str,
    constants: Mapping[str, Sequence[int]],
) -> tuple[LineCost, ...]:
    """The lines with their equations, what the compiler made of them, and the constants that they read.

    `constants` gives the lines that read each. Of programs over `MOST_OPERATIONS` only the costs are told."""
    if len(walk(closed_jaxpr, file)) > MOST_OPERATIONS:
        return tuple(lines)
    equations = equations_by_line(closed_jaxpr, file)
    became = lowered_lines(hlo.text_of(compiled), file)
    fusions = lines_of_fusions(became)
    partners = {cost.line: fused_with(became, fusions, cost.line) for cost in lines}
    return tuple(
        replace(
            cost,
            fusions=tuple(became[cost.line].fusions[:INSTRUCTIONS]) if cost.line in became else (),
            fused_with=tuple(partners[cost.line][0]),
            fused_more=partners[cost.line][1],
            constants=tuple(name for name, at in constants.items() if cost.line in at),
            jaxpr=equations.get(cost.line, ""),
            hlo="\n".join(became[cost.line].instructions[:INSTRUCTIONS]) if cost.line in became else "",
        )
        for cost in lines
    )


def total_cost(closed_jaxpr: object, compiled: object = None) -> Cost:
    """Cost of one call; `peak_bytes` from the `compiled` program's memory analysis, where it has one."""
    return Cost(*_totals(walk(closed_jaxpr)), peak_bytes(compiled))


def peak_bytes(compiled: Any) -> int | None:
    """Bytes that one call holds at most: arguments, results and scratch, buffers shared among them once.

    None where the backend reports nothing."""
    try:
        stats = compiled.memory_analysis()
        total = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
        return int(total - stats.alias_size_in_bytes)
    except Exception:
        return None


def _totals(operations: Sequence[Operation]) -> tuple[float | None, float | None]:
    """Operations on numbers and bytes of one call, each None where it is not known."""
    flops: float | None = 0
    moved: float | None = 0
    for op in operations:
        opaque = op.name in OPAQUE
        if flops is not None:
            flops = None if opaque or op.unbounded and op.flops > 0 else flops + op.flops * op.times
        if moved is not None:
            moved = None if opaque or op.unbounded else moved + op.bytes * op.times
    return flops, moved
