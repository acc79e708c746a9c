"""Phrases that several rules share."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from jitmagic.evidence import Evidence, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, culprits, exception_detail, is_array, leaf, root

WIDTH = 64


def short(text: str, width: int = WIDTH) -> str:
    """`text` on one line, cut to `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def quoted(text: str) -> str:
    """`text` in backticks, on one line."""
    return f"`{short(text)}`"


def listed(names: Iterable[str], limit: int = 6) -> str:
    """`a`, `b` and `c`, each in backticks; what goes beyond `limit` is counted."""
    marked = [quoted(n) for n in names]
    if len(marked) > limit:
        marked = [*marked[: limit - 1], f"{len(marked) - limit + 1} more"]
    return marked[0] if len(marked) == 1 else ", ".join(marked[:-1]) + " and " + marked[-1] if marked else ""


def agree(names: Sequence[str], one: str, many: str) -> str:
    """`one` for a single name, else `many`."""
    return one if len(names) == 1 else many


def expression(problem: Problem) -> str:
    """The offending expression, or the source line where only that is known."""
    where = problem.where
    return "" if where is None else where.text or where.source


def unknown(evidence: Evidence, problem: Problem, names: Sequence[str]) -> str:
    """Why the value is not there: "`x` has no value while jax traces `f`"."""
    if not names:
        return f"the value is not known while jax traces `{evidence.function.name}`"
    first = names[0]
    others = [x for x in problem.leaves if root(x) != root(first)]
    origin = f" (it is computed from {listed(others[:4])})" if others and first not in problem.leaves else ""
    return f"{quoted(first)}{origin} has no value while jax traces `{evidence.function.name}`"


def static_help(evidence: Evidence, names: Iterable[str]) -> str:
    """Says which arguments to make static, where a re-trace proved it and the culprits are among them."""
    verified = [x for x in evidence.static_verified or () if not is_array(evidence, x)]
    if not verified or not {root(x) for x in verified} & {root(x) for x in names}:
        return ""
    whole = [x for x in verified if x.isidentifier()]
    if len(whole) < len(verified):
        return (
            f"pass {listed(verified)} as {agree(verified, 'an argument', 'arguments')} of "
            f"{agree(verified, 'its', 'their')} own and make {agree(verified, 'it', 'them')} static"
        )
    spelled = ", ".join(repr(x) for x in whole)
    return (
        f"make {listed(whole)} static (`static_argnames=[{spelled}]`): inside `{evidence.function.name}` "
        f"{agree(whole, 'it is then a plain Python value', 'they are then plain Python values')}, "
        "and each new value compiles again"
    )


def not_static(evidence: Evidence, names: Iterable[str]) -> str:
    """Says that static would be wrong, where a culprit is an array argument."""
    arrays = [x for x in names if is_array(evidence, x)]
    if not arrays:
        return ""
    shapes = [x for x in (leaf(evidence, n) for n in arrays[:1]) if x is not None]
    kind = "a single number in an array" if shapes and shapes[0].shape == () else "an array"
    return f"{quoted(arrays[0])} is {kind}, which cannot be static"


def advice(evidence: Evidence, names: Sequence[str], rewrite: str) -> str:
    """What to do next: static where that is proved, else the rewrite, with the reason against static."""
    static = static_help(evidence, names)
    if static:
        return f"{static}; or, if it takes many values, {rewrite}"
    reason = not_static(evidence, names)
    return f"{rewrite}; {reason}" if reason else rewrite


def value_asked(rule: Rule, evidence: Evidence, problem: Problem, question: str, rewrite: str) -> Finding:
    """The finding where a traced value is asked for what it only has when the program runs: `question` tells what
    needs the value, `rewrite` how to do without."""
    names = culprits(evidence, problem)
    return rule.finding(
        evidence,
        f"{question}, but {unknown(evidence, problem, names)}",
        where=problem.where,
        culprits=names,
        help=advice(evidence, names, rewrite),
        detail=exception_detail(problem),
    )


def parsed(text: str) -> ast.expr | None:
    """`text` as one expression, or None where it is none."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
