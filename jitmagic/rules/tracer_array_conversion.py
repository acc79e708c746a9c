"""JM103 tracer-array-conversion: a traced value is handed to what works on real numbers only."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, root
from jitmagic.rules.classify import of_kind
from jitmagic.rules.words import expression, quoted, value_asked

BUILTINS = ("float", "complex", "int", "round")
CONVERTERS = ("asarray", "array", "ascontiguousarray", "asanyarray")


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each place that asks a traced value for its numbers."""
    for problem in of_kind(evidence, RULE.kind):
        yield value_asked(RULE, evidence, problem, question(problem), rewrite(problem))


def question(problem: Problem) -> str:
    """What needs the numbers: "`np.cos` is NumPy and computes at once, so it needs the numbers"."""
    callee, text = problem.callee, expression(problem)
    if problem.op in ("item", "tolist"):
        return f"`.{problem.op}()` makes a plain Python value and needs the numbers"
    if root(callee) in ("np", "numpy"):
        return f"{quoted(callee)} is NumPy, which computes at once and needs the numbers"
    if root(callee) == "math":
        return f"{quoted(callee)} computes with plain Python numbers and needs the value"
    if callee in BUILTINS:
        return f"{quoted(text or callee)} makes a plain Python number and needs the value"
    if callee:
        return f"{quoted(callee)} computes outside JAX and needs the numbers"
    return f"{quoted(text) if text else 'this expression'} needs the numbers as a NumPy array"


def rewrite(problem: Problem) -> str:
    """What to write in its place."""
    first, _, rest = problem.callee.partition(".")
    last = problem.callee.rsplit(".", 1)[-1]
    if problem.op in ("item", "tolist") or problem.callee in BUILTINS:
        return "leave the conversion out (a JAX array of no axes acts as a number), or do it after the call"
    if last in CONVERTERS:
        return "leave the conversion out and go on with `jnp`; a mask works in `jnp.where`"
    if first in ("np", "numpy", "math"):
        return (
            f"use `jnp.{rest if first != 'math' else last}` (or the function of `jnp` for it); what only "
            "looks at values goes into `jax.debug.callback`"
        )
    if "scipy" in problem.callee:
        return "use the same function of `jax.scipy`, or call this one through `jax.pure_callback`"
    return "use a function of `jax.numpy`, or call this one through `jax.pure_callback`"


RULE = Rule("JM103", "tracer-array-conversion", "error", find)
