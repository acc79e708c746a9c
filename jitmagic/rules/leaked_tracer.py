"""JM113 leaked-tracer: a placeholder of one trace outlives it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jitmagic.evidence import Evidence, Problem, Write
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, covers, culprits, exception_detail, root
from jitmagic.rules.classify import of_kind
from jitmagic.rules.state_write import is_dynamic
from jitmagic.rules.words import quoted


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each place that stores a placeholder: an error where it was used afterwards."""
    leaks = list(of_kind(evidence, RULE.kind))
    writes = [w for w in evidence.writes if w.tracer and not is_dynamic(evidence, w.path)]
    places = list(dict.fromkeys((w.where, root(w.path)) for w in writes))
    for where, name in places:
        here = [w for w in writes if (w.where, root(w.path)) == (where, name)]
        yield _stored(evidence, here, [p for p in leaks if _about(p, here) or len(places) == 1])
    known = [w for w in writes]
    for problem in leaks:
        if not known or (len(places) > 1 and not _about(problem, known)):
            yield _used(evidence, problem)


def _stored(evidence: Evidence, writes: list[Write], leaks: list[Problem]) -> Finding:
    first, function = writes[0], evidence.function.name
    used = "; it was used afterwards, when there is no value behind it" if leaks else ""
    grows = first.action == "added"
    name = quoted(_INDEX.sub("", first.path) if grows else first.path)
    declare = "" if grows else f", or declare {name} dynamic (`--dyn {first.path}`)"
    return RULE.finding(
        evidence,
        f"{_deed(first)} while jax traces `{function}`: {name} then holds a traced value in place of numbers{used}",
        where=first.where,
        culprits=[*(w.path for w in writes), root(first.path)],
        severity="error" if leaks or any(c.outcome == "failed" for c in evidence.calls[1:]) else "warning",
        help=f"return the value from `{function}` and store it in {quoted(root(first.path))} after the call"
        f"{declare}",
        detail="; ".join(filter(None, map(exception_detail, leaks))),
    )


def _used(evidence: Evidence, problem: Problem) -> Finding:
    names = culprits(evidence, problem)
    subject = quoted(names[0]) if names else "a value"
    if names and problem.where and re.match(rf"{re.escape(names[0])}(\.\w+\(|\[)", problem.where.text):
        subject = f"what {subject} keeps"  # `store.append(x)`
    return RULE.finding(
        evidence,
        f"{subject} was made inside another function that jax had traced and is used after that trace has "
        "ended: there is no value behind it",
        where=problem.where,
        culprits=names,
        help="return it from the inner function (the body of `jax.lax.scan` returns it as its second value) "
        "in place of storing it outside",
        detail=exception_detail(problem),
    )


def _about(problem: Problem, writes: list[Write]) -> bool:
    named = [*problem.leaves, *problem.locals]
    same_place = any(w.where and problem.where and w.where.line == problem.where.line for w in writes)
    return same_place or any(covers(n, w.path) or covers(w.path, n) for n in named for w in writes)


_INDEX = re.compile(r"\[\d+\]$")
"""Of an item that a list has got: which one it is says nothing."""


def _deed(write: Write) -> str:
    path = quoted(write.path)
    listed = _INDEX.search(write.path)
    added = (
        f"something is added to {quoted(_INDEX.sub('', write.path))}" if listed else f"{path} keeps a result"
    )
    return {"added": added, "removed": f"{path} is removed"}.get(
        write.action, f"{path} is {'bound again' if write.action == 'bound' else 'changed'}"
    )


RULE = Rule("JM113", "leaked-tracer", "error", find)
