"""A function's verdict, and the sections about its state, stages, timing and cost."""

from __future__ import annotations

from collections.abc import Sequence

from jitmagic import units
from jitmagic.kinds import CAUSES, DEEDS
from jitmagic.render import measured, whatif
from jitmagic.render.escape import brief, shorten
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
from jitmagic.report import Finding, FunctionReport, State

ROWS = 30
"""Rows of a table, where the report is about one function."""

NOTES = 12
WORDS = 400
"""Characters of a remark."""

LINES = 5
"""Lines that a verdict names."""

SIGNS: dict[Tone, str] = {"ok": "✓", "warning": "!", "error": "✗", "note": "·"}

Cells = tuple[Cell, ...]


def verdict(function: FunctionReport, findings: Sequence[Finding]) -> VerdictLine:
    """The one line about `function`, which `findings` are about."""
    errors = [f for f in findings if f.severity == "error"]
    warnings = [f for f in findings if f.severity == "warning"]
    counts = [_at(units.counted(len(errors), "problem"), errors)] if errors else []
    counts += [_at(units.counted(len(warnings), "warning"), warnings)] if warnings else []
    if function.verdict == "wrong":
        return _verdict(
            "error",
            function.name,
            "compiles, but its results are wrong",
            _difference(errors) or ", ".join(counts),
        )
    if function.verdict == "fails" or errors:
        how = DEEDS.get(errors[0].kind, _fails(function)) if errors else _fails(function)
        cause = _cause(errors[0]) if errors and errors[0].kind not in DEEDS else ""
        if cause:
            others = errors[1:]
            counts[:1] = [_at(units.counted(len(others), "more problem"), others)] if others else []
            counts = [", and ".join([cause, *counts])]
        return _verdict("error", function.name, how, ", ".join(counts) + _mended(errors))
    if function.verdict == "untraced":
        how = "was not traced" if function.calls else "not called yet"
        return _verdict("warning" if warnings else "note", function.name, how, ", ".join(counts))
    if warnings:
        return _verdict("warning", function.name, ", ".join(counts), gain(function), "; ")
    return _verdict("ok", function.name, "ok", gain(function))


def _cause(finding: Finding) -> str:
    """The line and what it does; empty where the finding lies elsewhere or needs more words."""
    cause = CAUSES.get(finding.kind)
    here = cause and finding.span is not None and finding.span.cell is None
    return f"line {finding.span.line} {cause}" if here and finding.span is not None else ""


def _difference(errors: Sequence[Finding]) -> str:
    """What the compiled calls give or leave otherwise, from the first message."""
    message = errors[0].message if errors else ""
    *_, last = message.split("; ")
    return last if "without jit" in last else message


def _at(words: str, findings: Sequence[Finding]) -> str:
    """`words` with the lines of these findings, where they all lie in the cell."""
    numbers = sorted({f.span.line for f in findings if f.span and f.span.cell is None})
    if not numbers or any(f.span is None or f.span.cell for f in findings) or len(numbers) > LINES:
        return words
    return f"{words} (line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))})"


def _mended(findings: Sequence[Finding]) -> str:
    """How many of the problems a tested fix mends."""
    count = sum(any(fix.verified for fix in f.fixes) for f in findings)
    if not count:
        return ""
    return "; a tested fix" if len(findings) == 1 else f"; {count} with a tested fix"


def _fails(function: FunctionReport) -> str:
    return "has a problem" if function.verdict == "ok" else "can't be compiled"


def _verdict(tone: Tone, name: str, how: str, more: str, joint: str = ": ") -> VerdictLine:
    words: Inline = (Phrase(how, tone), *((Phrase(joint), *runs(more)) if more else ()))
    return VerdictLine(SIGNS[tone], tone, brief(name), words)


def elsewhere(findings: Sequence[Finding]) -> VerdictLine:
    """The one line about findings that belong to no function of the report."""
    tone = worst({f.severity for f in findings})
    counts = [units.counted(n, word) for severity, word in (("error", "problem"), ("warning", "warning"),
              ("note", "note")) if (n := sum(f.severity == severity for f in findings))]  # fmt: skip
    return _verdict(tone, "the cell", ", ".join(counts), "")


def gain(function: FunctionReport) -> str:
    """What compiling brings, in one phrase; empty where nothing was compiled or timed."""
    timing = function.timing
    if timing.constant_folded:
        return "computed while compiling, so its time says nothing"
    if timing.jit is None:
        compiled = function.stages.compile_s is not None
        return "traces and compiles, not timed" if compiled else "traces, not timed"
    place = f" on {timing.device}" if timing.device else ""
    if timing.eager is None or not timing.speedup:
        return f"{units.seconds(timing.jit.median_s, timing.digits)} per compiled call{place}"
    eager, jit = (units.seconds(s.median_s, timing.digits) for s in (timing.eager, timing.jit))
    both = f"{eager} → {jit}{place}"
    if not timing.clear:
        return f"no clear difference ({both}): the runs differ more among themselves"
    return f"{_ratio(timing.speedup)} ({both}), {_pays(timing.speedup, timing.break_even_calls)}"


def _ratio(speedup: float) -> str:
    if 0.95 <= speedup <= 1.05:
        return "as fast as without jit"
    if speedup > 1:
        return f"{units.times(speedup)} faster compiled"
    return f"{units.times(1 / speedup)} slower compiled"


def _pays(speedup: float, calls: int | None) -> str:
    if calls is not None:
        return f"pays off after {units.counted(calls, 'call')}"
    return "does not pay off" if speedup <= 1 else "pays off"


def sections(function: FunctionReport, lines: Sequence[str], rows: int = ROWS) -> tuple[Section, ...]:
    """State, stages, timing, cost and what was left out, each where there is something to tell.

    `lines` is the cell's source, for the lines that the cost is shown by; tables have at most `rows`."""
    made = (measured.remarks(function), _signature(function), _state(function.state, rows), _stages(function),
            measured.timing(function), measured.cost(function, lines, rows),
            whatif.section(function.what_if), notes(function.notes))  # fmt: skip
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
    ranked = sorted(state, key=lambda s: (not s.stale, not s.written))
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
    if not known and not function.traces:
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
