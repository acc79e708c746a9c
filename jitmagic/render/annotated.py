"""The cell's source with what is known of each line, and the findings under theirs: what HTML shows of the cell."""

from __future__ import annotations

from collections.abc import Sequence

from jitmagic import units
from jitmagic.render.causes import Cause
from jitmagic.render.escape import brief
from jitmagic.render.listing import cell_rows, last_marked
from jitmagic.render.measured import weighed
from jitmagic.render.parts import Listing, Part, Phrase, Row, Section, runs
from jitmagic.report import FunctionReport, ReportData, State

NAMES = 3
"""Variables that are named behind one line."""

FUNCTIONS, STATES, LINES = 8, 100, 50
"""How many functions, variables of each and lines of each variable are looked at."""

WORTH_WORDS = 0.1
"""From this share of the cost on, a line has it in words too."""


def source_sections(
    report: ReportData, told: Sequence[tuple[Cause, Section]], lines: Sequence[str]
) -> list[Part]:
    """The cell, with the sections of `told` under their lines; folded away where there are none."""
    labels = line_labels(report.functions)
    shares = {line: share for line, (share, _) in _costs(report.functions).items()}
    if not told and not labels and not shares:
        return []
    for cause, _ in told:
        for span in (f.span for f in cause.also if f.span):
            same = f"the same as line {cause.first.span.line if cause.first.span else span.line}"
            labels[span.line] = " · ".join(filter(None, (same, labels.get(span.line))))
    rows = cell_rows(lines, [f for c, _ in told for f in c.findings], labels, shares)
    if not told:
        count = units.counted(len(lines), "line")
        words = "what it takes from outside" + (", what it costs" if shares else "")
        title = (Phrase("the cell, line by line:", "strong"), *runs(f" {words} ({count})"))
        return [Section(title, (Listing(rows),), fold=True, medium="html")]
    return [Section((), tuple(_interleaved(rows, told, lines)), medium="html")]


def _interleaved(
    rows: Sequence[Row], told: Sequence[tuple[Cause, Section]], lines: Sequence[str]
) -> list[Part]:
    """Listings of the rows, each ending where the lines of a finding do."""
    under: dict[int, list[Section]] = {}
    spans = [cause.first.span for cause, _ in told if cause.first.span]
    for span, (_, section) in zip(spans, told, strict=True):
        end = last_marked(span, lines)
        inside = any(span.line < other.line <= end for other in spans)  # a loop with a finding in its body
        under.setdefault(span.line if inside else end, []).append(section)
    digits = max((len(str(row.number)) for row in rows if row.number is not None), default=1)
    bars = any(row.share is not None for row in rows)
    parts: list[Part] = []
    block: list[Row] = []
    for row in rows:
        block.append(row)
        if found := under.get(row.number or 0):
            parts += [Listing(tuple(block), digits=digits, bars=bars, own=True), *found]
            block = []
    return [*parts, Listing(tuple(block), digits=digits, bars=bars, own=True)] if block else parts


def line_labels(functions: Sequence[FunctionReport]) -> dict[int, str]:
    """For each line, which variables it takes from outside and how, and what it costs."""
    used: dict[int, dict[str, State]] = {}
    for function in functions[:FUNCTIONS]:
        for state in filter(_matters, function.state[:STATES]):
            for line in state.lines[:LINES]:
                used.setdefault(line, {})[state.path] = state
    words = {line: [_roles(list(states.values()))] for line, states in used.items()}
    for line, (share, unit) in _costs(functions).items():
        if share >= WORTH_WORDS:
            words.setdefault(line, []).append(f"{round(100 * share)} % of the {unit}")
    return {line: " · ".join(words[line]) for line in sorted(words)}


def _matters(state: State) -> bool:
    """Not a number like `eps = 1e-8`, that stays what it is."""
    return (
        state.type != "scalar" or state.role != "constant" or state.stale or state.written or state.declared
    )


def _roles(states: Sequence[State]) -> str:
    """`w f32[10,3], lr = 0.1 constant; model.b dynamic`."""
    by_role: dict[str, list[str]] = {}
    for state in states:
        by_role.setdefault(f"{state.role}{', changed since' if state.stale else ''}", []).append(named(state))
    return "; ".join(f"{units.listed(names, NAMES)} {role}" for role, names in by_role.items())


def named(state: State) -> str:
    """`w f32[10,3]`, `lr = 0.1`; of what is no constant the name alone."""
    path = brief(state.path, 40)
    if state.role != "constant" or not (state.value or state.dtype):
        return path
    return (
        f"{path} = {brief(state.value, 24)}"
        if state.value
        else f"{path} {units.array_type(state.dtype, state.shape)}"
    )


def _costs(functions: Sequence[FunctionReport]) -> dict[int, tuple[float, str]]:
    """Each line's share of the cost of its function, and in what; nothing where one line is all."""
    out: dict[int, tuple[float, str]] = {}
    for function in (f for f in functions[:FUNCTIONS] if f.verdict != "wrong"):
        lines, unit = weighed(function)
        total = sum(w.weight for w in lines)
        if total and len(lines) > 1:
            out |= {w.line: (w.weight / total, unit) for w in lines if w.cell is None}
    return out
