"""JM112 carry-mismatch: a loop's state or a branch's result comes out as another type."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jitmagic.evidence import Evidence, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail
from jitmagic.rules.classify import of_kind
from jitmagic.rules.words import quoted

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
    kind = callee.rsplit(".", 1)[-1]
    subject = f" ({quoted(names[0])})" if names else ""
    if kind in BRANCHES:
        differ = re.search(
            r"output of (.+?)(?: at path (\S+))? has type (\S+) but .* output of (.+?) has type ([^,\s]+\[[\d,]*\])",
            problem.message,
        )
        path = f" at `{differ[2]}`" if differ and differ[2] else ""
        told = (
            f": {_branch(differ[1])} gives {differ[3]}{path}, {_branch(differ[4])} {differ[5]}"
            if differ
            else ""
        )
        return (
            f"the branches of {quoted(callee)} return different structures, shapes or dtypes{subject}{told}",
            "let every branch return the same structure with the same shapes and dtypes: "
            "`jnp.zeros_like(...)` for "
            "what one has not, `.astype(...)` where the dtypes differ",
        )
    where = quoted(callee) if callee else "the loop"
    if "must be a pair" in problem.message:
        line = f", but {quoted(problem.inside.source)} gives none" if problem.inside else ""
        return (
            f"the body of {where} has to return a pair, its state and a result of the turn{line}",
            "return `state, None` where no results are collected",
        )
    if "must return a boolean scalar" in problem.message:
        given = re.search(r"ShapedArray\((\S+?)\)", problem.message)
        told = f"gives {given[1]}" if given else "gives something else"
        return (
            f"the condition of {where} has to be one boolean, and {told}{subject}",
            "say whether any or all of its elements count: `jnp.any(...)` or `jnp.all(...)`",
        )
    types = re.search(r"has type (\S+) but .* has type ([^,\s]+\[[\d,]*\])", problem.message)
    told = f"goes into its body as {types[1]} and comes out as {types[2]}" if types else (
        "comes out of its body with another structure, shape or dtype than it went in"
        if "pytree structure" not in problem.message else _structures(problem.message)
    )  # fmt: skip
    kinds = "pytree structure" in problem.message
    place = problem.inside
    line = f"; line {place.line} of the body makes it so: {quoted(place.source)}" if place else ""
    return (
        f"the state of {where}{subject} {told}{line}",
        "let the body return what it takes, in the same kinds of tuples, lists and dicts, all entries included"
        if kinds
        else "start with the type that the body returns (`jnp.float32(0)` or `jnp.zeros_like(...)` in place "
        "of `0`), "
        "or cast what the body returns with `.astype(...)`",
    )


def _structures(message: str) -> str:
    """What jax says of the two structures, in short."""
    keys = re.search(r"symmetric difference of key sets: \{([^}]*)\}", message)
    if keys:
        return f"has other entries when it comes out of its body than when it went in: {keys[1]}"
    kinds = re.search(r"is a (?:<class '([\w.]+)'>|(tuple|list) of length (\d+)) but .*? is a "
                      r"(?:<class '([\w.]+)'>|(?:tuple|list) of length (\d+))", message, re.S)  # fmt: skip
    if kinds is None:
        return "comes out of its body with another structure than it went in"
    if kinds[2]:
        return f"is a {kinds[2]} of {kinds[3]} when it goes into its body and of {kinds[5]} when it comes out"
    words = {
        "NoneType": "None",
        "ShapedArray": "an array",
        "tuple": "a tuple",
        "list": "a list",
        "dict": "a dict",
    }
    went, came = (
        words.get(n, f"a `{n}`") for n in (k.rpartition(".")[2] for k in (kinds[1], kinds[4] or "tuple"))
    )
    return f"is {went} when it goes into its body and {came} when it comes out"


def _branch(name: str) -> str:
    number = re.search(r"\d+$", name)
    words = {"true_fun": "the first", "false_fun": "the second"}
    return words.get(name.split()[-1], f"branch {number[0]}" if number else name)


def _guess(problem: Problem) -> str:
    text = f"{problem.message} {problem.where.source if problem.where else ''}"
    return next((n for n in ("scan", "while_loop", "fori_loop", "cond", "switch") if n in text), "")


RULE = Rule("JM112", "carry-mismatch", "error", find)
