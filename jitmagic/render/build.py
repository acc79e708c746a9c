"""A report as a tree of parts: what to say, in which order, and what to leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from jitmagic.kinds import CAPTURED
from jitmagic.render import memory, timeline
from jitmagic.render.annotated import named, source_sections
from jitmagic.render.causes import Cause, causes
from jitmagic.render.escape import brief
from jitmagic.render.findings import Telling, brief_note, finding_section, fix_sections
from jitmagic.render.functions import action, elsewhere, notes, sections, verdict
from jitmagic.render.listing import split
from jitmagic.render.parts import (
    SEVERITIES,
    Document,
    Inline,
    Para,
    Part,
    Phrase,
    Section,
    Tone,
    VerdictLine,
    runs,
)
from jitmagic.render.shared import shared_state
from jitmagic.report import Finding, FunctionReport, ReportData, State
from jitmagic.units import counted, listed

FULL = 20
"""Findings told in full, and verdicts, the worst first."""

OPEN = 6
"""Findings that HTML does not fold."""

FUNCTIONS = 8
"""Functions whose state, timing and cost are told; with shorter tables where there are several."""

SHORT = 8

REST: dict[Tone, str] = {
    "error": "failing",
    "warning": "with warnings",
    "note": "not called",
    "ok": "ok",
}


def build(report: ReportData) -> Document:
    """The whole report: verdicts, the cell, findings, functions, what was left out."""
    if report.session is not None and not report.functions:
        return Document((timeline.verdict(report.session),), timeline.parts(report.session), _foot(report))
    if report.memory is not None and not report.functions:
        return Document((memory.verdict(report.memory),), memory.parts(report.memory), _foot(report))
    told, hidden = _choose(report.findings)
    parts = [*_findings(told, report), *_hidden(hidden)]
    lines = split(report.cell.source)
    parts += _functions(report, lines)
    if section := notes(report.notes):
        parts.append(section)
    return Document(_verdicts(report), tuple(parts), _foot(report))


def _findings(told: Sequence[Finding], report: ReportData) -> list[Part]:
    """Each finding twice: for HTML the worst under their lines of the cell, else with the lines around it."""
    in_text, in_html = Telling.of(report, "text"), Telling.of(report, "html")
    grave = causes([f for f in told if f.severity != "note"])
    neutral = [f for f in told if f.severity == "note"]
    sections = [(c, _folded(finding_section(c, in_html), i)) for i, c in enumerate(grave)]
    under = [(c, s) for c, s in sections if in_html.stands_under(c.first)]
    apart = [s for c, s in sections if not in_html.stands_under(c.first)]
    first = [s for c, s in sections[:1] if s in apart]
    return [
        *first,
        *source_sections(report, under, in_html.lines),
        *apart[len(first):],
        *(finding_section(cause, in_text) for cause in grave),
        *_notes(neutral, in_text, in_html),
    ]  # fmt: skip


def _folded(section: Section, number: int) -> Section:
    return section if number < OPEN else replace(section, fold=True)


def _choose(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings to tell in full, the worst first, each severity in the order of the source; the rest."""
    ordered = sorted(findings, key=_rank)
    return ordered[:FULL], ordered[FULL:]


def _rank(finding: Finding) -> tuple[int, bool, bool, int, int]:
    span = finding.span
    place = (span.line, span.column) if span else (0, 0)
    return SEVERITIES.index(finding.severity), span is None, bool(span and span.cell), *place


def _verdicts(report: ReportData) -> tuple[VerdictLine, ...]:
    made = [verdict(f, _about(f, report)) for f in report.functions]
    names = {f.name for f in report.functions} | ({""} if len(report.functions) == 1 else set())
    apart = elsewhere([f for f in report.findings if f.function not in names])
    if not made and not apart:
        return (VerdictLine("·", "note", "nothing to report", (Phrase("no function was checked"),)),)
    failed = [v for v in apart if v.tone == "error"]
    return _worst([*failed, *made, *(v for v in apart if v not in failed)])


def _worst(made: list[VerdictLine]) -> tuple[VerdictLine, ...]:
    """The verdicts, or, of too many, the worst and a line about the others."""
    if len(made) <= FULL:
        return tuple(made)
    ranked = sorted(made, key=lambda v: list(REST).index(v.tone))
    kinds = Counter(v.tone for v in ranked[FULL:])
    rest = ", ".join(f"{count:,} {REST[tone]}" for tone, count in kinds.items())
    more = VerdictLine("·", "note", counted(len(made) - FULL, "more function"), (Phrase(rest),))
    return (*ranked[:FULL], more)


def _about(function: FunctionReport, report: ReportData) -> list[Finding]:
    names = (function.name, "") if len(report.functions) == 1 else (function.name,)
    return sorted((f for f in report.findings if f.function in names), key=_rank)


def actions(report: ReportData) -> tuple[Part, ...]:
    """What the verdicts say to do, where they were shown before anything was tested."""
    told = []
    for function in report.functions:
        about = _about(function, report)
        worst = [f for f in about if f.severity == about[0].severity != "note"]
        if words := action(causes(worst)).removeprefix("; "):
            told.append(Para((Phrase(f"{brief(function.name)}: ", "strong"), *runs(words))))
    return tuple(told)


def _hidden(findings: Sequence[Finding]) -> list[Part]:
    if not findings:
        return []
    kinds = Counter(f"{f.severity}[{f.code}] {f.kind}" for f in findings)
    words = listed([f"{count:,} × {kind}" for kind, count in kinds.items()], 12)
    text = f"{counted(len(findings), 'more finding')} not shown here, but in the report's data: {words}"
    return [Para((Phrase(text),), "left out")]


def _notes(findings: Sequence[Finding], telling: Telling, in_html: Telling) -> list[Part]:
    if not findings:
        return []
    need = ", no action needed" if not any(f.wants_fixes for f in findings) else ""
    title = (
        Phrase(counted(len(findings), "note"), "note"),
        Phrase(f"{need}: {_gist(findings, telling.report)}"),
    )
    inner: list[Part] = []
    for f in findings:
        if f.detail or (f.fixes and f.kind not in CAPTURED):
            inner.append(replace(finding_section(Cause(f), telling), medium="both"))
            continue
        choices = fix_sections(f, in_html, "to change it later")
        inner += [brief_note(f), *(replace(choice, medium="html") for choice in choices)]
    return [Section(title, tuple(inner), fold=True)]


def _gist(findings: Sequence[Finding], report: ReportData) -> str:
    """The kinds of the notes and the names in them; constants of both kinds in one, the largest first."""
    names: dict[str, list[str]] = {}
    for finding in findings:
        if finding.kind in CAPTURED:
            known = {s.path: s for f in report.functions if f.name == finding.function for s in f.state}
            held = [known.get(path, State(path, "constant")) for path in finding.culprits]
            ranked = sorted(held, key=lambda s: -(s.bytes or 0))
            names.setdefault("constant", []).extend(map(named, ranked))
        else:
            names.setdefault(finding.kind, []).extend(brief(n) for n in finding.culprits[:1] if n != "_")
    return "; ".join(f"{kind} {listed(list(dict.fromkeys(of)), 4)}".rstrip() for kind, of in names.items())


def _functions(report: ReportData, lines: Sequence[str]) -> list[Part]:
    if len(report.functions) == 1:
        return list(sections(report.functions[0], lines))
    shared = shared_state(report.functions[:FUNCTIONS])
    made: list[Part] = [shared] if shared else []
    for function in report.functions[:FUNCTIONS]:
        if inner := sections(function, lines, SHORT):
            counts = (
                (function.calls, "call"),
                (function.compiles, "compilation"),
                (len(function.state), "variable"),
            )
            words = ", ".join(counted(n, noun) for n, noun in counts)
            title = (Phrase("about "), Phrase(brief(function.name), "code"), Phrase(f": {words}"))
            made.append(Section(title, inner, fold=True))
    if len(report.functions) > FUNCTIONS:
        more = counted(len(report.functions) - FUNCTIONS, "function")
        made.append(Para((Phrase(f"state, timing and cost of {more} are in the report's data"),), "left out"))
    return made


def _foot(report: ReportData) -> Inline:
    """What the report was made with, and where to read on."""
    versions = report.versions
    named = (("jitmagic", versions.jitmagic), ("jax", versions.jax), ("Python", versions.python))
    words = ", ".join(f"{name} {version}" for name, version in named if version)
    if report.backend:
        words += f"{' ' if words else ''}on {report.backend}"
    more = []
    code = next((f.code for f in _choose(report.findings)[0] if f.severity != "note"), None)
    if code:
        explain = f"%jitcheck --explain {code}" if report.cell.magic else f'jitmagic.explain("{code}")'
        more.append(f"`{explain}` tells more")
    if report.cell.magic.startswith("%%") and report.fixed_cell:
        more.append("`--fix` puts the corrected cell below")
    return runs("; ".join(filter(None, [words, *more])), "dim")
