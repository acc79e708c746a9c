"""JM303 trace-time-print: a print shows a placeholder, once."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.parsed_text import ParsedText, depends_on_values, loaded_names, parse, parse_cell
from jitmagic.rules.words import quoted
from jitmagic.source.edits import FunctionNode
from jitmagic.source.tree import walk

PRINTERS = ("print", "display", "pprint", "pprint.pprint", "sys.stdout.write")


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each `print` of values; prints of shapes and plain text are notes."""
    if evidence.silent is not None:
        yield from _told(evidence)
        return
    if not evidence.printed:
        return
    found = _prints(parse(evidence.function)) or _helpers(parse_cell(evidence.function), evidence)
    for source, call in found:
        arguments = [
            *call.args,
            *(k.value for k in call.keywords if k.arg not in ("sep", "end", "file", "flush")),
        ]
        values = [n for a in arguments if depends_on_values(a) for n in loaded_names(a)]
        shows = "a placeholder without a value" if values else "its text"
        yield RULE.finding(
            evidence,
            f"{quoted(ast.unparse(call))} runs once, while jax traces `{evidence.function.name}`: it "
            f"shows {shows}, "
            "and later calls print nothing",
            where=source.where(call),
            culprits=values or [n for a in arguments for n in loaded_names(a)],
            severity="warning" if values else "note",
            help=_help(values),
        )
    if not found:
        yield _of_something(evidence)


def _told(evidence: Evidence) -> Iterator[Finding]:
    facts = (
        [p for p in evidence.silent.prints if p.logs or p.bar or evidence.printed] if evidence.silent else []
    )
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
        shown = bool(fact.values) and (fact.logs or "Trac" in evidence.printed)
        yield RULE.finding(
            evidence,
            f"{quoted(fact.text)} runs once, while jax traces `{evidence.function.name}`: it shows "
            f"{'a placeholder without a value' if shown else 'its text'}, and later calls show nothing",
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


def _prints(source: ParsedText | None, within: ast.AST | None = None) -> list[tuple[ParsedText, ast.Call]]:
    if source is None:
        return []
    return [(source, call) for name, call in source.calls(within or source.own()) if name in PRINTERS]


def _helpers(source: ParsedText | None, evidence: Evidence) -> list[tuple[ParsedText, ast.Call]]:
    """Prints in functions of the cell whose names the function's text mentions."""
    if source is None:
        return []
    used = {n.id for n in walk(source.own()) if isinstance(n, ast.Name)}
    used |= {n.attr for n in walk(source.own()) if isinstance(n, ast.Attribute)}
    helpers = [n for n in source.tree.body if isinstance(n, FunctionNode) and n.name in used]
    return [found for helper in helpers for found in _prints(source, helper)]


RULE = Rule("JM303", "trace-time-print", "warning", find)
