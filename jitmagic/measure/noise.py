"""Two timings beside each other: is the difference more than chance?

Without jit and compiled, the batches of one run are taken in turn, and each pair has its say. Between two runs the
spread of the batches inside a run understates how far two runs lie apart, because clocks, caches and
neighbours change between them. So a difference counts only beyond the spreads of both runs together, and
beyond `FLOOR` in any case.
"""

from __future__ import annotations

import math
import statistics

from jitmagic.report import Comparison, Sample, Timing

FLOOR = 0.03
"""The relative difference that two runs of one program show on a quiet machine."""

WIDTH = 1.5
"""Interquartile ranges that count as chance: of normal noise, two standard deviations of one batch."""


def compare_runs(now: Timing, before: Timing, earlier: str, changed: str = "") -> Comparison | None:
    """The compiled calls of two runs beside each other; None where one was not timed.

    `changed` says why they can't be compared, where the caller knows; another device is found here."""
    if now.jit is None or before.jit is None:
        return None
    if not changed and now.device != before.device:
        changed = f"it ran on {before.device or 'another device'}, and now on {now.device or 'this one'}"
    if not changed and (now.constant_folded or before.constant_folded):
        changed = "the compiler computed the answer beforehand in one of them"
    if changed or before.jit.median_s <= 0:
        return Comparison("incomparable", earlier, before.jit.median_s, why=changed)
    ratio = now.jit.median_s / before.jit.median_s
    noise = max(FLOOR, (spread(now.jit) ** 2 + spread(before.jit) ** 2) ** 0.5)
    # the same factor up or down is the same difference
    distance = max(ratio, 1 / ratio) - 1 if ratio > 0 else math.inf
    verdict = "same" if distance <= noise else "faster" if ratio < 1 else "slower"
    return Comparison(verdict, earlier, before.jit.median_s, ratio, noise)  # type: ignore[arg-type]


def tell_apart(one: Sample, other: Sample) -> bool:
    """Whether three quarters of the batches, which were taken in turn, agree on which of the two is faster.

    Under four pairs there is nothing to judge by, and the medians have to do."""
    pairs = list(zip(reversed(one.batches_s), reversed(other.batches_s), strict=False))
    faster = sum(a < b for a, b in pairs)
    return len(pairs) < 4 or max(faster, len(pairs) - faster) >= 0.75 * len(pairs)


def spread(sample: Sample) -> float:
    """The relative width of what a batch's time may be by chance."""
    if sample.batches_s and len(sample.batches_s) > 3:
        low, _, high = statistics.quantiles(sample.batches_s, n=4, method="inclusive")
    elif sample.quartiles_s is not None:
        low, high = sample.quartiles_s
    else:
        low, high = sample.median_s - sample.std_s, sample.median_s + sample.std_s
    return WIDTH * (high - low) / sample.median_s if sample.median_s > 0 else 0.0
