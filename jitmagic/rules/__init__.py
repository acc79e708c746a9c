"""From evidence to findings: one file for each kind, with its page in `pages/`.

A rule looks at an `Evidence` and never at jax, so this package can be imported without it.
"""

from __future__ import annotations

import difflib

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules import (
    array_in_aux_data,
    bad_static_spec,
    captured_constant,
    captured_scalar,
    carry_mismatch,
    device_wait,
    donated_reuse,
    dtype_truncation,
    dynamic_shape,
    frozen_side_effect,
    hidden_rng,
    in_place_update,
    invalid_jax_type,
    jit_differs_from_eager,
    key_reuse,
    large_constant,
    leaked_tracer,
    lossy_pytree,
    missing_donation,
    nan,
    out_of_bounds,
    out_of_memory,
    recompile_new_function,
    recompile_shape,
    recompile_static,
    recompile_weak_type,
    size_argument,
    stale_constant,
    state_write,
    trace_time_print,
    tracer_array_conversion,
    tracer_bool,
    tracer_format,
    tracer_hash,
    tracer_int,
    unhashable_static,
    unregistered_pytree,
    unrolled_loop,
    unusable_donation,
    unused_result,
    user_error,
)
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.select import select

RULES: tuple[Rule, ...] = tuple(
    module.RULE
    for module in (
        tracer_bool, tracer_int, tracer_array_conversion, dynamic_shape, tracer_hash, tracer_format,
        in_place_update, invalid_jax_type, unhashable_static, unregistered_pytree, bad_static_spec,
        carry_mismatch, leaked_tracer, donated_reuse,
        captured_constant, captured_scalar, stale_constant, large_constant, state_write, lossy_pytree,
        array_in_aux_data,
        hidden_rng, frozen_side_effect, trace_time_print, key_reuse,
        recompile_static, recompile_shape, recompile_weak_type, recompile_new_function, unrolled_loop,
        size_argument, device_wait,
        nan, jit_differs_from_eager, dtype_truncation, out_of_bounds,
        unusable_donation, missing_donation, out_of_memory,
        user_error, unused_result,
    )
)  # fmt: skip
"""All rules by code."""


def run(evidence: Evidence, settings: Thresholds | None = None) -> tuple[Finding, ...]:
    """What all rules find, one finding for each cause, by line and then by severity; without fixes."""
    chosen = settings or Thresholds()
    return select(f for rule in RULES for f in rule.find(evidence, chosen))


def page(code_or_kind: str) -> str:
    """The Markdown page of a rule, by code (`JM101`) or kind (`tracer-bool`), in any case.

    Raises ValueError for other names, with the nearest ones in its message.
    """
    wanted = code_or_kind.strip().lower().replace("_", "-")
    names = {name.lower(): rule for rule in RULES for name in (rule.code, rule.kind)}
    if wanted in names:
        return names[wanted].page
    spelled = {name.lower(): name for rule in RULES for name in (rule.code, rule.kind)}
    alike = {n: difflib.SequenceMatcher(None, wanted, n).ratio() for n in names}
    near = [spelled[n] for n in sorted(names, key=lambda n: (-alike[n], n))[:3] if alike[n] > 0.5]
    hint = f"; near it: {', '.join(near)}" if near else f"; codes go from {RULES[0].code} to {RULES[-1].code}"
    raise ValueError(f"no rule is called {code_or_kind!r}{hint}")


__all__ = ["RULES", "Rule", "Thresholds", "page", "run"]
