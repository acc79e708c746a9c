"""Which captured variables a function treats as constants, and how much that matters (JM201 to JM204)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jitmagic.evidence import Evidence, Variable, Where
from jitmagic.rules.base import Thresholds, covers
from jitmagic.rules.words import agree, listed


def constants(evidence: Evidence, *types: str) -> list[Variable]:
    """Variables of these types that the compiled program holds as constants."""
    return [
        v
        for v in evidence.variables
        if v.role == "constant" and v.type in types and v.in_jaxpr and v.origin != "argument"
    ]


def quiet(evidence: Evidence, settings: Thresholds, *types: str) -> list[Variable]:
    """Constants that no finer kind speaks of: not stale, not large, not written by the function."""
    changed = [w.path for w in evidence.writes]
    return [
        v
        for v in constants(evidence, *types)
        if not (v.stale or v.written or is_large(v, settings))
        and not any(covers(v.path, w) or covers(w, v.path) for w in changed)
    ]


def is_large(variable: Variable, settings: Thresholds) -> bool:
    """Whether the array takes `settings.large_constant` bytes or more."""
    return variable.type == "array" and (variable.bytes or 0) >= settings.large_constant


def everything_is_constant(evidence: Evidence) -> bool:
    """Whether the compiled program has no input at all, so that it gives the same result for ever."""
    return evidence.dynamic_inputs == 0


def first_read(variables: Iterable[Variable]) -> Where | None:
    """The place where the first of them is read, or None where no read was seen."""
    return next(_reads(variables), None)


def paths(variables: Iterable[Variable]) -> tuple[str, ...]:
    """Their paths, in order."""
    return tuple(dict.fromkeys(v.path for v in variables))


def as_inputs(names: Sequence[str]) -> str:
    """What to do with constants that should be inputs."""
    return (
        f"pass {listed(names)} as {agree(names, 'an argument', 'arguments')}, or declare "
        f"{agree(names, 'it', 'them')} dynamic (`--dyn {','.join(names)}`)"
    )


def _reads(variables: Iterable[Variable]) -> Iterator[Where]:
    return (where for v in variables for where in v.reads)
