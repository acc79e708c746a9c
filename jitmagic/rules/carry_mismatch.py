"""JM112 carry-mismatch: a loop's state or a branch's result comes out as another type."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jitmagic.evidence import BranchOutputs, Carry, Evidence, Problem, Structure
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail
from jitmagic.rules.classify import of_kind
from jitmagic.rules.words import quoted
from jitmagic.units import short_dtype

BRANCHES = ("cond", "switch")


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each loop or branch whose types do not fit."""
    for problem in of_kind(evidence, RULE.kind):
        # what the state is called inside is to blame before the arguments that it was computed with
        names = tuple(dict.fromkeys([*problem.locals[:1], *culprits(evidence, problem)]))
        message, help = _words(problem, names)
        yield RULE.finding(
            evidence,
            message,
            where=problem.where,
            culprits=names,
            help=help,
            detail=exception_detail(problem),
        )


def _words(problem: Problem, names: tuple[str, ...]) -> tuple[str, str]:
    callee = problem.callee or _guess(problem)
    subject = f" ({quoted(names[0])})" if names else ""
    if callee.rsplit(".", 1)[-1] in BRANCHES:
        return (
            f"the branches of {quoted(callee)} return different structures, shapes or dtypes{subject}"
            f"{_outputs(problem.told.carry.branches)}",
            "let every branch return the same structure with the same shapes and dtypes: "
            "`jnp.zeros_like(...)` for what one has not, `.astype(...)` where the dtypes differ",
        )
    where = quoted(callee) if callee else "the loop"
    carry, place = problem.told.carry, problem.inside
    if carry.complaint == "pair":
        line = f", but {quoted(place.source)} gives none" if place else ""
        return (
            f"the body of {where} has to return a pair, its state and a result of the iteration{line}",
            "return `state, None` where no results are collected",
        )
    if carry.complaint == "condition":
        return (
            f"the condition of {where} has to be one boolean, and gives {carry.predicate or 'something else'}{subject}",
            "say whether any or all of its elements count: `jnp.any(...)` or `jnp.all(...)`",
        )
    line = f"; line {place.line} of the body makes it so: {quoted(place.source)}" if place else ""
    return (
        f"the state of {where}{subject} {_change(carry)}{line}",
        "let the body return what it takes, in the same kinds of tuples, lists and dicts, all entries included"
        if carry.complaint == "structure"
        else "start with the type that the body returns (`jnp.float32(0)` or `jnp.zeros_like(...)` in place "
        "of `0`), or cast what the body returns with `.astype(...)`",
    )


def _outputs(differ: BranchOutputs | None) -> str:
    """What two branches return."""
    if differ is None:
        return ""
    path = f" at `{differ.path}`" if differ.path else ""
    first, second = short_dtype(differ.first_type), short_dtype(differ.second_type)
    return f": {_branch(differ.first)} gives {first}{path}, {_branch(differ.second)} {second}"


def _change(carry: Carry) -> str:
    """How the state comes out."""
    if carry.types:
        before, after = map(short_dtype, carry.types)
        return f"goes into its body as {before} and comes out as {after}"
    if carry.complaint != "structure":
        return "comes out of its body with another structure, shape or dtype than it went in"
    if carry.keys:
        return f"has other entries when it comes out of its body than when it went in: {carry.keys}"
    if carry.structures is None:
        return "comes out of its body with another structure than it went in"
    went, came = carry.structures
    if went.length is not None and came.length is not None:
        return f"is a {went.type} of {went.length} when it goes into its body and of {came.length} when it comes out"
    return f"is {_structure(went)} when it goes into its body and {_structure(came)} when it comes out"


def _structure(part: Structure) -> str:
    name = part.type.rpartition(".")[2]
    words = {
        "NoneType": "None",
        "ShapedArray": "an array",
        "tuple": "a tuple",
        "list": "a list",
        "dict": "a dict",
    }
    return words.get(name, f"a `{name}`")


def _branch(name: str) -> str:
    number = re.search(r"\d+$", name)
    words = {"true_fun": "the first", "false_fun": "the second"}
    return words.get(name.split()[-1], f"branch {number[0]}" if number else name)


def _guess(problem: Problem) -> str:
    """The loop or branch that the message or the line names."""
    source = problem.where.source if problem.where else ""
    names = ("scan", "while_loop", "fori_loop", "cond", "switch")
    return next((n for n in names if n in problem.told.carry.functions or n in source), "")


RULE = Rule("JM112", "carry-mismatch", "error", find)
