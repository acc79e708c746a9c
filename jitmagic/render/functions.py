"""A function's verdict, and the sections about its state, stages, timing and cost."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jitmagic import units
from jitmagic.kinds import CAUSES, DEEDS, RAISED, STALE
from jitmagic.render import measured, whatif
from jitmagic.render.causes import Cause, causes
from jitmagic.render.escape import brief, place, shorten
from jitmagic.render.parts import (
    Bar,
    Cell,
    Inline,
    Para,
    Part,
    Phrase,
    Section,
    Table,
    Tone,
    VerdictLine,
    runs,
    worst,
)
from jitmagic.report import LAST_RUN, Finding, FunctionReport, State

ROWS = 30
"""Rows of a table, where the report is about one function."""

NOTES = 12
WORDS = 400
"""Characters of a remark."""

LINES = 5
"""Lines that a verdict names."""

ACTION = 72
"""Characters of what a verdict says to do."""

SAID = 100
"""Characters of what an exception says."""

SIGNS: dict[Tone, str] = {"ok": "✓", "warning": "!", "error": "✗", "note": "·"}

Cells = tuple[Cell, ...]


def verdict(function: FunctionReport, findings: Sequence[Finding]) -> VerdictLine:
    """The one line about `function`, which `findings` are about."""
    errors = causes([f for f in findings if f.severity == "error"])
    warnings = causes([f for f in findings if f.severity == "warning"])
    grave = [*errors, *warnings]
    if function.verdict == "wrong":
        told = bool(errors) and errors[0].first.kind == STALE
        more = ("" if told else _difference(errors)) or _causes(errors, warnings)
        return _verdict("error", function.name, "compiles, but its results are wrong", more + action(grave))
    if function.verdict == "fails" or errors:
        how = _deed(errors[0], _fails(function)) if errors else _fails(function)
        return _verdict("error", function.name, how, _causes(errors, warnings) + action(errors))
    if function.verdict == "untraced":
        begun = "is being compiled" if function.traces else "not called yet"
        if function.interrupted:
            begun = f"was interrupted while it was {'compiled' if function.traces else 'traced'}"
        how = "was not traced" if function.calls else begun
        return _verdict("warning" if warnings else "note", function.name, how, _causes([], warnings))
    if warnings:
        more = "; ".join(filter(None, (action(warnings).removeprefix("; "), gain(function))))
        return _verdict("warning", function.name, _causes([], warnings), more, "; ")
    return _verdict("ok", function.name, gain(function), "")


def _causes(errors: Sequence[Cause], warnings: Sequence[Cause]) -> str:
    """What is the matter first, and how much there is besides."""
    first, *_ = *errors, *warnings, None
    if first is None:
        return ""
    deed = _is_deed(first.first)
    words = [_said(first.first) if deed else _cause(first.first) + first.other_lines()]
    for noun, found in (("problem", errors), ("warning", warnings)):
        rest = [c for c in found if c is not first]
        more = "more " if found and found[0] is first else ""
        words += [_at(units.counted(len(rest), more + noun), rest)] if rest else []
    return ", and ".join(filter(None, words))


def _deed(cause: Cause, otherwise: str) -> str:
    """What a function does that has this error."""
    finding = cause.first
    if finding.kind not in DEEDS:
        return otherwise
    place = f" in {_line(finding)}" if finding.span is not None else ""
    raised = re.match(r"\w+(?=:|$)", finding.detail) if finding.kind in RAISED else None
    return (f"raises {raised[0]}" if raised else DEEDS[finding.kind]) + place + cause.other_lines()


def _line(finding: Finding) -> str:
    """Where it comes to light: `line 3`; `clip`, line 3 of another cell."""
    span = finding.shows or finding.span
    if span is None:
        return ""
    line = place(span)
    return f"`{span.function}` ({line})" if span.function else line


def _is_deed(finding: Finding) -> bool:
    """What the function does says all."""
    return finding.kind in DEEDS and finding.severity == "error"


def _said(finding: Finding) -> str:
    """What an exception tells: the types of the arrays where they are known, else its words."""
    if finding.kind not in RAISED or not finding.detail:
        return ""
    _, raises, said = finding.message.partition(" raises ")
    words = said.partition(": ")[2] if raises else finding.message
    forms = words.rpartition("; ")[2]
    return shorten(forms if forms.startswith("`") else words, SAID)


def _cause(finding: Finding) -> str:
    """The line and what it does."""
    cause, line = CAUSES.get(finding.kind), _line(finding)
    if not cause:
        return line or units.counted(1, "problem" if finding.severity == "error" else "warning")
    name = f"`{brief(finding.culprits[0])}`" if finding.culprits else "a value"
    words = cause.replace("{name}", name)
    return f"{line} {words}" if line else words


def action(found: Sequence[Cause]) -> str:
    """The first tested fix, in short."""
    tested = [c for c in found if any(x.verified for x in c.first.fixes)]
    if not tested:
        return ""
    fix = next((x for x in found[0].first.fixes if x.verified), None)
    if fix is None:
        return f"; {len(tested)} with a tested fix"
    whole, *more = fix.title.split("; ")
    title = re.sub(r" \([^()]*\)", "", whole.partition(":")[0]).strip()
    others = f", and {units.counted(len(more), 'more change')}" if more else ""
    return f"; tested fix: {title}{others}" if len(title) <= ACTION else "; a tested fix"


def _difference(errors: Sequence[Cause]) -> str:
    """What the compiled calls give or leave otherwise, from the first message."""
    message = errors[0].first.message if errors else ""
    *_, last = message.split("; ")
    return last if "without" in last else ""


def _at(words: str, found: Sequence[Cause]) -> str:
    """`words` with the lines of these findings, where they all lie in the cell."""
    findings = [f for cause in found for f in cause.findings]
    numbers = sorted({f.span.line for f in findings if f.span and f.span.cell is None})
    if not numbers or any(f.span is None or f.span.cell for f in findings) or len(numbers) > LINES:
        return words
    return f"{words} (line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))})"


def _fails(function: FunctionReport) -> str:
    return "has a problem" if function.verdict == "ok" else "can't be compiled"


def _verdict(tone: Tone, name: str, how: str, more: str, joint: str = ": ") -> VerdictLine:
    joint = "" if more.startswith(";") else joint
    words: Inline = (*runs(how, tone), *((Phrase(joint), *runs(more)) if more else ()))
    return VerdictLine(SIGNS[tone], tone, brief(name), words)


def elsewhere(findings: Sequence[Finding]) -> list[VerdictLine]:
    """A line about each other function that findings are about, and one about those that are about none."""
    by_name: dict[str, list[Finding]] = {}
    for finding in findings:
        by_name.setdefault(finding.function or "the cell", []).append(finding)
    made = []
    for name, found in by_name.items():
        errors, warnings = (causes([f for f in found if f.severity == s]) for s in ("error", "warning"))
        grave = [*errors, *warnings]
        words = _causes(errors, warnings) + action(grave) if grave else units.counted(len(found), "note")
        how = _deed(errors[0], "can't be compiled") if errors else ""
        made.append(_verdict(worst({f.severity for f in found}), name, how or words, words if how else ""))
    return made


def gain(function: FunctionReport) -> str:
    """What compiling brings, in one phrase; empty where nothing was compiled or timed."""
    timing = function.timing
    if timing.constant_folded:
        return "computed while compiling, so the time of a call says nothing"
    if timing.jit is None:
        compiled = function.stages.compile_s is not None
        took = f"compiled in {units.seconds(function.compiling_s, 2)}" if function.compiling_s else "compiles"
        return f"{took}, not timed{_compared(function)}" if compiled else "traces, not timed"
    call = f"{units.seconds(timing.jit.median_s, timing.digits)} a call"
    took = f" (compiled in {units.seconds(function.compiling_s, 2)})" if function.compiling_s else ""
    found = function.against
    if found is not None and (found.earlier != LAST_RUN or found.verdict in ("faster", "slower")):
        took += f"; {measured.in_short(found)}"
    if timing.eager is None or not timing.speedup:
        return call + took + _compared(function)
    other = "before the fix, without jit" if timing.before_fix else "without jit"
    if not timing.clear:
        plain = units.seconds(timing.eager.median_s, timing.digits)
        return f"{call}, no clear difference from the {plain} {other}{took}"
    return f"{call}, {_ratio(timing.speedup)} {other}{took}"


def _compared(function: FunctionReport) -> str:
    return "" if function.compared else "; not compared with a run without jit"


def _ratio(speedup: float) -> str:
    if 0.95 <= speedup <= 1.05:
        return "as fast as"
    if speedup > 1:
        return f"{units.times(speedup)} faster than"
    return f"{units.times(1 / speedup)} slower than"


def sections(function: FunctionReport, lines: Sequence[str], rows: int = ROWS) -> tuple[Section, ...]:
    """State, stages, timing, cost and what was left out, each where there is something to tell.

    `lines` is the cell's source, for the lines that the cost is shown by; tables have at most `rows`. A function that
    is wrong, or was never compiled, has no numbers."""
    made = [_signature(function), _state(function.state, rows)]
    if function.verdict != "wrong" and (function.verdict != "fails" or function.compiles):
        made = [measured.remarks(function), *made, _stages(function), measured.timing(function),
                measured.cost(function, lines, rows)]  # fmt: skip
    made += [whatif.section(function.what_if), notes(function.notes)]
    return tuple(section for section in made if section)


def notes(texts: Sequence[str]) -> Section | None:
    """What the check left out, and why."""
    if not texts:
        return None
    shown = tuple(Para(runs(shorten(text, WORDS)), "-") for text in texts[:NOTES])
    if len(texts) > NOTES:
        shown += (Para((Phrase(f"… {units.counted(len(texts) - NOTES, 'remark')} more"),)),)
    return Section((Phrase("left out:", "strong"),), shown, fold=True)


def _signature(function: FunctionReport) -> Section | None:
    if "->" not in function.signature:  # without types it only repeats the `def` line
        return None
    text = Phrase(shorten(function.signature, WORDS), "code")
    return Section((Phrase("signature:", "strong"),), (Para((text,)),), fold=True)


def _state(state: Sequence[State], rows: int) -> Section | None:
    if not state:
        return None
    total = sum(s.bytes or 0 for s in state)
    counted = f" {units.counted(len(state), 'variable')}{f', {units.size(total)}' if total else ''}"
    ranked = sorted(state, key=lambda s: (not s.stale, not s.written, -(s.bytes or 0)))
    shown = tuple(_state_row(s) for s in ranked[:rows])
    table = Table(("path", "role", "type", "size", "read at", "from", "marks"), shown, frozenset({3}))
    parts: tuple[Part, ...] = (table,)
    if hidden := ranked[rows:]:
        size = units.size(sum(s.bytes or 0 for s in hidden))
        parts += (Para((Phrase(f"… {units.counted(len(hidden), 'variable')} more, {size}"),)),)
    return Section((Phrase("state:", "strong"), Phrase(counted)), parts, fold=True)


def _state_row(state: State) -> tuple[Inline, ...]:
    kind = state.type
    if state.shape is not None or state.dtype:
        kind = units.array_type(state.dtype, state.shape)
    if state.value:
        kind += f" = {brief(state.value, 24)}"
    stale = [Phrase("stale", "warning")] if state.stale else []
    written = [Phrase("written", "strong")] if state.written else []
    declared = [Phrase("declared")] if state.declared else []
    marks = [run for mark in stale + written + declared for run in (Phrase(", "), mark)][1:]
    size = units.size(state.bytes) if state.bytes is not None else ""
    read = units.listed([str(n) for n in sorted(state.lines)], 6)
    return ((Phrase(brief(state.path, 40), "code"),), (Phrase(state.role),), (Phrase(kind, "code"),), (Phrase(size),),
            (Phrase(f"line {read}" if read else ""),), (Phrase(state.origin),), tuple(marks))  # fmt: skip


def _stages(function: FunctionReport) -> Section | None:
    stages, every = function.stages, function.all_stages or function.stages
    known = [(name, first, s) for name, first, s in (("trace", stages.trace_s, every.trace_s),
             ("lower", stages.lower_s, every.lower_s), ("compile", stages.compile_s, every.compile_s))
             if s is not None]  # fmt: skip
    done = (function.calls, "call"), (function.traces, "trace"), (function.compiles, "compilation")
    counts = ", ".join(units.counted(n, noun) for n, noun in done)
    if not known and not (function.traces and function.calls):
        return None
    total = f", {units.seconds(every.total_s)} in all" if known else ""
    title = (Phrase("stages:", "strong"), Phrase(f" {counts}{total}" if function.calls else total[1:]))
    most = max((s for *_, s in known), default=0.0) or 1.0
    firsts = ("first",) if function.all_stages is not None else ()

    def row(name: str, first: float | None, spent: float) -> Cells:
        seconds = [*[first for _ in firsts], spent]
        return (Phrase(name),), *((Phrase(units.seconds(x)),) for x in seconds), Bar(spent / most)

    rows = tuple(row(*one) for one in known)
    head = ("stage", *firsts, "all" if firsts else "time", "")
    parts: tuple[Part, ...] = (Table(head, rows, frozenset({1, len(head) - 2})),) if rows else ()
    if stages.cached is not None:
        served = "served by the persistent compilation cache, so this is no time of compiling"
        parts += (Para((Phrase(served if stages.cached else "not in the persistent compilation cache"),)),)
    return Section(title, parts, fold=True)
