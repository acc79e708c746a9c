"""JM101 tracer-bool: Python asks a traced value for a decision."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Evidence, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.classify import of_kind
from jitmagic.rules.words import expression, parsed, quoted, value_asked

SELECT = (
    "choose with `jnp.where(condition, a, b)`, which computes both, or with `jax.lax.cond`, which runs one"
)
REWRITE = {
    "if": SELECT,
    "ifexp": SELECT,
    "while": "write the loop as `jax.lax.while_loop(condition, body, start)`",
    "and": "combine the conditions with `&` (or `jnp.logical_and`), each in parentheses",
    "or": "combine the conditions with `|` (or `jnp.logical_or`), each in parentheses",
    "not": "negate with `~` (or `jnp.logical_not`)",
    "compare": "write the two comparisons apart: `(a <= x) & (x < b)`",
    "assert": "check it in the code that calls the function, or with `jax.experimental.checkify.check`",
    "in": "compare with each element: `(x == a) | (x == b)`, or `jnp.isin(x, values)`",
    "match": "choose with `jax.lax.switch(index, functions, ...)`, or with `jnp.where`",
    "guard": SELECT,
    "call": "use the `jnp` counterpart (`jnp.any`, `jnp.all`, `jnp.maximum`, `jnp.sort`): it stays an array",
    "comprehension": "keep all elements and mask them with `jnp.where` in place of leaving some out",
}


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each place that asks a traced value for its truth."""
    matched: set[tuple[str, ...]] = set()
    for problem in of_kind(evidence, RULE.kind):
        if problem.construct in ("match", "guard"):  # each `case` asks again
            subject = (problem.where.function if problem.where else "", *problem.locals)
            if subject in matched:
                continue
            matched.add(subject)
        rewrite = REWRITE.get(problem.construct, SELECT)
        yield value_asked(RULE, evidence, problem, question(problem), rewrite)


def question(problem: Problem) -> str:
    """What the construct needs to know: "`if x < 3` needs to know whether `x < 3` is true"."""
    text = expression(problem)
    node = parsed(text)
    test = quoted(ast.unparse(node.test) if isinstance(node, ast.IfExp) else text) if text else "a condition"
    match problem.construct:
        case "if" | "while" | "assert" as word:
            head = text if text.startswith(word) else f"{word} {text}"
            condition = quoted(text.removeprefix(word).strip().rstrip(":")) if text else "its condition"
            often = " before every iteration" if word == "while" else ""
            return f"{quoted(head.rstrip(':'))} needs to know{often} whether {condition} is true"
        case "ifexp":
            return f"the conditional expression needs to know whether {test} is true"
        case "and" | "or" as word:
            whole = isinstance(node, ast.BoolOp)
            asked = quoted(ast.unparse(node.values[0]) if isinstance(node, ast.BoolOp) else text)
            return (
                f"{_in(text) if whole else ''}Python's `{word}` needs to know whether "
                f"{asked if text else 'its left side'} is true before it goes on"
            )
        case "not":
            negated = isinstance(node, ast.UnaryOp)
            asked = quoted(ast.unparse(node.operand) if isinstance(node, ast.UnaryOp) else text)
            return (
                f"{_in(text) if negated else ''}Python's `not` needs to know whether "
                f"{asked if text else 'its operand'} is true"
            )
        case "compare":
            return (
                f"{quoted(text)} joins two comparisons by `and` and needs to know whether the first is true"
            )
        case "in":
            return f"{quoted(text)} compares with each element and needs to know whether they are equal"
        case "match":
            return f"`match` needs to know whether {test} fits the pattern"
        case "guard":
            return f"the `if` of a `case` needs to know whether {test} is true"
        case "comprehension":
            return f"the `if` of the comprehension needs to know whether {test} is true for each element"
        case "call" if problem.callee:
            return f"{quoted(problem.callee + '(…)')} needs to know which of its values are true"
        case _:
            return f"Python needs to know whether {test} is true"


def _in(text: str) -> str:
    return f"in {quoted(text)}, " if text else ""


RULE = Rule("JM101", "tracer-bool", "error", find)
