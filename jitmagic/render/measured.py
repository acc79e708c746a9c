"""What was measured of a function: its times with their spread, and its cost by source line."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from jitmagic import units
from jitmagic.render.escape import brief, other_cell, shorten
from jitmagic.render.parts import Bar, Cell, Inline, Listing, Para, Part, Phrase, Row, Section, Table, runs
from jitmagic.render.strips import Stretch, Strip
from jitmagic.report import Alive, Bound, Comparison, FunctionReport, LineCost, LineTime, Peak, Sample, Timing

WORDS = 400
"""Characters of a remark."""

SOURCE = 48
"""Characters of a source line in a table."""

WORTH_BYTES = 10_000
"""Nobody asks what holds less."""

REMARKS = 8
DETAILS = 12
"""Lines whose equations and instructions are shown."""

Cells = tuple[Cell, ...]


def remarks(function: FunctionReport) -> Section | None:
    """What a reader of the numbers has to know; in view, because it changes what they mean."""
    if not function.remarks:
        return None
    shown = tuple(Para(runs(shorten(r.text, WORDS)), "-") for r in function.remarks[:REMARKS])
    if len(function.remarks) > REMARKS:
        shown += (Para((Phrase(f"… {units.counted(len(function.remarks) - REMARKS, 'remark')} more"),)),)
    return Section((Phrase("read the numbers with care:", "strong"),), shown)


def timing(function: FunctionReport) -> Section | None:
    """Both calls with their distributions, the comparison with an earlier run, and what was left out."""
    timed = function.timing
    plain = "without jit, before the fix" if timed.before_fix else "without jit"
    samples = [(plain, timed.eager), ("compiled", timed.jit), (_unfolded_name(timed), timed.unfolded)]
    known = [(name, sample) for name, sample in samples if sample is not None]
    parts: list[Part] = []
    if known:
        most = max(sample.median_s or 0.0 for _, sample in known) or 1.0
        rows = tuple(_sample_row(name, sample, most, timed.digits) for name, sample in known)
        parts.append(Table(("run", "median", "mean ± std", "best", "runs", ""), rows, frozenset({1, 2, 3})))
        parts += _distributions(known, timed.digits)
    if function.against is not None:
        parts.append(Para(runs(against(function.against))))
    left_out = runs(shorten(timed.left_out or "", WORDS))
    if not parts:
        return Section((Phrase("timing: ", "strong"), *left_out)) if left_out else None
    parts += [Para(left_out)] if left_out else []
    device = f" on {timed.device}" if timed.device else ""
    medians = " → ".join(
        units.seconds(s.median_s, timed.digits) for s in (timed.eager, timed.jit) if s is not None
    )
    pays = ""
    told = known and timed.clear and not timed.constant_folded
    if told and timed.speedup and (timed.break_even_calls is not None or timed.speedup <= 1):
        calls = units.counted(timed.break_even_calls or 0, "call")
        pays = f", pays off after {calls}" if timed.break_even_calls is not None else ", does not pay off"
    title = (Phrase(f"timing{device}:", "strong"), Phrase(f" {medians}{pays}" if medians else ""))
    return Section(title, tuple(parts), fold=True)


def against(found: Comparison) -> str:
    """`no difference from the last run of this cell: within 4 %`."""
    noise = f"{math.ceil((found.noise or 0.0) * 100)} %"
    match found.verdict:
        case "incomparable":
            more = f": {found.why}"
        case "same":
            more = f": within {noise}"
        case _:
            more = f" ({units.seconds(found.before_s)} then), where chance makes up to {noise}"
    return in_short(found) + more


def in_short(found: Comparison) -> str:
    """The same without the numbers: `15× faster than the run in first.json`."""
    if found.verdict == "incomparable":
        return f"not compared with {found.earlier}"
    if found.verdict == "same":
        return f"no difference from {found.earlier}"
    ratio = found.ratio or 1.0
    factor = max(ratio, 1 / ratio)
    times = units.times(factor) if factor >= 1.25 else f"{factor - 1:.0%}".replace("%", " %")
    return f"{times} {found.verdict} than {found.earlier}"


def _unfolded_name(timed: Timing) -> str:
    return f"compiled, {units.listed([f'{n}' for n in timed.unfolded_by], 3)} dynamic"


def _half_width(samples: Sequence[Sample]) -> float:
    """Half the width of the distributions' pictures, one for all; 0 where there is nothing to draw."""
    off = [
        abs(b / s.median_s - 1)
        for s in samples
        for b in s.batches_s
        if s.median_s > 0 and len(s.batches_s) > 1
    ]
    if not off:
        return 0.0
    steps = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    return next((step for step in steps if max(off) <= step), 1.0)


def _distributions(samples: Sequence[tuple[str, Sample]], digits: int) -> list[Part]:
    """The batches of each call around their median, on one relative scale."""
    half = _half_width([sample for _, sample in samples])
    drawn = [(name, sample, distribution(sample, half)) for name, sample in samples]
    rows = tuple(
        ((Phrase(name),), _seconds(min(s.batches_s), digits), picture, _seconds(max(s.batches_s), digits))
        for name, s, picture in drawn
        if isinstance(picture, Strip)
    )
    ends = f"median ± {half:.0%}".replace("%", " %")
    return [Table(("spread of the runs", "from", ends, "to"), rows, frozenset({1}))] if rows else []


def _seconds(value: float, digits: int) -> Inline:
    return (Phrase(units.seconds(value, digits)),)


def _sample_row(name: str, sample: Sample, most: float, digits: int) -> Cells:
    spread = f"{units.seconds(sample.mean_s, digits)} ± {units.seconds(sample.std_s, digits)}"
    if sample.repeats == 1:
        spread = ""  # one run has none
    count = f"{units.counted(sample.repeats, 'run')} of {units.counted(sample.loops, 'loop')}"
    best = units.seconds(sample.best_s, digits) if sample.best_s is not None else ""
    words = (name, units.seconds(sample.median_s, digits), spread, best, count)
    return (*((Phrase(word),) for word in words), Bar((sample.median_s or 0.0) / most))


def distribution(sample: Sample, half: float) -> Cell:
    """The batches as points around their median, with a box for the middle half."""
    if not half or len(sample.batches_s) < 2 or sample.median_s <= 0:
        return ()

    def at(seconds: float) -> float:
        return 0.5 + (seconds / sample.median_s - 1) / (2 * half)

    low, _, high = statistics.quantiles(sample.batches_s, n=4, method="inclusive")
    words = (
        f"{units.counted(len(sample.batches_s), 'run')} from {units.seconds(min(sample.batches_s))} to "
        f"{units.seconds(max(sample.batches_s))}, the middle half from {units.seconds(low)} to {units.seconds(high)}"
    )
    whole = Stretch(at(min(sample.batches_s)), at(max(sample.batches_s)), "plain", 0.15)
    return Strip((whole, Stretch(at(low), at(high))), tuple(map(at, sample.batches_s)), 0.5, words)


# -- cost


def cost(function: FunctionReport, lines: Sequence[str], rows: int) -> Section | None:
    """The whole call, what bounds it, what it holds at most, and each line."""
    found = function.cost
    words = []
    if found.flops is not None:
        words.append(units.scaled(found.flops, "flop"))
    if found.bytes is not None:
        words.append(f"{units.size(found.bytes)} read and written")
    if found.peak_bytes is not None:
        words.append(f"{units.size(found.peak_bytes)} of memory at most")
    parts: list[Part] = []
    if found.bound is not None:
        parts.append(Para(runs(_bound(found.bound, function.timing))))
    if found.peak is not None and found.peak.alive and found.peak.bytes >= WORTH_BYTES:
        parts.append(Para(runs(_peak(found.peak))))
    parts += _line_costs(function, lines, rows)
    if not words and not parts:
        return None
    title = (Phrase("cost of one compiled call:", "strong"), Phrase(f" {', '.join(words)}" if words else ""))
    return Section(title, tuple(parts), fold=bool(parts))


def _bound(bound: Bound, timed: Timing) -> str:
    rates = f"{units.scaled(bound.flops_per_s, 'flop/s')}, {units.size(bound.bytes_per_s)}/s"
    text = (
        f"limited by {bound.by}: {units.plain(bound.intensity)} flop for each byte moved, and this machine does "
        f"{units.plain(bound.balance)} flop in the time that it moves one ({rates})"
    )
    least = f"{text}; at least {units.seconds(bound.least_s)} a call"
    if timed.jit is None or timed.constant_folded or timed.jit.median_s <= 0:
        return least
    share, measured = bound.least_s / timed.jit.median_s, units.seconds(timed.jit.median_s)
    if share > 1:
        return f"{text}; measured {measured}, faster than these rates, which are those of float32 arrays, taken once"
    reached = f"{share:.0%} of what is possible" if share >= 0.01 else "under 1% of what is possible"
    return f"{least}, measured {measured}, {reached}".replace("%", " %")


def _alive(alive: Alive) -> str:
    named = alive.name not in ("value", "")
    name = f"`{brief(alive.name, 30)}` " if named else ""
    line = f" from line {alive.line}" if alive.line is not None and not named else ""
    return f"{name}{units.short_dtype(alive.type)}{line} ({units.size(alive.bytes)})"


def _peak(peak: Peak) -> str:
    place = f" at line {peak.line}" if peak.line else ""
    held = units.listed(list(map(_alive, peak.alive)), 4)
    return f"before XLA fuses anything, most memory is in use{place}, {units.size(peak.bytes)}: {held}"


@dataclass(frozen=True)
class WeighedLine:
    """A line with its part of the whole: of the measured time, or of an estimate."""

    line: int
    weight: float
    time: LineTime | None = None
    cost: LineCost | None = None

    @property
    def cell(self) -> str | None:
        """Where it lies, if not in the report's cell."""
        found = self.time or self.cost
        return found.cell if found is not None else None


def weighed(function: FunctionReport) -> tuple[list[WeighedLine], str]:
    """The lines in the order of the source, and what they are weighed by: time, flop or equations."""
    costs, times = {(c.cell, c.line): c for c in function.lines}, function.line_times
    if times:
        found = [WeighedLine(t.line, t.seconds, t, costs.pop((t.cell, t.line), None)) for t in times]
        found += [WeighedLine(c.line, 0.0, None, c) for c in costs.values()]
        return sorted(found, key=_order), "time"
    by_flops = any(c.flops for c in function.lines)
    found = [
        WeighedLine(c.line, (c.flops or 0.0) if by_flops else float(c.equations), cost=c)
        for c in function.lines
    ]
    return sorted(found, key=_order), "flop" if by_flops else "equations"


def _order(found: WeighedLine) -> tuple[str, int]:
    return found.cell or "", found.line


def _line_costs(function: FunctionReport, lines: Sequence[str], rows: int) -> list[Part]:
    """The dearest lines in the order of the source, with a bar each."""
    every, unit = weighed(function)
    if not every:
        return []
    ranked = sorted(every, key=lambda w: -w.weight)
    chosen = sorted(ranked[:rows], key=_order)
    most, total = ranked[0].weight or 1.0, sum(w.weight for w in every) or 1.0
    measured = unit == "time"
    shown = tuple(
        (
            *_place(w, lines),
            *_weight_cells(w, w.weight / total, measured),
            Bar(w.weight / most),
            *_cost_cells(w.cost),
        )
        for w in chosen
    )
    heads = ("measured", "share") if measured else ("estimate",)
    head = ("line", "source", *heads, "", "equations", "flop", "bytes", "fused with, reads")
    right = frozenset({0, *range(2, len(head) - 1)}) - {2 + len(heads)}
    table: list[Part] = [Table(head, shown, right, (len(head) - 1, 3 + len(heads)))]
    if len(every) > rows:
        table.append(Para((Phrase(f"… {units.counted(len(every) - rows, 'cheaper line')} not shown"),)))
    if any(w.time is not None and w.time.shared for w in chosen):
        words = (
            "≈: lines that the compiler fused, or a loop's, share the time of the whole by the work of each"
        )
        table.append(Para((Phrase(words, "dim"),)))
    if not measured and function.cost.by_line:
        table.append(Para(runs(f"the time of each line was not measured: {function.cost.by_line}")))
    detailed = sorted(
        (w.cost for w in ranked[:DETAILS] if w.cost and (w.cost.jaxpr or w.cost.hlo)), key=_line
    )
    if detailed:
        inner = tuple(_detail(c, _cut(c.source) or _source(c.line, lines)) for c in detailed)
        title = (Phrase("equations and compiled instructions of each line:"),)
        table.append(Section(title, inner, fold=True, medium="html"))
    return table


def _line(cost: LineCost) -> int:
    return cost.line


def _place(found: WeighedLine, lines: Sequence[str]) -> Cells:
    number, where = (Phrase(str(found.line)),), found.time or found.cost
    if where is None or where.cell is None:
        return number, (Phrase(_source(found.line, lines), "code"),)
    return number, (Phrase(_cut(where.source), "code"), Phrase(other_cell(where.cell), "dim"))


def _weight_cells(found: WeighedLine, share: float, measured: bool) -> Cells:
    percent = (Phrase(f"{share:.0%}".replace("%", " %")),)
    if not measured:
        return (percent,)
    about = "≈ " if found.time is not None and found.time.shared else ""
    return (Phrase(f"{about}{units.seconds(found.weight)}" if found.weight else ""),), percent


def _cost_cells(cost: LineCost | None) -> Cells:
    """Equations, operations, bytes, and what stands beside them."""
    if cost is None:
        return (), (), (), ()
    words = (str(cost.equations), units.scaled(cost.flops, "flop"), units.size(cost.bytes))
    others = [str(n) for n in cost.fused_with]
    fused = f"line {units.listed(others, 4, cost.fused_more)}" if others else ""
    names = units.listed([f"`{brief(n, 20)}`" for n in cost.constants], 3)
    return (*((Phrase(w),) for w in words), runs(", ".join(filter(None, (fused, names)))))


def _detail(cost: LineCost, source: str) -> Section:
    """One line's equations, and what the compiler made of them."""
    ended = f", in {units.listed(list(cost.fusions), 3)}" if cost.fusions else ""
    parts: list[Part] = []
    for name, text in (("as traced", cost.jaxpr), ("as compiled", cost.hlo)):
        if text:
            parts.append(Para((Phrase(name, "dim"),)))
            parts.append(Listing(tuple(Row(None, line) for line in text.split("\n")), gutter=False))
    return Section(
        (Phrase(f"line {cost.line} "), Phrase(source, "code"), Phrase(ended, "dim")), tuple(parts), fold=True
    )


def _source(line: int, lines: Sequence[str]) -> str:
    return _cut(lines[line - 1].strip() if 1 <= line <= len(lines) else "")


def _cut(text: str) -> str:
    return text if len(text) <= SOURCE else text[: SOURCE - 1] + "…"
