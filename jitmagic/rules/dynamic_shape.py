"""JM104 dynamic-shape: the size of an array depends on a traced value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Evidence, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail
from jitmagic.rules.classify import of_kind
from jitmagic.rules.words import advice, expression, listed, parsed, quoted, unknown
from jitmagic.source.tree import walk

SIZED = {
    "nonzero": "give `jnp.nonzero` an upper bound (`size=`, `fill_value=`)",
    "flatnonzero": "give `jnp.flatnonzero` an upper bound (`size=`, `fill_value=`)",
    "argwhere": "give `jnp.argwhere` an upper bound (`size=`, `fill_value=`)",
    "where": "give `jnp.where` three arguments, `jnp.where(mask, a, b)`, or an upper bound (`size=`)",
    "unique": "give `jnp.unique` an upper bound (`size=`, `fill_value=`)",
    "repeat": "give `jnp.repeat` the length of the result (`total_repeat_length=`)",
    "bincount": "give `jnp.bincount` a fixed `length=`",
}

UPDATES = frozenset("set add subtract multiply divide power min max apply".split())
"""Methods of `x.at[mask]`, which picks nothing but changes what is there."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each array whose size depends on a traced value."""
    for problem in of_kind(evidence, RULE.kind):
        names = _mask_first(problem, culprits(evidence, problem))
        yield RULE.finding(
            evidence,
            f"{question(problem, names)}; {unknown(evidence, problem, names)}, and a compiled program "
            "has arrays of fixed shapes only",
            where=problem.where,
            culprits=names,
            help=advice(evidence, names, rewrite(problem)),
            detail=exception_detail(problem),
        )


def question(problem: Problem, names: tuple[str, ...]) -> str:
    """What has a size that is not known."""
    text = quoted(expression(problem)) if expression(problem) else "the result"
    on = f" on the values of {listed(names[:2])}" if names else " on values"
    if problem.op == "boolean-mask" and not problem.callee:
        return f"how many elements {text} picks depends{on}"
    if problem.op == "boolean-mask" and problem.callee.lstrip(".") in UPDATES:
        return f"how many elements {text} changes depends{on}"
    if problem.op == "slice" or problem.construct == "slice":
        return f"how long the slice {text} is depends{on}"
    if problem.callee:
        return f"the shape of the result of {quoted(problem.callee)} depends{on}"
    return f"the shape of {text} depends{on}"


def rewrite(problem: Problem) -> str:
    """What to write in its place."""
    callee = problem.callee.rsplit(".", 1)[-1]
    if callee in SIZED:
        return f"{SIZED[callee]}, or keep the full size and mask with `jnp.where`"
    if problem.op == "slice" or problem.construct == "slice":
        return (
            "take a window of fixed width with `jax.lax.dynamic_slice_in_dim(array, start, width)`, "
            "or keep the whole array and mask with `jnp.arange(n) < stop`"
        )
    if problem.op == "boolean-mask" and callee in UPDATES:
        return "choose between the new and the old values: `jnp.where(mask, new, x)`"
    if problem.op == "boolean-mask":
        return (
            "keep all elements and mask: `jnp.where(mask, x, 0)`, or `where=mask` in `jnp.sum` and `jnp.mean`"
        )
    return "make the array as large as it can get and mask the rest, or compute the size from shapes alone"


def _mask_first(problem: Problem, names: tuple[str, ...]) -> tuple[str, ...]:
    node = parsed(expression(problem))
    if not isinstance(node, ast.Subscript):
        return names
    index = {n.id for n in walk(node.slice) if isinstance(n, ast.Name)}
    return tuple(sorted(names, key=lambda n: n not in index))  # stable: what is indexed comes after the index


RULE = Rule("JM104", "dynamic-shape", "error", find)
