"""A finding as a section: what, where, why, what to do next."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from jitmagic.correction import corrected
from jitmagic.render.causes import Cause, FixKey, change_of, numbered
from jitmagic.render.escape import brief, place, shorten
from jitmagic.render.listing import around, excerpt, in_cell, known, left_out, marked, split
from jitmagic.render.parts import (
    SEVERITIES,
    Buttons,
    Diff,
    Inline,
    Listing,
    Para,
    Part,
    Phrase,
    Row,
    Section,
    Tone,
    runs,
)
from jitmagic.render.payload import FINDINGS
from jitmagic.report import Finding, Fix, ReportData
from jitmagic.units import counted, listed

MESSAGE = 800
"""Characters of a message, a help or a title that are shown."""

DIFF_LINES = 60
DETAIL_LINES = 8
CALLS = 5
KINDS = {
    "safe": "safe",
    "unsafe": "may change results or calls, read it first",
    "display": "to write by hand",
}

_STOCK = re.compile(
    r"\.?\s*The error occurred while tracing the function .*? for \w+\."
    r"(?:\s*This concrete value was not available in Python because [^;]*)?(?=;|$)"
)
"""What jax adds to its messages: the report tells place and argument in its own words."""

TESTED = KINDS | {"unsafe": "read it first"}
"""The same of a fix that was tested."""


@dataclass
class Telling:
    """What is the same for all findings of one report, and what was told already.

    In HTML the worst findings stand under their lines in the cell's source; others, and all in text, bring their lines
    along."""

    report: ReportData
    medium: Literal["text", "html"] = "text"
    lines: tuple[str, ...] = ()
    """Lines of the cell, the magic line included."""
    told: dict[FixKey, str] = field(default_factory=dict)

    @classmethod
    def of(cls, report: ReportData, medium: Literal["text", "html"] = "text") -> Telling:
        """For the findings of `report`."""
        return cls(report, medium, split(report.cell.source))

    def stands_under(self, finding: Finding) -> bool:
        """Whether the finding is shown under its line of the cell: errors, or warnings where there is none."""
        worst = min((SEVERITIES.index(f.severity) for f in self.report.findings), default=0)
        here = finding.span is not None and in_cell(finding.span, self.lines)
        return here and self.medium == "html" and finding.severity == SEVERITIES[worst] != "note"

    def buttons(self, finding: Finding, fix: int) -> tuple[Buttons, ...]:
        """The place for the buttons of a fix, where the report's data hold the findings in its own order."""
        all_there = len(self.report.findings) <= FINDINGS
        at = next((i for i, one in enumerate(self.report.findings) if one is finding), None)
        return (Buttons(at, fix),) if self.medium == "html" and all_there and at is not None else ()


def finding_section(cause: Cause, telling: Telling) -> Section:
    """The finding with its places, its culprits, the help and every fix."""
    finding = cause.first
    title = (Phrase(f"{finding.severity}[{finding.code}]", finding.severity), Phrase(f" {finding.kind}: "),
             *_prose(finding.message, "strong"))  # fmt: skip
    parts = [*_place(cause, telling)]
    proved = any(fix.verified for fix in finding.fixes)
    if finding.help and not proved:
        parts.append(Para(_prose(finding.help), "help"))
    parts += fix_sections(finding, telling)
    more = _more(finding, proved)
    if more and telling.medium == "html":
        parts.append(Section((Phrase("more about it", "dim"),), more, fold=True))
    elif not proved:  # text can't be folded, and `--explain` tells more
        parts += more
    fold = finding.severity == "note"
    return Section(title, tuple(parts), fold=fold, tone=finding.severity, medium=telling.medium)


def fix_sections(finding: Finding, telling: Telling, what: str = "") -> list[Section]:
    """Every fix of a finding, all but the first folded; `what` it is, if not a fix."""
    made = []
    for number, fix in enumerate(finding.fixes, 1):
        name = what or (f"fix {number}" if len(finding.fixes) > 1 else "fix")
        section = _fix_section(fix, name, finding, telling)
        whole = len(_diff(fix, telling.lines)) <= DIFF_LINES
        if fix.verified and fix.applicability != "display" and section.parts and whole:
            section = replace(section, parts=(*section.parts, *telling.buttons(finding, number - 1)))
        made.append(replace(section, fold=number > 1 and bool(section.parts)))
    return made


def brief_note(finding: Finding) -> Part:
    """A neutral finding with nothing to do about it, in one paragraph."""
    title = (Phrase(f"note[{finding.code}]", "note"), Phrase(f" {finding.kind}: "))
    line = f" ({place(finding.span)})" if finding.span else ""
    return Para((*title, *_prose(finding.message), Phrase(line, "dim")))


def _place(cause: Cause, telling: Telling) -> list[Part]:
    """Where it is, with its lines unless it stands under them anyway."""
    finding = cause.first
    here = finding.span is not None and in_cell(finding.span, telling.lines)
    parts: list[Part] = [Para(where(cause, here=here))]
    if finding.span and not telling.stands_under(finding):
        span, lines = finding.span, telling.lines
        if not here and span.around:
            span, lines = replace(span, cell=None), known(span)
        rows = marked(span, lines, finding.severity)
        if here and (cause.also or finding.shows):
            spans = [s for f in cause.findings for s in (f.span, f.shows) if s]
            rows = excerpt([s for s in spans if in_cell(s, lines)], lines, finding.severity)
        elif finding.severity != "note" and in_cell(span, lines):
            rows = around(rows, lines)
        if rows:
            parts.append(Listing(rows, own=here))
    return parts


def _more(finding: Finding, proved: bool) -> tuple[Part, ...]:
    """What a reader needs who is not helped by a fix: the names, other ways, jax's own words."""
    parts: list[Part] = []
    if names := _unnamed(finding):
        parts.append(Para(runs(listed([f"`{brief(name)}`" for name in names])), "look at"))
    if finding.help and proved:
        parts.append(Para(_prose(finding.help), "help"))
    detail = _STOCK.sub("", finding.detail.strip())
    if detail and detail not in finding.message:
        parts.append(_detail(detail))
    return tuple(parts)


def _unnamed(finding: Finding) -> tuple[str, ...]:
    """The culprits, unless the message names them all as code, or what lies in them."""
    said = re.findall(r"`([^`\n]+)`", finding.message)
    known = all(any(_names(code, name) for code in said) for name in finding.culprits)
    return () if known else finding.culprits


def _names(code: str, name: str) -> bool:
    """The code is of that name, what lies in it, or the same under the user's name for the module."""
    _, _, tail = name.partition(".")
    return bool(re.match(rf"{re.escape(name)}(?!\w)", code)) or ("." in tail and code.endswith(f".{tail}"))


def where(cause: Cause, *, here: bool = False) -> Inline:
    """The places in words: function, lines (`here`: of the report's own cell), and the cell where it is another one."""
    finding, span = cause.first, cause.first.span
    name = span.function if span is not None and span.function else finding.function
    words: Inline = (Phrase("--> ", "dim"), *runs(f"in `{brief(name)}`" if name else "in the cell"))
    if span is None:
        return words
    lines = (Phrase(_lines(cause), "place"),) if here else runs(_lines(cause))
    called = runs(f", called from {span.called_from}") if span.called_from else ()
    seen: Inline = ()
    if shows := finding.shows:
        seen = (Phrase(", seen in "), Phrase(place(shows), "place" if shows.cell is None else "plain"))
    return (*words, Phrase(", "), *lines, *called, *seen)


def _lines(cause: Cause) -> str:
    lines = sorted({f.span.line for f in cause.findings if f.span})
    span = cause.first.span
    if span is None or len(lines) == 1:
        return place(span) if span is not None else ""
    return numbered(lines) + place(span).removeprefix(f"line {span.line}")


def _prose(text: str, tone: Tone = "plain") -> Inline:
    return runs(shorten(text.strip(), MESSAGE), tone)


def _detail(text: str) -> Part:
    lines = text.strip().split("\n")
    if len(lines) == 1:
        return Para((Phrase(shorten(lines[0], MESSAGE), "dim"),), "detail")
    shown = tuple(Row(None, line) for line in lines[:DETAIL_LINES])
    if len(lines) > DETAIL_LINES:
        shown += (Row(None, left_out(len(lines) - DETAIL_LINES)),)
    return Section((Phrase("detail:", "dim"),), (Listing(shown, gutter=False),))


def _fix_section(fix: Fix, name: str, finding: Finding, telling: Telling) -> Section:
    title = (Phrase(f"{name}: ", "ok" if fix.verified else "strong"), *_prose(fix.title))
    proof: Part = Para(runs(_proof(fix), "dim"))
    change = change_of(fix)
    key = (fix.applicability == "display", change)  # one that can't be applied is another to the reader
    if change is not None and key in telling.told:
        return Section((title[0], Phrase(f"the same change as {telling.told[key]}")))
    place = f", line {finding.span.line}" if finding.span else ""
    telling.told[key] = f"{name if name.startswith('fix ') else 'the fix'} of {finding.code}{place}"
    return Section(title, (proof, *_change(fix, telling)))


def _proof(fix: Fix) -> str:
    """What proves the fix, and how far it may be trusted."""
    evidence = shorten(fix.evidence.strip(), MESSAGE)
    if fix.verified:
        proof = f"tested: {evidence.replace(': ', ', ', 1)}" if evidence else "tested by a new run"
    else:
        left = not evidence or evidence.startswith(("not tried", "a first step"))
        proof = evidence or "not tried" if left else f"the test failed: {evidence}"
    return f"{TESTED[fix.applicability] if fix.verified else KINDS[fix.applicability]}; {proof}"


def _change(fix: Fix, telling: Telling) -> list[Part]:
    parts: list[Part] = []
    diff = _diff(fix, telling.lines)
    if option := _option(fix, telling.report.cell.magic, diff):
        parts.append(Para(runs(option), "option"))
    if diff:
        parts.append(Diff(diff))
    if fix.calls and not _calls_in(fix, diff):
        calls = [Row(None, line) for call in fix.calls[:CALLS] for line in call.split("\n")]
        if len(fix.calls) > CALLS:
            calls.append(Row(None, f"… {counted(len(fix.calls) - CALLS, 'call')} more"))
        parts += [Para((Phrase("call it so:"),)), Listing(tuple(calls), gutter=False)]
    return parts


def _calls_in(fix: Fix, diff: Sequence[str]) -> bool:
    """The diff shows every changed call already."""
    added = "\n".join(line[1:] for line in diff if line.startswith("+"))
    return all(call in added for call in fix.calls or ())


def _option(fix: Fix, magic: str, diff: Sequence[str]) -> str:
    """The options of a fix as they are typed, where the diff does not show them on the magic line."""
    if diff and magic and any(line.startswith(("+%%jit", "+%jit")) for line in diff):
        return ""
    words = []
    if fix.static_argnames is not None:
        words.append(_typed("--static", "static_argnames", fix.static_argnames, bool(magic)))
    elif fix.static_argnums is not None:
        words.append(_typed("--static-argnums", "static_argnums", fix.static_argnums, bool(magic)))
    if fix.dyn is not None:
        words.append(_typed("--dyn", "dyn_vars", fix.dyn, bool(magic)))
    return ", ".join(words)


def _typed(flag: str, keyword: str, values: Sequence[str | int], magic: bool) -> str:
    if magic:
        return f"`{flag} {','.join(map(str, values))}`" if values else f"no `{flag}`"
    return f"`{keyword}={tuple(values)!r}`"


def _diff(fix: Fix, lines: Sequence[str]) -> tuple[str, ...]:
    """What changes in the cell, its magic line too: the lines that go and that come, without the rest."""
    source = "\n".join(lines)
    after = split(corrected(source, fix)) if lines else split(fix.cell or "")
    if tuple(after) != tuple(lines) and not (fix.diff and not lines):
        body = _changes(lines, after)
    elif fix.diff is not None:
        body = _without_headers([line.removesuffix("\r") for line in fix.diff.strip("\n").split("\n")])
    else:
        return ()
    shown = tuple(body[:DIFF_LINES])
    return shown + ((left_out(len(body) - DIFF_LINES),) if len(body) > DIFF_LINES else ())


def _changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The lines that differ with their signs; above lines that are new, the one they follow."""
    out: list[str] = []
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, before, after).get_opcodes():
        if kind == "equal":
            continue
        out += ["…"] if out else []
        out += [f" {before[i - 1]}"] if kind == "insert" and i else []
        out += [f"-{line}" for line in before[i:i_end]] + [f"+{line}" for line in after[j:j_end]]
    return out


def _without_headers(raw: list[str]) -> list[str]:
    """A unified diff without the names of its files, and with a mark between its hunks."""
    body = raw[2:] if len(raw) > 1 and raw[0].startswith("---") and raw[1].startswith("+++") else raw
    first = next((i for i, line in enumerate(body) if line.startswith("@@")), None)
    if first is not None:
        body = body[:first] + body[first + 1 :]
    return ["…" if line.startswith("@@") else line for line in body]
