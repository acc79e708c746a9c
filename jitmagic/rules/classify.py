"""Which kind a problem is: the one table between what stopped the trace and the rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jitmagic.evidence import Evidence, Leaf, Problem, Where
from jitmagic.rules.base import covers
from jitmagic.rules.returned import returned

BY_OP = {
    op: kind
    for kind, ops in {
        "tracer-bool": "bool", "tracer-int": "int index concrete", "tracer-hash": "hash", "tracer-format": "format",
        "tracer-array-conversion": "float complex array item tolist", "in-place-update": "setitem",
        "dynamic-shape": "boolean-mask slice shape", "leaked-tracer": "leak", "invalid-jax-type": "invalid-type",
        "unhashable-static": "unhashable", "bad-static-spec": "static-spec", "donated-reuse": "donated",
        "carry-mismatch": "carry", "array-in-aux-data": "aux-data", "user-error": "user other",
    }.items()
    for op in ops.split()
}  # fmt: skip

BY_EXCEPTION = {
    "TracerBoolConversionError": "tracer-bool",
    "TracerIntegerConversionError": "tracer-int",
    "TracerArrayConversionError": "tracer-array-conversion",
    "NonConcreteBooleanIndexError": "dynamic-shape",
    "ConcretizationTypeError": "tracer-int",
    "UnexpectedTracerError": "leaked-tracer",
    "TraceContextError": "state-write",
    "KeyReuseError": "key-reuse",
}
"""For problems that came without a finer `op`."""

DATA_SIZED = frozenset(
    "nonzero flatnonzero unique unique_all unique_counts unique_inverse unique_values repeat argwhere where "
    "bincount union1d intersect1d setdiff1d setxor1d extract compress arange linspace zeros ones full empty "
    "eye tri normal uniform broadcast_to tile".split()
)
"""Functions whose result has a shape that depends on the value asked for."""

SIZE_BY_NUMBER = frozenset("reshape segment_sum segment_max segment_min segment_prod one_hot top_k".split())
"""Functions that take a size beside the data: the size is an integer that is missing."""

LIBRARY_TYPES = frozenset(
    "function builtin_function_or_method method method-wrapper partial ufunc type module str bytes bytearray "
    "NoneType ellipsis slice object generator iterator list_iterator zip map enumerate range set frozenset "
    "dict_keys dict_values PjitFunction CompiledFunction custom_jvp custom_vjp jit Generator RandomState "
    "Random PosixPath WindowsPath Path datetime date timedelta DataFrame Series Tensor Index Fraction "
    "Decimal Pattern TextIOWrapper dtype _ScalarMeta ABCMeta EnumType EnumMeta wrapped_function "
    "GradientTransformation".split()
)


def kind_of(evidence: Evidence, problem: Problem) -> str:
    """The kind that tells the user most about `problem`."""
    callee = problem.callee.rsplit(".", 1)[-1]
    if problem.exception == "TraceContextError" and problem.told.random_state:
        return "hidden-rng"
    if problem.exception == "TraceContextError" or problem.told.other_trace:
        return "state-write"
    if problem.exception == "OverflowError" and problem.op in ("user", "other"):
        return "dtype-truncation"
    if problem.op == "other":
        return BY_EXCEPTION.get(problem.exception.rsplit(".", 1)[-1], "user-error")
    if problem.op in ("shape", "concrete", "slice"):
        if callee in SIZE_BY_NUMBER:
            return "tracer-int"
        if callee in DATA_SIZED:
            return "dynamic-shape"
    if several_results(problem):
        return "user-error"
    if problem.op == "invalid-type" and (result := returned(evidence, problem)) is not None:
        return "unregistered-pytree" if result.users else "invalid-jax-type"
    if problem.op == "invalid-type" and any(is_users_object(x) for x in offenders(evidence, problem)):
        return "unregistered-pytree"
    if problem.op == "invalid-type" and class_handed_on(problem):
        return "unregistered-pytree"
    if problem.op in ("int", "index") and problem.callee.startswith("math.") and callee != "factorial":
        return "tracer-array-conversion"
    return BY_OP[problem.op]


def several_results(problem: Problem) -> bool:
    """`jax.grad(f)(x)` of a function that returns a tuple."""
    text = problem.where.text if problem.where else ""
    return problem.told.tuple_refused and "grad(" in text


def class_handed_on(problem: Problem) -> str:
    """The notebook's class whose object the function itself gave to a function of jax's, or nothing."""
    return "" if problem.leaves else problem.told.own_class


def of_kind(evidence: Evidence, kind: str) -> Iterator[Problem]:
    """The problems of that kind, in the order seen."""
    return (p for p in evidence.problems if kind_of(evidence, p) == kind)


def offenders(evidence: Evidence, problem: Problem) -> tuple[Leaf, ...]:
    """The argument leaves that `problem` names, as the newest call had them in which they were no arrays."""
    for call in reversed(evidence.calls):
        named = (x for x in call.leaves if any(covers(p, x.path) for p in problem.leaves))
        if found := tuple(x for x in named if x.kind == "other"):
            return found
    return ()


def arrays_named(evidence: Evidence, problem: Problem) -> tuple[Leaf, ...]:
    """The arrays of NumPy that `problem` names, as the newest call had them."""
    leaves = (x for call in reversed(evidence.calls) for x in call.leaves if x.kind == "numpy")
    return tuple(x for x in leaves if any(covers(p, x.path) for p in problem.leaves))


def is_users_object(value: Leaf) -> bool:
    """Whether the leaf is an instance of a class of the user's, which could be registered as a pytree."""
    name = value.python_type.rsplit(".", 1)[-1]
    member_of_enum = re.match(r"<\w+\.\w+: ", value.value)
    if value.argument == "self" and value.path == "self":
        return True
    return value.kind == "other" and name not in LIBRARY_TYPES and not member_of_enum and name.isidentifier()


def binding_place(evidence: Evidence, problem: Problem) -> Where | None:
    """Where an argument is bound: the decorator at fault, else the `def` line, else what the problem says."""
    if problem.construct == "decorator" and problem.where is not None:
        return problem.where
    return evidence.function.where or problem.where
