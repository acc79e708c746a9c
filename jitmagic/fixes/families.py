"""The registry: which families of corrections are asked for which kinds of finding, in order."""

from __future__ import annotations

from jitmagic.fixes.branches import branching, callees, checks, conditional, lookup, output_types, recursion
from jitmagic.fixes.calls.callbacks import callbacks
from jitmagic.fixes.calls.counterparts import counterparts
from jitmagic.fixes.calls.debug_print import prints, prints_under_condition, progress_bars
from jitmagic.fixes.calls.discarded import discarded
from jitmagic.fixes.calls.host import pure_callbacks
from jitmagic.fixes.calls.inner_functions import carried_along, escaping
from jitmagic.fixes.calls.memoized import caches, kept_constants, memos
from jitmagic.fixes.calls.tries import tries
from jitmagic.fixes.change import Family
from jitmagic.fixes.inputs.call_arguments import copies, made_once, numbers_as_arrays
from jitmagic.fixes.inputs.compiled_once import compiled_once
from jitmagic.fixes.inputs.dynamic_variables import (
    dynamic_attributes,
    dynamic_constants,
    dynamic_containers,
    dynamic_state,
)
from jitmagic.fixes.inputs.followed_variables import declared_variables, followed_arguments, own_jits
from jitmagic.fixes.inputs.questions import questions
from jitmagic.fixes.inputs.read_values import left_out, read_values
from jitmagic.fixes.inputs.split_functions import split_functions
from jitmagic.fixes.loops.bodies import loop_functions
from jitmagic.fixes.loops.elements import builtin_calls, elements
from jitmagic.fixes.loops.filled import selected_lists
from jitmagic.fixes.loops.mapped import mapped_calls, mapped_comprehensions
from jitmagic.fixes.loops.scanned import scanned_loops
from jitmagic.fixes.loops.starts import growing_states, loop_starts
from jitmagic.fixes.loops.traced_loops import counted_loops, counting_loops, nested_loops, stopping_loops
from jitmagic.fixes.numerics.finite_formulas import finite_formulas
from jitmagic.fixes.numerics.strong_types import strong_starts
from jitmagic.fixes.numerics.type_tests import type_tests
from jitmagic.fixes.numerics.wide_types import (
    cut_before_the_call,
    float_literals,
    floats_from_the_start,
    narrow_types,
    wide_arithmetic,
)
from jitmagic.fixes.objects import (
    forms,
    hashes,
    parts_as_arguments,
    registered,
    returned_values,
    settings_objects,
)
from jitmagic.fixes.options.declarations import (
    mended_declarations,
    mended_options,
    neighbouring_declarations,
)
from jitmagic.fixes.options.static_arguments import (
    functions_left_out,
    ordinary_arguments,
    static_arguments,
    static_data,
    static_settings,
    static_types,
)
from jitmagic.fixes.randomness.drawn_arguments import drawn_arguments, objects_made_once
from jitmagic.fixes.randomness.host_draws import host_draws
from jitmagic.fixes.randomness.key_arguments import captured_keys, default_keys, fixed_keys
from jitmagic.fixes.randomness.reused_keys import reused_keys
from jitmagic.fixes.sizes.buckets import padded_lengths
from jitmagic.fixes.sizes.data_sizes import different_values, numbers_as_seen, results_as_seen
from jitmagic.fixes.sizes.masked_functions import masked_selections
from jitmagic.fixes.sizes.shape_arithmetic import shape_arithmetic
from jitmagic.fixes.sizes.windows import windows
from jitmagic.fixes.stores import returned_arguments, updates

RAISE = False
"""Tests set it: a family that fails then raises."""

_ASKED = "tracer-bool tracer-hash"
_SIZED = "tracer-int dynamic-shape tracer-array-conversion user-error"
_CONVERTED = f"{_SIZED} tracer-bool tracer-format"
_KEPT = "leaked-tracer state-write"
_CHANGED = "in-place-update unused-result"
_STORED = "in-place-update tracer-array-conversion"
_REFUSED = f"in-place-update {_SIZED}"
_READ = "stale-constant captured-constant captured-scalar large-constant"
_CUT = "dtype-truncation"
_SHOWN = "tracer-format trace-time-print"
_CONCRETE = f"{_CONVERTED} tracer-hash invalid-jax-type jit-differs-from-eager"
_REFUSED_TYPE = "unregistered-pytree invalid-jax-type"
_OBJECT = f"{_REFUSED_TYPE} unhashable-static recompile-static"

TABLE: tuple[tuple[Family, str], ...] = (
    (hashes.hashes, "unhashable-static"),
    (registered.registered_classes, _OBJECT),
    (registered.static_fields, _REFUSED_TYPE),
    (settings_objects.static_settings, "invalid-jax-type"),
    (settings_objects.own_jit, "invalid-jax-type"),
    (settings_objects.static_objects, _REFUSED_TYPE),
    (settings_objects.fields_as_arrays, "recompile-static"),
    (forms.lists_of_items, _REFUSED_TYPE),
    (parts_as_arguments.parts_of_objects, _OBJECT),
    (forms.hashable_forms, f"{_REFUSED_TYPE} unhashable-static"),
    (forms.functions_as_partials, _REFUSED_TYPE),
    (returned_values.returned_texts, "invalid-jax-type"),
    (registered.complete_layouts, "lossy-pytree"),
    (registered.arrays_as_children, "array-in-aux-data"),
    (static_arguments, f"{_CONCRETE} unhashable-static"),
    (neighbouring_declarations, "unhashable-static"),
    (ordinary_arguments, "unhashable-static recompile-static"),
    (mended_declarations, "bad-static-spec"),
    (mended_options, "bad-static-spec"),
    (dynamic_constants, _READ),
    (dynamic_state, f"{_KEPT} unregistered-pytree in-place-update hidden-rng"),
    (dynamic_attributes, "unregistered-pytree"),
    (followed_arguments, f"stale-constant {_KEPT}"),
    (declared_variables, f"stale-constant {_KEPT} recompile-static"),
    (split_functions, f"stale-constant {_KEPT} unregistered-pytree invalid-jax-type"),
    (left_out, "large-constant"),
    (read_values, _READ),
    (prints_under_condition, "tracer-bool"),
    (progress_bars, _SHOWN),
    (prints, f"{_SHOWN} tracer-array-conversion frozen-side-effect tracer-int"),
    (callbacks, f"{_SHOWN} frozen-side-effect"),
    (registered.rebuilt_by_attributes, "tracer-bool tracer-int tracer-array-conversion user-error"),
    (recursion.recursion, _ASKED),
    (conditional.choosing_expressions, _ASKED),
    (conditional.branching_expressions, _ASKED),
    (checks.checks, _ASKED),
    (conditional.operators, _ASKED),
    (elements, _ASKED),
    (builtin_calls, _ASKED),
    (selected_lists, "tracer-bool"),
    (branching.matching, _ASKED),
    (branching.known_first, _ASKED),
    (branching.selecting, _ASKED),
    (branching.branching, _ASKED),
    (callees.callees, _ASKED),
    (stopping_loops, _ASKED),
    (counted_loops, "tracer-int dynamic-shape user-error"),
    (lookup.lookups, "tracer-int tracer-array-conversion tracer-hash"),
    (kept_constants, _KEPT),
    (caches, f"tracer-hash {_KEPT} tracer-bool"),
    (memos, f"tracer-hash {_KEPT} tracer-bool"),
    (different_values, "dynamic-shape tracer-int tracer-array-conversion tracer-hash"),
    (shape_arithmetic, _SIZED),
    (windows, _SIZED),
    (tries, "jit-differs-from-eager"),
    (masked_selections, _SIZED),
    (returned_arguments.returned_state, "state-write"),
    (callbacks, f"{_CONVERTED} {_KEPT}"),
    (counterparts, _CONVERTED),
    (carried_along, f"{_KEPT} {_STORED}"),
    (pure_callbacks, "tracer-array-conversion"),
    (discarded, "unused-result"),
    (returned_arguments.copied_arguments, "state-write"),
    (updates.discarded_updates, _CHANGED),
    (returned_arguments.returned_arguments, f"{_CHANGED} {_STORED}"),
    (updates.changed_views, _CHANGED),
    (updates.list_indices, _REFUSED),
    (updates.masked_updates, _REFUSED),
    (updates.updates, f"{_CHANGED} {_REFUSED}"),
    (updates.arrays_without_at, f"{_CHANGED} {_REFUSED}"),
    (updates.rows_by_number, _STORED),
    (growing_states, "carry-mismatch"),
    (loop_starts, "carry-mismatch user-error"),
    (escaping, _KEPT),
    (loop_functions, "carry-mismatch user-error"),
    (output_types.output_types, "carry-mismatch user-error"),
    (returned_arguments.given_back_arguments, "in-place-update state-write"),
    (made_once, "recompile-new-function recompile-static"),
    (compiled_once, "recompile-new-function"),
    (numbers_as_arrays, "recompile-static"),
    (copies, "donated-reuse"),
    (questions, "frozen-side-effect state-write"),
    (nested_loops, "unrolled-loop"),
    (counting_loops, "unrolled-loop"),
    (scanned_loops, "unrolled-loop"),
    (mapped_comprehensions, "unrolled-loop"),
    (mapped_calls, "unrolled-loop"),
    (finite_formulas, "nan"),
    (type_tests, "jit-differs-from-eager user-error"),
    (narrow_types, _CUT),
    (float_literals, _CUT),
    (static_types, "jit-differs-from-eager"),
    (floats_from_the_start, f"{_CUT} jit-differs-from-eager"),
    (cut_before_the_call, _CUT),
    (wide_arithmetic, f"{_CUT} jit-differs-from-eager"),
    (strong_starts, "recompile-weak-type"),
    (padded_lengths, "recompile-shape"),
    (reused_keys, "key-reuse"),
    (own_jits, f"hidden-rng {_KEPT} stale-constant"),
    (fixed_keys, "hidden-rng"),
    (default_keys, "hidden-rng"),
    (captured_keys, "hidden-rng"),
    (drawn_arguments, "hidden-rng"),
    (host_draws, "hidden-rng"),
    (objects_made_once, "hidden-rng"),
    (functions_left_out, _CONCRETE),
    (
        parts_as_arguments.numbers_in_containers,
        "tracer-bool tracer-int tracer-array-conversion dynamic-shape tracer-hash",
    ),
    (static_settings, _CONCRETE),
)

LAST: tuple[tuple[Family, str], ...] = (
    (dynamic_containers, f"{_KEPT} in-place-update"),
    (static_data, _CONCRETE),
    (results_as_seen, _SIZED),
    (numbers_as_seen, _SIZED),
)
"""Asked where nothing else mends it."""


def of(kind: str) -> tuple[Family, ...]:
    """The families for a kind, the first to be asked first."""
    return _for(kind, TABLE)


def last(kind: str) -> tuple[Family, ...]:
    """Those that are asked where none of these mends it."""
    return _for(kind, LAST)


def _for(kind: str, table: tuple[tuple[Family, str], ...]) -> tuple[Family, ...]:
    return tuple(dict.fromkeys(family for family, kinds in table if kind in kinds.split()))
