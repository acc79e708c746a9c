"""JM110 unregistered-pytree: JAX does not know how to take an object apart."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail, root
from jitmagic.rules.classify import binding_place, class_handed_on, is_users_object, of_kind, offenders
from jitmagic.rules.invalid_jax_type import SOURCES_OF_DATA, blamed
from jitmagic.rules.returned import Returned, returned
from jitmagic.rules.words import quoted


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each refusal of an object of a class that is not registered."""
    for problem in of_kind(evidence, RULE.kind):
        result = returned(evidence, problem)
        if result is not None:
            yield _result(evidence, problem, result)
            continue
        leaves = offenders(evidence, problem)
        name = class_handed_on(problem)
        if name and not any(map(is_users_object, leaves)):
            callee = quoted(problem.callee) if problem.callee else "a function of JAX"
            yield RULE.finding(
                evidence,
                f"{callee} is given an object of the class `{name}`, and jax does not know which of its attributes "
                "are arrays",
                where=problem.where or evidence.function.where,
                culprits=[name, *culprits(evidence, problem)],
                help=f"register `{name}` with `jax.tree_util.register_pytree_node_class` (or `register_dataclass`), "
                "its arrays as children",
                detail=exception_detail(problem),
            )
            continue
        own = next(x for x in leaves if is_users_object(x))
        names = blamed(problem, leaves)
        yield RULE.finding(
            evidence,
            f"{quoted(own.path)} is an object of the class `{own.python_type}`, and jax does not know which "
            "of its attributes are arrays",
            where=binding_place(evidence, problem),
            culprits=names,
            help=_help(own.path, own.python_type),
            detail=exception_detail(problem),
        )


def _result(evidence: Evidence, problem: Problem, result: Returned) -> Finding:
    part = f"at `{result.component}` of its result " if result.component else ""
    return RULE.finding(
        evidence,
        f"`{evidence.function.name}` returns an object of the class `{result.type}` {part}and jax does not know "
        "which of its attributes are arrays",
        where=result.where or evidence.function.where,
        culprits=[result.type, *result.names],
        help=f"register `{result.type}` with `jax.tree_util.register_dataclass` (or `register_pytree_node_class`), "
        f"or return its arrays in a tuple or dict and make the `{result.type}` after the call",
        detail=exception_detail(problem),
    )


def _help(path: str, name: str) -> str:
    if any(word in name for word in SOURCES_OF_DATA):
        return (
            f"take the array out of {quoted(path)} before the call and pass that; with {quoted(path)} static "
            "the first data would be used for ever"
        )
    return (
        f"make what it holds dynamic (`--dyn {root(path)}`); or register `{name}` with "
        "`jax.tree_util.register_pytree_node_class` (or `register_dataclass`), its arrays as children; or make "
        f"{quoted(path)} static, if it may be taken that its attributes never change"
    )


RULE = Rule("JM110", "unregistered-pytree", "error", find)
