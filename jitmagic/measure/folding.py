"""Did the compiler compute the answer beforehand, from constants alone?

XLA evaluates operations on closed-over arrays while it compiles; a timing of what is left says nothing about
the function.
"""

from __future__ import annotations

import math
import re

from jitmagic.measure import hlo
from jitmagic.measure.program import Operation, walk

FOLDED_SHARE = 0.9
"""The share of all operations that has to be gone, and has to have depended on constants alone."""

MOVES = frozenset(
    "constant parameter copy copy-start copy-done broadcast tuple get-tuple-element bitcast bitcast-convert "
    "convert iota reshape transpose slice concatenate pad reverse fusion call after-all opt-barrier "
    "partition-id replica-id add-dependency get-dimension-size dynamic-slice dynamic-update-slice gather "
    "select domain".split()
)
"""Instructions that compute nothing."""
_HEAVY = frozenset(
    "while conditional custom-call convolution fft sort cholesky triangular-solve rng rng-bit-generator "
    "scatter reduce-window select-and-scatter map all-reduce all-gather infeed outfeed".split()
)
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")


def folded(closed_jaxpr: object, compiled: object) -> bool:
    """Whether (nearly) all operations of the traced program were done by the compiler.

    `compiled` is what `jax.stages.Lowered.compile` returned; False where it shows no program text."""
    total = _work(walk(closed_jaxpr))
    if not total or _work(constant_operations(closed_jaxpr)) < FOLDED_SHARE * total:
        return False
    text = hlo.text_of(compiled)
    return bool(text) and remaining_operations(text) <= (1 - FOLDED_SHARE) * total


def constant_operations(closed_jaxpr: object) -> list[Operation]:
    """The operations that depend on constants alone: they could be done once, outside the function. Moving values
    about does not count."""
    return [op for op in walk(closed_jaxpr) if op.constant and op.times and op.flops]


def remaining_operations(text: str) -> float:
    """Operations left in the text of an optimised HLO module; infinite with a loop or a library call."""
    program = hlo.read(text)
    if text and not program.bodies:  # too long to be read
        return math.inf
    return sum(operations(i, program) for i in program if i.opcode not in MOVES)


def operations(instruction: hlo.Instruction, program: hlo.Hlo) -> float:
    """Operations of one instruction that computes; infinite where the text does not tell them."""
    if instruction.opcode in _HEAVY:
        return math.inf
    operand = program.by_name.get(instruction.operands[0]) if instruction.operands else None
    first = operand.shapes[0].dimensions if operand is not None and operand.shapes else ()
    if instruction.opcode == "reduce":
        return float(max(math.prod(first), instruction.elements))
    contracted = _CONTRACTED.search(instruction.rest)
    if instruction.opcode == "dot" and contracted:
        inner = math.prod(first[int(d)] for d in contracted[1].split(",") if d and int(d) < len(first))
        return 2.0 * instruction.elements * inner
    return float(instruction.elements)


def _work(operations: list[Operation]) -> float:
    return sum(op.flops * op.times for op in operations)
