"""What this machine can do: measured once for a device, in a fraction of a second, and kept.

Peak arithmetic is that of a product of two square float32 matrices; bandwidth that of adding a number in place
to an array too large for the caches, or small enough for them; dispatch is the length of a compiled call that
does nothing.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, Device
from jax.stages import Compiled

from jitmagic.measure import hlo
from jitmagic.report import Bound
from jitmagic.tracing import ledger

T = TypeVar("T")

_SIZES = {"cpu": (768, 1, 1 << 24, 2, 1 << 18)}
_LARGE = (8192, 4, 1 << 27, 8, 1 << 21)
"""Side of the matrices and products in one call, elements of the large array and how often it is gone through, elements
of the small one; on a CPU and on what is faster, where a call has to be long for its beginning not to count."""


CACHED = 1 << 21
"""Bytes up to which a program works in the caches."""


@dataclass(frozen=True)
class Machine:
    """Rates of one device."""

    flops_per_s: float
    bytes_per_s: float
    cached_bytes_per_s: float
    """Of arrays that fit into the caches."""


@functools.cache
def _measured(device: Device) -> Machine:
    side, products, length, turns, short = _SIZES.get(device.platform, _LARGE)
    rows = jnp.sin(jnp.arange(side, dtype=jnp.float32))  # products of ones take less power, and less time
    matrix = jax.device_put(rows[:, None] * rows / side, device)
    product = jax.jit(_peak_arithmetic, static_argnums=1)
    arithmetic = best_of(lambda: product(matrix, products))
    far, near = _bandwidth(device, length, turns), _bandwidth(device, short, 50)
    return Machine(products * 2 * side**3 / arithmetic, far, max(far, near))


def _bandwidth(device: Device, length: int, turns: int) -> float:
    """Bytes per second read and written, in place: fresh memory costs more than moving does."""
    held = jax.device_put(jnp.zeros(length, jnp.float32), device)
    addition = jax.jit(_peak_bandwidth, donate_argnums=0)

    def run() -> Array:
        nonlocal held
        for _ in range(turns):
            held = addition(held)
        return held

    return 2 * 4 * length * turns / best_of(run, times=5)


def _peak_arithmetic(a: Array, products: int) -> Array:
    result = a
    for _ in range(products):
        result = result @ a
    return result


def _peak_bandwidth(a: Array) -> Array:
    return a + 1


def device_of(compiled: Compiled | None) -> Device:
    """The device, or the first of them, that a program was compiled for; this process's first one where it does not
    tell."""
    try:
        return compiled.runtime_executable().local_devices()[0]  # type: ignore[union-attr]
    except Exception:
        return jax.local_devices()[0]


ROOM = 2 << 30
"""Bytes that a device of its own memory has to have free: a measurement of ours shall not be what does not fit."""


def has_room(device: Device) -> bool:
    """Its rates can be measured beside what the user's arrays take; a device that does not tell has."""
    told = device.memory_stats() or {}
    return "bytes_limit" not in told or told["bytes_limit"] - told.get("bytes_in_use", 0) >= ROOM


def machine(device: Device) -> Machine:
    """The rates of a device, measured at the first call for it."""
    return _apart(lambda: _measured(device))


def _apart(measure: Callable[[], T]) -> T:
    """What `measure` gives in a thread of its own, where no mesh of the user's holds and no default device."""

    def run() -> T:
        with ledger.unasked():
            return measure()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(run).result()


def is_known() -> bool:
    """The rates were measured already."""
    return _measured.cache_info().currsize > 0


@functools.cache
def dispatch_s(device: Device) -> float:
    """Seconds that a compiled call takes on a device which does nothing; measured at the first call for it."""
    return _apart(lambda: _dispatch_s(device))


def _dispatch_s(device: Device) -> float:
    x = jax.device_put(jnp.float32(0), device)
    nothing = jax.jit(_nothing)

    def batch() -> None:
        for _ in range(200):
            jax.block_until_ready(nothing(x))

    return best_of(batch, times=5) / 200


def _nothing(x: Array) -> Array:
    return x + 1


def best_of(call: Callable[[], object], times: int = 3) -> float:
    """Seconds of the fastest of a few calls, after one that compiles."""
    jax.block_until_ready(call())
    spans = []
    for _ in range(times):
        start = time.perf_counter()
        jax.block_until_ready(call())
        spans.append(time.perf_counter() - start)
    return min(spans)


def bound(flops: float | None, moved: float | None, rates: Machine) -> Bound | None:
    """By which of the two a program is limited, and how fast it can be at best; None where nothing is known."""
    if not moved or flops is None:
        return None
    speed = rates.cached_bytes_per_s if moved <= CACHED else rates.bytes_per_s
    computing, moving = flops / rates.flops_per_s, moved / speed
    return Bound(
        "arithmetic" if computing > moving else "memory", max(computing, moving), flops / moved,
        rates.flops_per_s / speed, rates.flops_per_s, speed,
    )  # fmt: skip


def moved_bytes(compiled: Compiled, written: float | None, loops: bool) -> float | None:
    """Bytes that a call moves: XLA's count after fusing. Those of the program as `written` where XLA's tells less than
    all: it counts a loop once, and a call of a library on a GPU (a matrix product, an FFT) not at all."""
    if loops or _calls_libraries(compiled):
        return written
    try:
        return float((compiled.cost_analysis() or {})["bytes accessed"])
    except Exception:
        return written


def _calls_libraries(compiled: Compiled) -> bool:
    return device_of(compiled).platform != "cpu" and "custom-call(" in hlo.text_of(compiled)
