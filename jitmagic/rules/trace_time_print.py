"""JM303 trace-time-print: a print shows a placeholder, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.words import quoted
from jitmagic.tracing.messages import shows_tracer


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each `print` of values; prints of shapes and plain text are notes."""
    facts = [p for p in evidence.silent.prints if p.logs or p.bar or evidence.printed]
    for fact in (p for p in facts if p.bar):
        yield RULE.finding(
            evidence,
            f"the progress bar {quoted(fact.text)} runs through while jax traces `{evidence.function.name}`: it shows "
            "how the trace gets on, not the computation, and later calls show no bar",
            where=fact.where,
            culprits=fact.names,
            help="take the bar out of the function, and put it around the loop that calls it",
        )
    for fact in (p for p in facts if not p.bar):
        shown = bool(fact.values) and (fact.logs or shows_tracer(evidence.printed))
        yield RULE.finding(
            evidence,
            f"{quoted(fact.text)} runs once, while jax traces `{evidence.function.name}`: it shows "
            f"{'a traced value in place of numbers' if shown else 'its text'}, and later calls show nothing",
            where=fact.where,
            culprits=fact.values or fact.names,
            severity="warning" if shown else "note",
            help=_help(fact.values if shown else ()),
        )
    if evidence.printed and not facts:
        yield _of_something(evidence)


def _help(values: Sequence[str]) -> str:
    if not values:
        return "nothing to do if one line for each trace is meant"
    name = values[0]
    return f'print with `jax.debug.print("{name} = {{}}", {name})`, which shows the value at every call'


def _of_something(evidence: Evidence) -> Finding:
    return RULE.finding(
        evidence,
        f"something that `{evidence.function.name}` calls prints while jax traces it; later calls print nothing",
        where=evidence.function.where,
        severity="note",
        help="use `jax.debug.print` there if the values are wanted at every call",
    )


RULE = Rule("JM303", "trace-time-print", "warning", find)
