"""JM114 donated-reuse: an array that was given away is used again."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail
from jitmagic.rules.classify import binding_place, of_kind
from jitmagic.rules.words import listed, quoted


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each use of an array that was given away."""
    for problem in of_kind(evidence, RULE.kind):
        donated = _donated(evidence)
        blamed = culprits(evidence, problem)
        names = tuple(dict.fromkeys([*(n for n in donated if n in blamed or not blamed), *blamed]))
        given = quoted(next((n for n in names if n in donated), names[0] if names else "an array"))
        twice = problem.told.twice or len(problem.leaves) > 1
        if not donated and problem.where is not None:
            yield _read_later(evidence, problem, blamed)
            continue
        head = f"{listed(names[:3])} are the same array in one call" if twice and len(names) > 1 else (
            f"the array passed as {given} is used again after the call"
        )  # fmt: skip
        text = problem.where.text if problem.where is not None and not twice else ""
        read = f" by {quoted(text)}" if text else ""
        place = binding_place(evidence, problem)
        yield RULE.finding(
            evidence,
            f"{head}{read}, but {given} is donated: `{evidence.function.name}` writes its result into that memory",
            where=place,
            shows=problem.where if problem.where != place else None,
            culprits=names,
            help=f"pass `jnp.copy(...)` for {given}, bind the result to the old name, or do not donate "
            f"{given}",
            detail=exception_detail(problem),
        )


def _read_later(evidence: Evidence, problem: Problem, names: tuple[str, ...]) -> Finding:
    """An expression that reads an array whose call is not known."""
    text = problem.where.text if problem.where is not None and problem.where.text else ""
    given = quoted(names[0]) if names else "an array"
    return RULE.finding(
        evidence,
        f"{quoted(text)} reads {given}, but an earlier call was given its memory (`donate_argnums`): there is "
        "nothing in it any more",
        where=problem.where,
        culprits=names,
        help=f"pass `jnp.copy(...)` for {given} in that call, use the call's result in its place, or do not donate it",
        detail=exception_detail(problem),
    )


def _donated(evidence: Evidence) -> list[str]:
    parameters = evidence.function.parameters
    numbers = [n for n in evidence.options.donate_argnums if -len(parameters) <= n < len(parameters)]
    return list(dict.fromkeys([*evidence.options.donate_argnames, *(parameters[n] for n in numbers)]))


RULE = Rule("JM114", "donated-reuse", "error", find)
