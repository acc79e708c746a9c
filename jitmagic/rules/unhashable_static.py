"""JM109 unhashable-static: a static argument has no hash."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Leaf, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail
from jitmagic.rules.classify import binding_place, of_kind
from jitmagic.rules.words import agree, listed, quoted, static_help

ARRAYS = ("ndarray", "ArrayImpl", "Array", "Variable")


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each refusal of a static value; all unhashable static arguments are named."""
    for problem in of_kind(evidence, RULE.kind):
        leaves = unhashable(evidence)
        if problem.leaves and not leaves:
            yield _handed_on(evidence, problem)
            continue
        names = tuple(dict.fromkeys([*(x.argument for x in leaves), *culprits(evidence, problem)]))
        own = not names or any(n in evidence.function.parameters for n in names) or problem.where is None
        subject = listed(names[:4]) or "a value"
        kind = f" (`{leaves[0].python_type}`)" if leaves else ""
        yield RULE.finding(
            evidence,
            f"{subject}{kind} {agree(names or (subject,), 'is', 'are')} declared static, but a static value needs "
            "a hash, by which its compiled program is found again",
            where=binding_place(evidence, problem) if own else problem.where,
            culprits=names,
            help=_help(leaves, names),
            detail=exception_detail(problem),
        )


def _handed_on(evidence: Evidence, problem: Problem) -> Finding:
    """A traced value as a static argument of a function that is compiled by itself."""
    names, function = culprits(evidence, problem), evidence.function.name
    callee = quoted(problem.callee or "the function called")
    return RULE.finding(
        evidence,
        f"{callee} takes {listed(names[:3])} as static and needs the value, but there is none while jax traces "
        f"`{function}`",
        where=problem.where,
        culprits=names,
        help=static_help(evidence, names) or f"give {callee} a number that does not come from an array",
        detail=exception_detail(problem),
    )


def unhashable(evidence: Evidence) -> tuple[Leaf, ...]:
    """Static leaves without a hash in the newest call that has any."""
    for call in reversed(evidence.calls):
        found = tuple(x for x in call.leaves if x.static and not x.hashable)
        if found:
            return found
    return ()


def _help(leaves: tuple[Leaf, ...], names: tuple[str, ...]) -> str:
    name = quoted(names[0]) if names else "it"
    kinds = {x.python_type.rsplit(".", 1)[-1] for x in leaves}
    if kinds & set(ARRAYS) or any(x.kind in ("array", "numpy") for x in leaves):
        them = agree(names, "it", "them")
        return f"take {listed(names[:4]) or 'it'} out of the static arguments: pass {them} as ordinary inputs"
    if "dict" in kinds:
        return (
            f"take {name} out of the static arguments if it holds numbers or arrays; else pass its items as "
            "arguments of their own, or a frozen dataclass"
        )
    if "list" in kinds or "set" in kinds:
        return (
            f"pass a tuple for {name}, or take it out of the static arguments if it holds numbers or arrays"
        )
    return f"take {name} out of the static arguments, or give its class `__hash__` and `__eq__`"


RULE = Rule("JM109", "unhashable-static", "error", find)
