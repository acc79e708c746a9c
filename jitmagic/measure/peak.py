"""What a program holds when it holds most: the arrays alive at each operation, in the order as written.

The compiler fuses and reorders, so its own peak is mostly lower; which arrays make it, and at which line,
only this shows.
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import JaxprEqn, Literal

from jitmagic.measure.cost import peak_bytes
from jitmagic.measure.program import argument_names, constants_of, inner_line, last_uses
from jitmagic.report import Alive, Peak
from jitmagic.state.values import is_a
from jitmagic.tracing.compat import Tracer, jaxpr_of, program_of, subjaxprs, type_of
from jitmagic.tracing.locate import is_user_file
from jitmagic.units import size

SHOWN = 8


def peak(
    closed_jaxpr: object, file: str, constants: dict[int, str] | None = None, dynamic: Sequence[str] = ()
) -> Peak | None:
    """The moment of most memory; None without operations.

    `constants` names constant objects by their `id`, `dynamic` the variables that are passed as `_dyn0`, `_dyn1`, ...
    """
    body = jaxpr_of(closed_jaxpr)
    paths = {f"_dyn{i}": path for i, path in enumerate(dynamic)}
    names = {
        var: re.sub(r"^_dyn\d+", lambda m: paths.get(m[0], m[0]), name)
        for var, name in argument_names(body).items()
    }
    held = {v: _alive(v, names.get(v, "an argument")) for v in body.invars}
    for var, value in zip(body.constvars, constants_of(closed_jaxpr), strict=False):
        held[var] = _alive(var, (constants or {}).get(id(value), "a constant"))
    literals = _literals(body, constants or {})
    found = _walk(body, {**held, **literals}, set(held) | set(literals), file, None)
    if found is None:
        return None
    line, alive = found
    ranked = sorted(alive, key=lambda a: -a.bytes)
    return Peak(line, sum(a.bytes for a in alive), tuple(a for a in ranked[:SHOWN] if a.bytes))


def kept_for_gradient(forward: Callable[[Any], object], types: object, file: str) -> tuple[Alive, ...]:
    """What a gradient keeps of the forward pass besides the arguments, the largest first; `forward` gives what
    `jax.vjp` gives."""
    closed, (result, _) = jax.make_jaxpr(forward, return_shape=True)(types)
    body = jaxpr_of(closed)
    kept = dict.fromkeys(
        v for v in body.outvars[len(jax.tree.leaves(result)) :] if not isinstance(v, Literal)
    )
    own = [v for v in kept if v not in body.invars and v not in body.constvars]
    return tuple(sorted((_alive(v, "value", _line_of(v, body, file)) for v in own), key=lambda a: -a.bytes))


def _line_of(var: object, body: Any, file: str) -> int | None:
    """The line that makes a value, the one inside of a loop or an inner function where it is made there."""
    for eqn in body.eqns:
        if var in eqn.outvars:
            place = eqn.outvars.index(var)
            inner = (jaxpr_of(i) for i in subjaxprs(eqn))
            lines = (_line_of(i.outvars[place], i, file) for i in inner if len(i.outvars) == len(eqn.outvars))
            return next((line for line in lines if line), None) or inner_line(eqn, file)
    return None


def too_large(closed_jaxpr: object) -> str:
    """Why the program may not run operation by operation: it would hold more than half of the memory that is free;
    '' where it fits."""
    most = peak(closed_jaxpr, "")
    return _beyond_half(most.bytes if most is not None else 0)


def too_large_where(error: BaseException) -> str:
    """The same of a function whose trace has failed, by what its names stand for at that place."""
    frames = (
        frame for frame, _ in traceback.walk_tb(error.__traceback__) if is_user_file(frame.f_code.co_filename)
    )
    traced = {id(v): _size(v) for frame in frames for v in frame.f_locals.values() if is_a(v, Tracer)}
    return _beyond_half(sum(traced.values()))


def _beyond_half(held: int) -> str:
    free = free_bytes()
    return (
        f"it would hold {size(held)} at once, and {size(free)} are free" if free and held > free / 2 else ""
    )


def donated_peaks(closed: object, inputs: Sequence[int]) -> tuple[int | None, int | None]:
    """What a call of the program holds at most, as the compiler reports it, and with these inputs donated."""
    return peak_bytes(compiled_alone(closed)), peak_bytes(compiled_alone(closed, inputs))


def compiled_alone(closed: object, donated: Sequence[int] = ()) -> object:
    """The traced program, compiled by itself; nothing of the user's runs."""
    shapes = [jax.ShapeDtypeStruct(*type_of(v)) for v in jaxpr_of(closed).invars]
    return jax.jit(program_of(closed), donate_argnums=tuple(donated)).lower(*shapes).compile()


def told_by_devices() -> tuple[int | None, int | None]:
    """Bytes in use and bytes that there are, of all devices together; None where one does not tell."""
    told = [device.memory_stats() for device in jax.local_devices()]
    known = [t for t in told if t and "bytes_in_use" in t and "bytes_limit" in t]
    if len(known) < len(told):
        return None, None
    return sum(int(t["bytes_in_use"]) for t in known), sum(int(t["bytes_limit"]) for t in known)


def free_bytes() -> int | None:
    """What is free of the memory that arrays are put into; None where that is not told."""
    stats = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats["bytes_in_use"])
    try:
        with open("/proc/meminfo") as told:
            return 1024 * next(int(line.split()[1]) for line in told if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # only Linux tells
        return None


def _walk(
    body: Any, held: dict[object, Alive], fixed: set[object], file: str, outer: int | None
) -> tuple[int | None, list[Alive]] | None:
    """Line and arrays of the moment of most memory inside a program; what is `fixed` stays to the end."""
    last = last_uses(body)
    born, died, lines = dict.fromkeys(held, -1), dict[Any, int](), dict[Any, int | None]()
    total, most = sum(a.bytes for a in held.values()), -1
    best: tuple[int, int | None, list[Alive]] | None = None
    for index, eqn in enumerate(body.eqns):
        line = inner_line(eqn, file) or outer
        for var in eqn.outvars:
            born[var], lines[var] = index, line
            total += _size(var)
        at, inside = _inner(eqn, file, line)
        now = total + sum(a.bytes for a in inside)
        if now > most:
            best, most = (index, at, inside), now
        for var in last.get(index, ()):
            if var in born and var not in fixed:
                died[var] = index
                total -= _size(var)
    if best is None:
        return None
    moment, at, inside = best
    alive = [v for v, first in born.items() if first <= moment <= died.get(v, moment)]
    return at, [held[v] if v in held else _alive(v, "value", lines[v]) for v in alive] + inside


def _inner(eqn: JaxprEqn, file: str, line: int | None) -> tuple[int | None, list[Alive]]:
    """What the inner program of an equation holds at most besides its operands and results, and at which line."""
    at, best = line, list[Alive]()
    for body in map(jaxpr_of, subjaxprs(eqn)):
        passed = set(body.invars) | set(body.constvars)
        found = _walk(body, {v: _alive(v, "") for v in passed}, passed, file, line)
        results = {v for v in body.outvars if not isinstance(v, Literal)}
        skipped = sum(map(_size, passed | results))
        inside = [a for a in found[1] if a.name] if found else []
        if sum(a.bytes for a in inside) - skipped > sum(a.bytes for a in best):
            at, best = found[0] if found else line, inside
    return at, best


def _literals(body: Any, names: dict[int, str]) -> dict[Any, Alive]:
    """Arrays that stand in the program as literals."""
    found: dict[Any, Alive] = {}
    for eqn in body.eqns:
        for atom in eqn.invars:
            if isinstance(atom, Literal) and bool(getattr(atom.val, "shape", ())):
                found.setdefault(id(atom.val), _alive(atom, names.get(id(atom.val), "a constant")))
    return found


def _alive(var: object, name: str, line: int | None = None) -> Alive:
    shape, dtype = type_of(var)
    return Alive(name or "", f"{dtype}[{','.join(map(str, shape))}]", _size(var), line)


def _size(var: object) -> int:
    shape, dtype = type_of(var)
    return math.prod(d for d in shape if isinstance(d, int)) * (dtype.itemsize if dtype is not None else 0)
