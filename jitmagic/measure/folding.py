"""Did the compiler compute the answer beforehand, from constants alone?

XLA evaluates operations on closed-over arrays while it compiles; a timing of what is left says nothing about
the function.
"""

from __future__ import annotations

import math
import re
from typing import Any

from jitmagic.measure.program import Operation, walk

FOLDED_SHARE = 0.9
"""The share of all operations that has to be gone, and has to have depended on constants alone."""

_MOVES = frozenset(
    "constant parameter copy copy-start copy-done broadcast tuple get-tuple-element bitcast bitcast-convert "
    "convert iota reshape transpose slice concatenate pad reverse fusion call after-all opt-barrier "
    "partition-id replica-id add-dependency get-dimension-size dynamic-slice dynamic-update-slice gather "
    "select domain".split()
)
_HEAVY = frozenset(
    "while conditional custom-call convolution fft sort cholesky triangular-solve rng rng-bit-generator "
    "scatter reduce-window select-and-scatter map all-reduce all-gather infeed outfeed".split()
)
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((.*)$")
_SHAPE = re.compile(r"\[([\d,]*)\]")
_OPERAND = re.compile(r"%([\w.\-]+)")
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")


def folded(closed_jaxpr: object, compiled: Any) -> bool:
    """Whether (nearly) all operations of the traced program were done by the compiler.

    `compiled` is what `jax.stages.Lowered.compile` returned; False where it shows no program text."""
    total = _work(walk(closed_jaxpr))
    if not total or _work(constant_operations(closed_jaxpr)) < FOLDED_SHARE * total:
        return False
    try:
        text = compiled.as_text()
    except Exception:
        return False
    return bool(text) and remaining_operations(text) <= (1 - FOLDED_SHARE) * total


def constant_operations(closed_jaxpr: object) -> list[Operation]:
    """The operations that depend on constants alone: they could be done once, outside the function. Moving values
    about does not count."""
    return [op for op in walk(closed_jaxpr) if op.constant and op.times and op.flops]


def remaining_operations(hlo: str) -> float:
    """Operations left in the text of an optimised HLO module; infinite with a loop or a library call."""
    sizes: dict[str, tuple[int, ...]] = {}
    total = 0.0
    for line in hlo.splitlines():
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        name, shape, opcode, rest = match.groups()
        sizes[name] = _dimensions(shape)
        if opcode in _HEAVY:
            return math.inf
        if opcode not in _MOVES:
            total += _instruction(opcode, sizes[name], rest, sizes)
    return total


def _instruction(opcode: str, out: tuple[int, ...], rest: str, sizes: dict[str, tuple[int, ...]]) -> float:
    operand = _OPERAND.search(rest)
    first = sizes.get(operand[1], out) if operand else out
    if opcode == "reduce":
        return float(max(math.prod(first), math.prod(out)))
    contracted = _CONTRACTED.search(rest)
    if opcode == "dot" and contracted:
        inner = math.prod(first[int(d)] for d in contracted[1].split(",") if d and int(d) < len(first))
        return 2.0 * math.prod(out) * inner
    return float(math.prod(out))


def _dimensions(shape: str) -> tuple[int, ...]:
    match = _SHAPE.search(shape)
    return tuple(int(d) for d in match[1].split(",") if d) if match else ()


def _work(operations: list[Operation]) -> float:
    return sum(op.flops * op.times for op in operations)
