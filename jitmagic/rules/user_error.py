"""JM901 user-error: the function raises an exception of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jitmagic.evidence import Evidence, Problem, Refusal, TypeTest
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail
from jitmagic.rules.classify import of_kind
from jitmagic.rules.words import expression, quoted, short

TAKEN: dict[Refusal, str] = {
    "mapping": "`in_axes` says over which axis each argument is mapped: `None` passes one whole",
    "gradient of integers": "gradients are taken with respect to floats: pass `jnp.asarray(n, float)`",
    "gradient of several results": "with `has_aux=True` the first result is differentiated, and the others come beside "
    "the gradient",
    "gradient of many numbers": "`jax.grad` takes a function that gives one number, as the sum of its results; "
    "`jax.jacobian` takes others",
    "array as predicate": "`jnp.where` chooses element by element, `jax.lax.cond` once",
    "index that is no integer": "a branch is chosen by a whole number: `jnp.asarray(i, int)`",
    "tree for an array": "functions of `jnp` take arrays: `jax.tree.map` applies one to each leaf of a dict, tuple or "
    "object",
}
"""What functions of jax's take in place of what they refuse."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each exception of the function's own."""
    for problem in of_kind(evidence, RULE.kind):
        apart = [name for name, _ in problem.told.apart]
        yield RULE.finding(
            evidence,
            f"{_deed(evidence, problem)}{_said(problem)}{_forms(problem)}",
            where=problem.where,
            culprits=tuple(
                dict.fromkeys([*culprits(evidence, problem), *apart, *_tested(evidence, problem)])
            ),
            help=_help(problem) + _on_the_way(evidence),
            detail=exception_detail(problem),
        )


def _deed(evidence: Evidence, problem: Problem) -> str:
    """What happens: a `raise` is the function's own deed, an `assert` states what does not hold, the rest fails."""
    text, where = expression(problem), problem.where
    if len(apart := problem.told.apart) > 1:
        each = " and ".join(f"{quoted(name)} on {device}" for name, device in apart)
        return f"{quoted(evidence.function.name)} is called with arrays on different devices, {each}"
    if problem.exception == "AssertionError" and where is not None and where.source.startswith("assert"):
        return f"{quoted(text.removeprefix('assert '))} does not hold"
    if not text or text.startswith("raise"):
        text = where.function if where is not None and where.function else evidence.function.name
    return f"{quoted(text)} raises {problem.exception or 'an exception'}"


def _said(problem: Problem) -> str:
    if len(problem.told.apart) > 1:
        return ""
    return f": {short(problem.told.in_words, 160).rstrip('.')}" if problem.told.in_words else ""


def _forms(problem: Problem) -> str:
    """What the arrays in the expression are, where several may not fit."""
    forms = [f"{quoted(name)} is `{form}`" for name, form in problem.forms]
    raised = problem.where is not None and problem.where.source.startswith(("raise", "assert"))
    fits = raised or problem.told.refusal == "tree for an array"
    return f"; {', '.join(forms)}" if len(forms) > 1 and not fits else ""


def _help(problem: Problem) -> str:
    if problem.told.meant is not None:
        written, meant = problem.told.meant
        found = re.search(rf"[\w.]*\b{written}\b", problem.where.source) if problem.where else None
        text = found.group() if found else written
        return f"it may be meant as {quoted(text[: len(text) - len(written)] + meant)}"
    if problem.told.refusal is not None:
        return TAKEN[problem.told.refusal]
    if len(apart := problem.told.apart) > 1:
        (one, _), (other, _) = apart[:2]
        return f"bring them to one device before the call: `{other} = jax.device_put({other}, {one}.device)`"
    if problem.op == "user":
        return "this is an error of the function itself: call it without jit to look at it with `%debug`"
    return "call the function without jit to see whether it fails there too; the details say what jax reports"


def _tested(evidence: Evidence, problem: Problem) -> list[str]:
    """What is tested on the way to a `raise`."""
    test = _type_test(evidence)
    raises = problem.where is not None and problem.where.source.startswith("raise")
    return [test.name] if raises and test is not None and test.name else []


def _type_test(evidence: Evidence) -> TypeTest | None:
    """The first test of a type, for which a placeholder is something else than a value."""
    tests = evidence.silent.tests
    return next((t for t in tests if not t.swallows), None)


def _on_the_way(evidence: Evidence) -> str:
    """A test of a type on the way, which may be why."""
    test = _type_test(evidence)
    if test is None:
        return ""
    return f"; {quoted(test.where.text)} (line {test.where.line}) sees a traced value while jax traces"


RULE = Rule("JM901", "user-error", "error", find)
