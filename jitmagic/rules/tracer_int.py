"""JM102 tracer-int: Python or JAX asks a traced value for a definite integer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Evidence, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.classify import SIZE_BY_NUMBER, of_kind
from jitmagic.rules.words import expression, parsed, quoted, value_asked

SHAPE_MATH = (
    "compute sizes with `math` or `numpy` from shapes and static numbers: what `jnp` returns is traced, "
    "even where its input is known"
)


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each place that asks a traced value for an integer."""
    for problem in of_kind(evidence, RULE.kind):
        yield value_asked(RULE, evidence, problem, question(problem), rewrite(problem))


def question(problem: Problem) -> str:
    """What needs the integer: "`range(n)` needs to know how many iterations the loop has"."""
    text, callee = expression(problem), problem.callee.rsplit(".", 1)[-1]
    if problem.told.asks_memory:
        return (
            f"{quoted(text) if text else 'the function'} asks for something that only an array in memory has"
        )
    if problem.construct == "range" or callee == "range":
        return f"{quoted(text or 'range')} needs to know how many iterations the loop has"
    if problem.construct == "subscript":
        return (
            f"{quoted(text or 'the index')} needs a definite integer to pick one element of a Python sequence"
        )
    if callee == "int":
        return f"{quoted(text or 'int(…)')} needs the value itself to make a Python integer of it"
    if callee == "reshape":
        return f"{quoted(text or 'reshape')} needs the new shape as definite integers"
    if callee in SIZE_BY_NUMBER:
        return f"{quoted(problem.callee)} needs the size of its result as a definite integer"
    if problem.callee:
        return f"{quoted(problem.callee)} needs a definite integer"
    return f"{quoted(text)} needs a definite integer" if text else "a definite integer is needed here"


def rewrite(problem: Problem) -> str:
    """What to write in its place where the value cannot be static."""
    if problem.told.asks_memory:
        return "ask outside the compiled function, or ask the type inside: `jax.typeof(x).sharding`"
    callee = problem.callee.rsplit(".", 1)[-1]
    if problem.construct in ("range", "for", "comprehension") or callee == "range":
        return "write the loop as `jax.lax.fori_loop(0, n, body, start)`, or loop to a fixed maximum and mask"
    if problem.construct == "subscript":
        index = parsed(expression(problem))
        name = ast.unparse(index.slice) if isinstance(index, ast.Subscript) else "index"
        return (
            f"choose a function with `jax.lax.switch({name}, functions, ...)`, "
            f"or stack the elements into one array and take `array[{name}]`"
        )
    return SHAPE_MATH


RULE = Rule("JM102", "tracer-int", "error", find)
