"""The registry: which families of corrections are asked for which kinds of finding, in order."""

from __future__ import annotations

from jitmagic.fixes.branches import branching, conditional, lookup, output_types
from jitmagic.fixes.calls import callbacks, counterparts, debug_print, inner_functions, memoized
from jitmagic.fixes.change import Family
from jitmagic.fixes.inputs import compiled_once, dynamic_variables, followed_variables, questions
from jitmagic.fixes.inputs.split_functions import split_functions
from jitmagic.fixes.loops import bodies, elements, fetched, filled, host_values, scanned, traced_loops
from jitmagic.fixes.numerics import finite_formulas, number_types
from jitmagic.fixes.objects import argument_forms, parts_as_arguments, registered, settings_objects
from jitmagic.fixes.options import declarations, static_arguments
from jitmagic.fixes.randomness import host_draws, key_arguments, own_keys
from jitmagic.fixes.sizes import bounds, buckets, data_sizes, masked_functions, shape_arithmetic, windows
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
    (registered.registered_classes, _OBJECT),
    (registered.static_fields, _REFUSED_TYPE),
    (settings_objects.static_settings, "invalid-jax-type"),
    (settings_objects.own_jit, _CONCRETE),
    (settings_objects.static_objects, _REFUSED_TYPE),
    (settings_objects.fields_as_arrays, "recompile-static"),
    (argument_forms.lists_of_items, _REFUSED_TYPE),
    (parts_as_arguments.parts_of_objects, _OBJECT),
    (argument_forms.hashable_forms, f"{_REFUSED_TYPE} unhashable-static"),
    (argument_forms.functions_as_partials, _REFUSED_TYPE),
    (settings_objects.returned_texts, "invalid-jax-type"),
    (registered.complete_layouts, "lossy-pytree"),
    (registered.arrays_as_children, "array-in-aux-data"),
    (static_arguments.static_arguments, f"{_CONCRETE} unhashable-static"),
    (static_arguments.ordinary_arguments, "unhashable-static recompile-static"),
    (declarations.mended_declarations, "bad-static-spec"),
    (declarations.mended_options, "bad-static-spec"),
    (dynamic_variables.dynamic_constants, _READ),
    (dynamic_variables.dynamic_state, f"{_KEPT} unregistered-pytree in-place-update hidden-rng"),
    (dynamic_variables.dynamic_attributes, "unregistered-pytree"),
    (followed_variables.followed_arguments, f"stale-constant {_KEPT}"),
    (followed_variables.declared_variables, f"stale-constant {_KEPT} recompile-static"),
    (split_functions, f"stale-constant {_KEPT} unregistered-pytree invalid-jax-type"),
    (dynamic_variables.left_out, "large-constant"),
    (dynamic_variables.read_values, _READ),
    (debug_print.prints_under_condition, "tracer-bool"),
    (debug_print.progress_bars, _SHOWN),
    (debug_print.prints, f"{_SHOWN} tracer-array-conversion frozen-side-effect tracer-int"),
    (callbacks.callbacks, f"{_SHOWN} frozen-side-effect"),
    (registered.rebuilt_by_attributes, "tracer-bool tracer-int tracer-array-conversion user-error"),
    (conditional.choosing_expressions, _ASKED),
    (conditional.branching_expressions, _ASKED),
    (branching.checks, _ASKED),
    (conditional.leaf_by_leaf, "user-error invalid-jax-type unregistered-pytree"),
    (conditional.operators, _ASKED),
    (elements.elements, _ASKED),
    (elements.builtin_calls, _ASKED),
    (filled.selected_lists, "tracer-bool"),
    (filled.inlined_selections, _ASKED),
    (branching.known_first, _ASKED),
    (branching.selecting, _ASKED),
    (branching.branching, _ASKED),
    (traced_loops.stopping_loops, _ASKED),
    (traced_loops.counted_loops, "tracer-int dynamic-shape user-error"),
    (traced_loops.of_attributes(traced_loops.stopping_loops), _ASKED),
    (traced_loops.of_attributes(traced_loops.counted_loops), "tracer-int user-error"),
    (lookup.lookups, "tracer-int tracer-array-conversion tracer-hash"),
    (memoized.kept_constants, _KEPT),
    (memoized.caches, f"tracer-hash {_KEPT} tracer-bool"),
    (memoized.memos, f"tracer-hash {_KEPT} tracer-bool"),
    (data_sizes.different_values, "dynamic-shape tracer-int tracer-array-conversion tracer-hash"),
    (shape_arithmetic.shape_arithmetic, _SIZED),
    (windows.windows, _SIZED),
    (masked_functions.masked_selections, _SIZED),
    (callbacks.callbacks, f"{_CONVERTED} {_KEPT}"),
    (counterparts.counterparts, _CONVERTED),
    (inner_functions.carried_along, f"{_KEPT} {_STORED}"),
    (counterparts.pure_callbacks, "tracer-array-conversion"),
    (updates.discarded, "unused-result"),
    (returned_arguments.copied_arguments, "state-write"),
    (updates.discarded_updates, _CHANGED),
    (returned_arguments.returned_arguments, f"{_CHANGED} {_STORED}"),
    (updates.list_indices, _REFUSED),
    (updates.masked_updates, _REFUSED),
    (updates.updates, f"{_CHANGED} {_REFUSED}"),
    (updates.arrays_without_at, f"{_CHANGED} {_REFUSED}"),
    (bodies.loop_starts, "carry-mismatch user-error"),
    (inner_functions.escaping, _KEPT),
    (bodies.loop_functions, "carry-mismatch user-error"),
    (output_types.output_types, "carry-mismatch user-error"),
    (returned_arguments.given_back_arguments, "in-place-update state-write"),
    (argument_forms.made_once, "recompile-new-function recompile-static"),
    (compiled_once.compiled_once, "recompile-new-function"),
    (argument_forms.numbers_as_arrays, "recompile-static"),
    (argument_forms.copies, "donated-reuse"),
    (questions.questions, "frozen-side-effect state-write"),
    (host_values.of_counters(scanned.scanned_loops), "unrolled-loop"),
    (traced_loops.nested_loops, "unrolled-loop"),
    (traced_loops.counting_loops, "unrolled-loop"),
    (scanned.scanned_loops, "unrolled-loop"),
    (scanned.followed_loops, "unrolled-loop"),
    (traced_loops.of_attributes(traced_loops.nested_loops), "unrolled-loop"),
    (traced_loops.of_attributes(traced_loops.counting_loops), "unrolled-loop"),
    (traced_loops.of_attributes(scanned.scanned_loops), "unrolled-loop"),
    (scanned.mapped_comprehensions, "unrolled-loop"),
    (traced_loops.comprehensions_of_attributes(scanned.scanned_loops), "unrolled-loop"),
    (fetched.fetched_behind, "device-wait"),
    (finite_formulas.finite_formulas, "nan"),
    (bounds.right_bounds, "out-of-bounds"),
    (bounds.clipped_indices, "out-of-bounds"),
    (bounds.stated_modes, "out-of-bounds"),
    (declarations.kept_arguments, "unusable-donation"),
    (declarations.given_away, "missing-donation"),
    (number_types.type_tests, "jit-differs-from-eager user-error"),
    (number_types.narrow_types, _CUT),
    (number_types.float_literals, _CUT),
    (static_arguments.static_types, "jit-differs-from-eager"),
    (number_types.floats_from_the_start, f"{_CUT} jit-differs-from-eager"),
    (number_types.cut_before_the_call, _CUT),
    (number_types.wide_arithmetic, f"{_CUT} jit-differs-from-eager"),
    (number_types.strong_starts, "recompile-weak-type"),
    (buckets.padded_lengths, "recompile-shape"),
    (buckets.padded_beside_masks, "recompile-shape"),
    (own_keys.reused_keys, "key-reuse"),
    (followed_variables.own_jits, f"hidden-rng {_KEPT} stale-constant"),
    (key_arguments.fixed_keys, "hidden-rng"),
    (key_arguments.default_keys, "hidden-rng"),
    (key_arguments.captured_keys, "hidden-rng"),
    (host_draws.drawn_arguments, "hidden-rng"),
    (host_draws.host_draws, "hidden-rng"),
    (host_draws.drawn_by_helpers, "hidden-rng"),
    (static_arguments.functions_left_out, _CONCRETE),
    (
        parts_as_arguments.numbers_in_containers,
        "tracer-bool tracer-int tracer-array-conversion dynamic-shape tracer-hash",
    ),
    (static_arguments.static_settings, _CONCRETE),
)

LAST: tuple[tuple[Family, str], ...] = (
    (dynamic_variables.dynamic_containers, f"{_KEPT} in-place-update unregistered-pytree"),
    (static_arguments.static_data, _CONCRETE),
    (data_sizes.room_for_all, "dynamic-shape"),
    (data_sizes.results_as_seen, _SIZED),
    (data_sizes.numbers_as_seen, _SIZED),
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
