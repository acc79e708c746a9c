"""A finding as a section: what, where, why, what to do next."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jitmagic.render.escape import brief, shorten
from jitmagic.render.parts import Diff, Inline, Listing, Para, Part, Row, Run, Section, Tone, runs
from jitmagic.render.source import around, in_cell, left_out, marked, split
from jitmagic.render.units import counted, listed
from jitmagic.report import Finding, Fix, Report, Span

MESSAGE = 800
"""Characters of a message, a help or a title that are shown."""

DIFF_LINES = 60
DETAIL_LINES = 8
CALLS = 5
KINDS = {
    "safe": "safe",
    "unsafe": "may change results or calls, read it first",
    "display": "to adapt by hand",
}

_SLASH = re.compile(r"[/\\]")

FixKey = tuple[object, ...]


@dataclass
class Telling:
    """What is the same for all findings of one report, and what was told already."""

    report: Report
    lines: tuple[str, ...] = ()
    """Lines of the cell, the magic line included."""
    told: dict[FixKey, str] = field(default_factory=dict)

    @classmethod
    def of(cls, report: Report) -> Telling:
        """For the findings of `report`."""
        return cls(report, split(report.cell.source))


def finding_section(finding: Finding, telling: Telling) -> Section:
    """The finding with its place, its culprits, the help and every fix."""
    title = (Run(f"{finding.severity}[{finding.code}]", finding.severity), Run(f" {finding.kind}: "),
             *_prose(finding.message, "strong"))  # fmt: skip
    parts: list[Part] = [Para(where(finding))]
    if finding.span:
        rows = marked(finding.span, telling.lines, finding.severity)
        if finding.severity != "note" and in_cell(finding.span, telling.lines):
            rows = around(rows, telling.lines)
        if rows:
            parts.append(Listing(rows))
    if finding.culprits:
        names = tuple(f"`{brief(name)}`" for name in finding.culprits)
        parts.append(Para(runs(listed(names)), "look at"))
    if finding.help:
        parts.append(Para(_prose(finding.help), "help"))
    for number, fix in enumerate(finding.fixes, 1):
        name = f"fix {number}" if len(finding.fixes) > 1 else "fix"
        parts.append(replace(_fix_section(fix, name, finding, telling), fold=number > 1))
    if finding.detail:
        parts.append(_detail(finding.detail))
    return Section(title, tuple(parts), fold=finding.severity == "note", tone=finding.severity)


def where(finding: Finding) -> Inline:
    """The place of a finding in words: function, line, and the cell where it is another one."""
    function = f"`{brief(finding.function)}`" if finding.function else "the cell"
    words = f"in {function}"
    if finding.span:
        words += f", line {finding.span.line}{_other_cell(finding.span)}"
    return (Run("--> ", "dim"), *runs(words))


def _other_cell(span: Span) -> str:
    if span.cell is None:
        return ""
    if match := re.match(r"<ipython-input-(\d+)-", span.cell):
        return f" of cell [{match.group(1)}]"
    if "ipykernel_" in span.cell:
        return " of another cell"
    return f" of `{brief(_SLASH.split(span.cell)[-1])}`"


def _prose(text: str, tone: Tone = "plain") -> Inline:
    return runs(shorten(text.strip(), MESSAGE), tone)


def _detail(text: str) -> Part:
    lines = text.strip().split("\n")
    if len(lines) == 1:
        return Para((Run(shorten(lines[0], MESSAGE), "dim"),), "detail")
    shown = tuple(Row(None, line) for line in lines[:DETAIL_LINES])
    if len(lines) > DETAIL_LINES:
        shown += (Row(None, left_out(len(lines) - DETAIL_LINES)),)
    return Section((Run("detail:", "dim"),), (Listing(shown, gutter=False),))


def _fix_section(fix: Fix, name: str, finding: Finding, telling: Telling) -> Section:
    title = (Run(f"{name}: ", "ok" if fix.verified else "strong"), *_prose(fix.title))
    proof: Part = Para(runs(_proof(fix)))
    key = (fix.cell, fix.diff, fix.static_argnames, fix.static_argnums, fix.dyn, fix.calls)
    earlier = telling.told.get(key) if any(part is not None for part in key) else None
    if earlier:
        return Section(title, (proof, Para((Run(f"the same change as {earlier}"),))))
    place = f", line {finding.span.line}" if finding.span else ""
    telling.told[key] = f"{name} of {finding.code}{place}"
    return Section(title, (proof, *_change(fix, telling)))


def _proof(fix: Fix) -> str:
    """What proves the fix, and how far it may be trusted."""
    evidence = shorten(fix.evidence.strip(), MESSAGE)
    if fix.verified:
        proof = f"proved: {evidence}" if evidence else "proved by a new run"
    else:
        proof = f"not proved: {evidence}" if evidence else "not tried"
    return f"{KINDS[fix.applicability]}; {proof}"


def _change(fix: Fix, telling: Telling) -> list[Part]:
    parts: list[Part] = []
    if option := _option(fix, bool(telling.report.cell.magic)):
        parts.append(Para(runs(option), "option"))
    if cost := _cost(fix):
        parts.append(Para(runs(cost), "cost"))
    if diff := _diff(fix, telling.lines):
        parts.append(Diff(diff))
    if fix.calls:
        calls = [Row(None, line) for call in fix.calls[:CALLS] for line in call.split("\n")]
        if len(fix.calls) > CALLS:
            calls.append(Row(None, f"… {counted(len(fix.calls) - CALLS, 'call')} more"))
        parts += [Para((Run("call it so:"),)), Listing(tuple(calls), gutter=False)]
    return parts


def _option(fix: Fix, magic: bool) -> str:
    """The options of a fix as they are typed, for the magic or for Python."""
    words = []
    if fix.static_argnames is not None:
        words.append(_typed("--static", "static_argnames", fix.static_argnames, magic))
    elif fix.static_argnums is not None:
        words.append(_typed("--static-argnums", "static_argnums", fix.static_argnums, magic))
    if fix.dyn is not None:
        words.append(_typed("--dyn", "dyn_vars", fix.dyn, magic))
    return ", ".join(words)


def _typed(flag: str, keyword: str, values: Sequence[str | int], magic: bool) -> str:
    if magic:
        return f"`{flag} {','.join(map(str, values))}`" if values else f"no `{flag}`"
    return f"`{keyword}={tuple(values)!r}`"


def _cost(fix: Fix) -> str:
    """What the change asks in return."""
    words = []
    names = fix.static_argnames or tuple(f"argument {n}" for n in fix.static_argnums or ())
    if names:
        words.append(f"every new value of {listed([f'`{n}`' for n in names])} compiles once more")
    if fix.dyn:
        words.append(f"{listed([f'`{p}`' for p in fix.dyn])} is passed in at every call")
    return "; ".join(words)


def _diff(fix: Fix, lines: Sequence[str]) -> tuple[str, ...]:
    """The diff to show: the fix's own, or that of its cell against the user's, the magic line aside."""
    if fix.diff is not None:
        raw = [line.removesuffix("\r") for line in fix.diff.strip("\n").split("\n")]
    elif fix.cell is not None:
        before = lines[1:] if lines and lines[0].startswith("%%") else lines
        raw = [d.rstrip("\n") for d in difflib.unified_diff(before, split(fix.cell), n=2, lineterm="")]
    else:
        return ()
    body = raw[2:] if len(raw) > 1 and raw[0].startswith("---") and raw[1].startswith("+++") else raw
    first = next((i for i, line in enumerate(body) if line.startswith("@@")), None)
    if first is not None:
        body = body[:first] + body[first + 1 :]
    shown = tuple("…" if line.startswith("@@") else line for line in body[:DIFF_LINES])
    return shown + ((left_out(len(body) - DIFF_LINES),) if len(body) > DIFF_LINES else ())
