"""What a timing hides: an answer computed beforehand, code that was removed, dispatch, copies, compilation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Device
from jax.extend.core import Literal
from jax.interpreters import partial_eval

from jitmagic import units, work
from jitmagic.evidence import Leaf, Variable
from jitmagic.measure import clocks, folding, hlo, machine, profile, timing
from jitmagic.measure.program import Operation, walk
from jitmagic.report import Remark, Sample, Stages
from jitmagic.tracing.compat import jaxpr_of, subjaxprs
from jitmagic.tracing.stages import equation_count

DISPATCH_SHARE = 0.4
"""The part of a call from which on dispatch is told."""

IDLE_SHARE, MANY = 0.5, 100
"""A device that works for less of a call than this, and the operations that it takes to say so."""

COPY_SHARE = 0.1
COPY_BYTES = 4096
"""Arguments under this size are not looked at."""


def folded(closed_jaxpr: object, names: Sequence[str]) -> Remark:
    """`0 of 3 operations are left`; `names` are the constants that could be inputs."""
    every = sum(1 for op in walk(closed_jaxpr) if op.flops)
    gone = len(folding.constant_operations(closed_jaxpr))
    told = f" from {units.in_code(names)} alone" if names else " from constants alone"
    hint = (
        f"; `--dyn {','.join(names)}` makes {'it an input' if len(names) == 1 else 'them inputs'}"
        if names
        else ""
    )
    return Remark(
        "folded",
        f"{max(0, every - gone)} of {every} operations are left: the compiler did the rest beforehand{told}, so the "
        f"time of a compiled call says nothing{hint}",
    )


def foldable(variables: Iterable[Variable]) -> tuple[str, ...]:
    """Paths of the constants that could be inputs instead."""
    found = (v for v in variables if v.role == "constant" and v.in_jaxpr and v.type == "array")
    return tuple(v.path for v in found if v.shape is not None)


def unfolded(call: Any, args: Sequence[object], kwargs: dict[str, object], budget_s: float) -> Sample | None:
    """The time of the function compiled with its constants as inputs; None where they are folded again."""
    traced = call.trace(*args, **kwargs)
    if folding.folded(traced.jaxpr, traced.lower().compile()):
        return None
    return timing.time_pair(None, lambda: call(*args, **kwargs), budget_s=budget_s, limit=work.clock).jit


def dead(closed_jaxpr: object, file: str) -> Iterator[Remark]:
    """Lines whose results nobody uses."""
    for line, count in dead_lines(closed_jaxpr, file):
        done, it = ("1 operation", "it") if count == 1 else (f"{count} operations", "them")
        yield Remark(
            "dead-code",
            f"{done} of line {line} {'is' if count == 1 else 'are'} not in the compiled program: nothing that is "
            f"returned depends on {it}, and no timing of the compiled call holds {it}",
            line,
        )


def dead_lines(closed_jaxpr: object, file: str) -> tuple[tuple[int, int], ...]:
    """`(line, count)` of operations that compute and reach no result, of lines of `file`, in order.

    What writes to the outside (a print, a callback) is used by itself."""
    body = jaxpr_of(closed_jaxpr)
    if _all_used(body):  # looks once at each equation, where jax's way writes the program anew
        return ()
    alive, _ = partial_eval.dce_jaxpr(body, [True] * len(body.outvars), instantiate=True)
    if equation_count(alive) == equation_count(body):
        return ()
    before = _counts(walk(closed_jaxpr, file))
    after = _counts(walk(alive, file))
    lost = {line: count - after.get(line, 0) for line, count in before.items()}
    return tuple(sorted((line, count) for line, count in lost.items() if count > 0))


def _counts(operations: list[Operation]) -> Counter[int]:
    return Counter(op.line for op in operations if op.line is not None and op.flops > 0)


def _all_used(body: Any) -> bool:
    """Every result of every equation is read by another, or returned; those of inner programs included."""
    used = {atom for eqn in body.eqns for atom in eqn.invars if not isinstance(atom, Literal)}
    used.update(atom for atom in body.outvars if not isinstance(atom, Literal))
    return all(
        used.issuperset(eqn.outvars) and all(_all_used(jaxpr_of(inner)) for inner in subjaxprs(eqn))
        for eqn in body.eqns
    )


def dispatch(jit: Sample, device: Device) -> Remark | None:
    """Most of the time is that of calling any compiled function at all."""
    if jit.median_s > 1e-3:
        return None
    least = machine.dispatch_s(device)
    if least < DISPATCH_SHARE * jit.median_s:
        return None
    share = "most of" if least < jit.median_s else "all of"
    return Remark(
        "dispatch",
        f"calling a compiled function that does nothing takes {units.seconds(least)} here, so {share} "
        f"these {units.seconds(jit.median_s)} is the call: more work in one call (larger arrays, "
        "`jax.vmap`, `jax.lax.scan`) shows what the function costs",
    )


def idle(jit: Sample, works_s: float, program: hlo.Hlo, device: Device) -> Remark | None:
    """Most of the time the device has nothing to do, as its operations are started one after the other."""
    started = profile.expected_events(program)
    calls_back = any("callback" in i.rest for i in program if i.opcode == "custom-call")
    if device.platform == "cpu" or calls_back or started < MANY or works_s > IDLE_SHARE * jit.median_s:
        return None
    return Remark(
        "idle-device",
        f"the {device.platform} works for {units.seconds(works_s)} of these {units.seconds(jit.median_s)}: the rest of "
        f"the time it waits for its {started:,.0f} operations to be started one after the other; larger arrays, "
        "`jax.vmap` over several runs or `unroll=` of a loop give it more to do at a time",
    )


def host_copies(
    target: Callable[..., object],
    args: Sequence[object],
    kwargs: dict[str, object],
    leaves: Sequence[Leaf],
    restore: Callable[[], None],
    budget_s: float,
) -> Remark | None:
    """Arguments of NumPy are copied to the device at every call; how much of the time that is, measured."""
    names = [x.path for x in leaves if x.kind == "numpy" and not x.static and x.shape]
    size = sum(x.nbytes for x in jax.tree.leaves((args, kwargs)) if isinstance(x, np.ndarray))
    if not names or size < COPY_BYTES:
        return None
    moved, named = jax.tree.map(
        lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, (tuple(args), kwargs)
    )
    timed = timing.time_pair(
        lambda: target(*args, **kwargs), lambda: target(*moved, **named),
        restore=restore, repeats=5, budget_s=min(budget_s, 1.0), limit=work.clock,
    )  # fmt: skip
    if timed.eager is None or timed.jit is None:
        return None
    share = 1 - timed.jit.median_s / timed.eager.median_s
    if share < COPY_SHARE:
        return None
    one = len(names) == 1
    return Remark(
        "host-copy",
        f"{units.in_code(names)} {'is an array' if one else 'are arrays'} of NumPy, copied to the device at every "
        f"call: {share * 100:.0f} % of the time; made once with `jnp.asarray`, a call takes "
        f"{units.seconds(timed.jit.median_s)}",
    )


def own_clocks(source: str, name: str, stages: Stages) -> Iterator[Remark]:
    """Where the cell times the function by itself and the clock holds more, or less, than the call."""
    for found in clocks.clocked(source, name):
        where = (
            f"line {found.line}"
            if found.line == found.end_line
            else f"lines {found.line} to {found.end_line}"
        )
        if found.first:
            yield Remark(
                "first-call",
                f"the clock of {where} holds the first call of `{name}`, so {units.seconds(stages.total_s)} of "
                "tracing and compiling are in its time: call it once before",
                found.line,
            )
        if not found.waits:
            yield Remark(
                "unblocked",
                f"the clock of {where} does not wait for the result: a call returns before the device is done; "
                f"end with `jax.block_until_ready(...)`",
                found.line,
            )
