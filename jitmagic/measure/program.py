"""Walking a traced program: its operations, their source lines, what they depend on, how often they run.

Calls of inner functions are entered; what is left are the operations themselves. A jaxpr is taken in every
form that jax has for one: open, closed, or (from jax 0.11 on) both in one class.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from jax.extend import source_info_util
from jax.extend.core import JaxprEqn, Literal

from jitmagic.measure.flops import flops, moved_bytes
from jitmagic.source.tree import line_of
from jitmagic.tracing.compat import eqn_frames, jaxpr_of, type_of

T = TypeVar("T")
CALLS = frozenset(
    "jit pjit closed_call core_call core_closed_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr "
    "remat remat2 checkpoint custom_linear_solve".split()
)
"""Primitives that only run an inner program once."""

OPAQUE = frozenset("pure_callback io_callback ffi_call custom_call pallas_call xla_call_module".split())
"""Primitives whose inside cannot be looked at."""


@dataclass(frozen=True)
class Operation:
    """One equation that calls no inner program.

    `line` is its innermost line in the file asked for (None: no line there), `times` how often it runs in
    one call (0 for the cheaper branches of a choice, one round for a while loop, which is `unbounded`)."""

    eqn: JaxprEqn
    line: int | None
    times: float = 1.0
    unbounded: bool = False
    constant: bool = False
    """It depends on constants alone, and on no input."""

    @property
    def name(self) -> str:
        """Name of the primitive: `dot_general`, `add`."""
        return str(self.eqn.primitive.name)

    @functools.cached_property
    def flops(self) -> float:
        """Operations of one run on numbers."""
        return flops(self.eqn)

    @functools.cached_property
    def bytes(self) -> float:
        """Bytes that one run reads and writes."""
        return moved_bytes(self.eqn)


@dataclass(frozen=True)
class _At:
    file: str | None
    line: int | None = None
    times: float = 1.0
    unbounded: bool = False


_walks: weakref.WeakKeyDictionary[Any, dict[str | None, list[Operation]]] = weakref.WeakKeyDictionary()
"""Walks of programs that are still alive: several questions are asked of each, and finding lines takes time."""


def walk(jaxpr: object, file: str | None = None) -> list[Operation]:
    """Every operation of `jaxpr` in order, inner programs entered; lines are those in `file`. Not to be changed."""
    try:
        known = _walks.setdefault(jaxpr, {})
    except TypeError:  # a jaxpr that takes no weak reference
        known = {}
    if file is None and known:
        return next(iter(known.values()))
    if file not in known:
        known[file] = _walk(jaxpr, file)
    return known[file]


def _walk(jaxpr: object, file: str | None) -> list[Operation]:
    found: list[Operation] = []
    _program(jaxpr, [False] * len(jaxpr_of(jaxpr).invars), _At(file), found)
    return found


def constants_of(jaxpr: object) -> list[Any]:
    """Values of the jaxpr's constant variables; empty for an open jaxpr."""
    return list(getattr(jaxpr, "consts", ()))


def called_program(eqn: JaxprEqn) -> tuple[Any, list[int]] | None:
    """The inner program that an equation of `CALLS` runs and the operands it takes, by position."""
    if eqn.primitive.name not in CALLS:
        return None
    operands = list(range(len(eqn.invars)))
    if eqn.primitive.name == "custom_linear_solve":
        lengths = eqn.params["const_lengths"]
        start = lengths.matvec + lengths.vecmat
        consts = operands[start : start + lengths.solve]
        return eqn.params["jaxprs"].solve, consts + operands[sum(lengths) :]
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = eqn.params.get(name)
        if inner is not None and len(jaxpr_of(inner).invars) == len(operands):
            return inner, operands
    return None


def scan_parts(eqn: JaxprEqn, operands: list[T]) -> tuple[list[T], list[T], list[T]]:
    """Constants, carried values and rows among the operands of a scan.

    Told by rank, which needs no name that changes between versions: rows and stacked results have one
    dimension more outside the loop than inside."""
    body = jaxpr_of(eqn.params["jaxpr"])

    def same_rank(a: object, b: object) -> bool:
        return len(type_of(a)[0]) == len(type_of(b)[0])

    rows = sum(not same_rank(*pair) for pair in zip(eqn.invars, body.invars, strict=True))
    carries = sum(same_rank(*pair) for pair in zip(eqn.outvars, body.outvars, strict=True))
    start, end = len(operands) - rows - carries, len(operands) - rows
    return operands[:start], operands[start:end], operands[end:]


def argument_names(body: Any) -> dict[Any, str]:
    """Names of the inputs of an open jaxpr, where jax knows them."""
    names = getattr(getattr(body, "debug_info", None), "arg_names", None) or ()
    return {var: name for var, name in zip(body.invars, names, strict=False) if name}


def inner_line(eqn: JaxprEqn, file: str) -> int | None:
    """Innermost line of `file` that the equation comes from; None where none is known."""
    frames = eqn_frames(eqn)
    if frames:  # the traceback's own way decodes the whole function each time
        return next((line_of(code, offset) for code, offset in frames if code.co_filename == file), None)
    # raw_frames belongs to jaxlib; the summary is public, but has the innermost user frame only.
    match = re.match(r"(.*):(\d+)(:\d+)? ", source_info_util.summarize(eqn.source_info))
    return int(match[2]) if match and match[1] == file else None


def _program(jaxpr: object, inputs: Sequence[bool], at: _At, out: list[Operation]) -> list[bool]:
    """Put the operations into `out`; which of the results are constant, where these of the `inputs` are."""
    body = jaxpr_of(jaxpr)
    constant: dict[Any, bool] = dict(zip(body.invars, inputs, strict=True))
    constant.update((var, True) for var, _ in zip(body.constvars, constants_of(jaxpr), strict=False))

    def read(atom: object) -> bool:
        return isinstance(atom, Literal) or constant.get(atom, False)

    for eqn in body.eqns:
        line = inner_line(eqn, at.file) if at.file is not None else None
        here = at if line is None or line == at.line else _At(at.file, line, at.times, at.unbounded)
        results = _equation(eqn, [read(v) for v in eqn.invars], here, out)
        constant.update(zip(eqn.outvars, results, strict=True))
    return [read(v) for v in body.outvars]


def _equation(eqn: JaxprEqn, inputs: list[bool], at: _At, out: list[Operation]) -> list[bool]:
    name = eqn.primitive.name
    if name == "scan":
        return _scan(eqn, inputs, at, out)
    if name == "while":
        return _while(eqn, inputs, at, out)
    if name == "cond":
        return _cond(eqn, inputs, at, out)
    inner = called_program(eqn)
    if inner is not None:
        return _program(inner[0], [inputs[i] for i in inner[1]], at, out)
    if name == "shard_map" and "jaxpr" in eqn.params:
        devices = float(getattr(eqn.params.get("mesh"), "size", 1))
        return _program(eqn.params["jaxpr"], inputs, replace(at, times=at.times * devices), out)
    constant = name not in OPAQUE and all(inputs)
    out.append(Operation(eqn, at.line, at.times, at.unbounded, constant))
    return [constant] * len(eqn.outvars)


def _settle(step: Any, carry: list[bool]) -> list[bool]:
    """What of a loop's carry is constant after any number of rounds: it only ever gets less."""
    while True:
        after = [all(pair) for pair in zip(carry, step(carry), strict=True)]
        if after == carry:
            return carry
        carry = after


def _scan(eqn: JaxprEqn, inputs: list[bool], at: _At, out: list[Operation]) -> list[bool]:
    body, (fixed, carry, rows) = eqn.params["jaxpr"], scan_parts(eqn, inputs)
    inside = replace(at, times=at.times * eqn.params["length"])
    carry = _settle(lambda c: _program(body, [*fixed, *c, *rows], inside, [])[: len(c)], carry)
    return _program(body, [*fixed, *carry, *rows], inside, out)


def _while(eqn: JaxprEqn, inputs: list[bool], at: _At, out: list[Operation]) -> list[bool]:
    test, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    split = eqn.params["cond_nconsts"]
    end = split + eqn.params["body_nconsts"]
    inside = replace(at, unbounded=True)
    carry = _settle(lambda c: _program(body, [*inputs[split:end], *c], inside, []), inputs[end:])
    verdict = _program(test, [*inputs[:split], *carry], inside, out)
    _program(body, [*inputs[split:end], *carry], inside, out)
    return [value and all(verdict) for value in carry]


def _cond(eqn: JaxprEqn, inputs: list[bool], at: _At, out: list[Operation]) -> list[bool]:
    choice, operands = inputs[0], inputs[1:]
    branches: list[list[Operation]] = []
    results: list[list[bool]] = []
    for branch in eqn.params["branches"]:
        branches.append([])
        results.append(_program(branch, operands, at, branches[-1]))
    costs = [sum(op.flops * op.times for op in ops) for ops in branches]
    dearest = costs.index(max(costs))
    for index, ops in enumerate(branches):
        out.extend(ops if index == dearest else (replace(op, times=0.0) for op in ops))
    return [choice and all(column) for column in zip(*results, strict=True)]


def last_uses(body: Any) -> dict[int, list[Any]]:
    """By the index of an equation, the values that no later one and no result needs."""
    kept = {v for v in body.outvars if not isinstance(v, Literal)}
    seen: set[Any] = set()
    last: dict[int, list[Any]] = {}
    for index in range(len(body.eqns) - 1, -1, -1):
        for var in (*body.eqns[index].invars, *body.eqns[index].outvars):
            if not isinstance(var, Literal) and var not in kept and var not in seen:
                seen.add(var)
                last.setdefault(index, []).append(var)
    return last
