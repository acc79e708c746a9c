"""The function shared by several devices: the leading axis of its arguments split over a mesh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jitmagic import report
from jitmagic.checking.subject import Subject
from jitmagic.measure import hlo
from jitmagic.tracing import compat
from jitmagic.tracing.messages import is_of_devices
from jitmagic.units import in_code
from jitmagic.whatif.call import (
    CannotAsk,
    StagedFunction,
    TypedCall,
    Values,
    batched,
    like,
    named_leaves,
    short,
)

AXIS = "devices"
KINDS = frozenset(
    "all-reduce all-gather reduce-scatter all-to-all collective-permute collective-broadcast".split()
)
"""How the compiler lets devices share an array."""


def on_devices(subject: Subject, call: TypedCall) -> report.WhatIf:
    """The answer to `--devices N`; CannotAsk where there are no such devices or nothing can be split."""
    asked = subject.settings.what_if
    count = asked.devices or 1
    devices, where = _find_devices(count)
    fn: Callable[[Values], object] = call.run
    types, title = call.types, ""
    if asked.vmap:
        fn, types, _, title, _ = batched(subject, call, count)
        shared = set(asked.vmap)
        rows = None
    else:
        shared, rows = _shared(types, count)
    mesh = Mesh(np.array(devices), (AXIS,))
    placed = _place(types, shared, rows, mesh)
    with _unless_committed():
        program = StagedFunction(subject, fn, placed)
        one = StagedFunction(subject, fn, _place(types, shared, rows, Mesh(np.array(devices[:1]), (AXIS,))))
    whole = _whole(placed)
    constants, size = _constants(subject, program)
    words = f"{title}, on {count} devices" if title else f"on {count} devices"
    split = [k for k, t in named_leaves(placed) if t.sharding.spec]
    notes = (f"{in_code(split)} split along the leading axis{where}",)
    held = sum(t.size * t.dtype.itemsize for _, t in whole) + size
    return report.WhatIf(
        "devices", words, tuple(split), count, stages=program.stages, cost=_per_device(program, one),
        plain=one.cost, collectives=collectives(hlo.text_of(program.compiled)),
        replicated=(*(f"{k} {short(t)}" for k, t in whole), *constants), replicated_bytes=held, notes=notes,
    )  # fmt: skip


def _find_devices(count: int) -> tuple[Sequence[object], str]:
    """The devices to compile for, and in words what they are where they are not there."""
    there = jax.devices()
    if len(there) >= count:
        return there[:count], ""
    virtual = compat.virtual_devices(count)
    if len(virtual) < count:
        raise CannotAsk(
            f"there {_there(len(there))}, and this jaxlib cannot make virtual ones later: set "
            f"jax.config.update('jax_num_cpu_devices', {count}) before the first use of jax"
        )
    return virtual, f"; compiled for {count} virtual CPU devices, because there {_there(len(there))}"


def _there(count: int) -> str:
    return "is one device" if count == 1 else f"are {count}"


def _shared(types: Values, count: int) -> tuple[set[str], int]:
    """Arguments to split and the length of the axis: that of most plain arrays, the longest of several."""
    for values in ([t for t in types.values() if hasattr(t, "shape")], jax.tree.leaves(types)):
        sizes = Counter(t.shape[0] for t in values if t.shape and t.shape[0] and t.shape[0] % count == 0)
        if sizes:
            return set(types), max(sizes, key=lambda n: (sizes[n], n))
    longest = sorted({t.shape[0] for t in jax.tree.leaves(types) if t.shape}, reverse=True)
    told = (
        f"the leading axes are {', '.join(map(str, longest[:4]))}"
        if longest
        else "there is no array with an axis"
    )
    raise CannotAsk(f"no argument can be split into {count} equal parts: {told}")


def _place(types: Values, shared: set[str], rows: int | None, mesh: Mesh) -> Values:
    """The types with the sharding of each: the leading axis over all devices, or whole on each."""

    def placed(name: str, t: jax.ShapeDtypeStruct) -> object:
        split = name in shared and t.shape and (rows is None or t.shape[0] == rows)
        spec = PartitionSpec(AXIS) if split else PartitionSpec()
        return like(t.shape, t, NamedSharding(mesh, spec))

    return {n: jax.tree.map(lambda t, n=n: placed(n, t), v) for n, v in types.items()}


@contextmanager
def _unless_committed() -> Iterator[None]:
    try:
        yield
    except ValueError as exc:
        if not is_of_devices(exc):
            raise
        raise CannotAsk(
            "an array that the function reads is bound to one device (`jax.device_put`), so the program cannot "
            "be shared; pass it as an argument"
        ) from None


def _per_device(program: StagedFunction, one: StagedFunction) -> report.Cost:
    """The part of one device: our count of the whole, by XLA's ratio of the shared program to that of one device."""
    before, after = _analysed_flops(one), _analysed_flops(program)
    known = one.cost.flops is not None and before and after is not None
    # XLA's bytes depend on what it fuses, which differs between the two
    return report.Cost(one.cost.flops * after / before if known else None, None, program.cost.peak_bytes)  # type: ignore[operator]


def _analysed_flops(program: StagedFunction) -> float | None:
    try:
        return float(program.compiled.cost_analysis()["flops"])
    except Exception:
        return None


def collectives(text: str) -> tuple[report.Collective, ...]:
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
    return tuple(
        report.Collective(n, len(sizes), sum(sizes), inside[n]) for n, sizes in sorted(counts.items())
    )


def _whole(types: Values) -> list[tuple[str, jax.ShapeDtypeStruct]]:
    """Arrays that every device holds whole; numbers are not worth telling."""
    return [(k, t) for k, t in named_leaves(types) if not t.sharding.spec and t.shape]


def _constants(subject: Subject, program: StagedFunction) -> tuple[list[str], int]:
    """Closed-over arrays by name, and the bytes of all."""
    arrays = [c for c in compat.constants_of(program.traced.jaxpr) if getattr(c, "shape", ())]
    known = [v for v in subject.seen.variables.values() if v.in_jaxpr and v.shape]
    named = [f"constant {v.path} {short(v)}" for v in known]
    total = sum(int(getattr(c, "nbytes", 0)) for c in arrays)
    if not named and arrays:
        named = [f"{len(arrays)} constant{'s' if len(arrays) > 1 else ''}"]
    return (named if arrays else []), total
