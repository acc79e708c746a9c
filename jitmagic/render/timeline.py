"""The timeline of a session: where the time for compiling went, by cell and function, in order, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitmagic import units
from jitmagic.render.escape import brief
from jitmagic.render.parts import Cell, Inline, Para, Part, Phrase, Section, Table, VerdictLine, runs
from jitmagic.render.strips import Stretch, Strip
from jitmagic.report import Compilation, Session

GROUPS = 12
ROWS = 60

ORIGINS = {"operation": "operations outside jit"}
"""Names of what belongs to no function of the user's."""

REASONS = {
    "first": "first calls",
    "shape": "new shapes",
    "dtype": "new dtypes",
    "weak-type": "weak types",
    "static": "new static values",
    "structure": "other arguments",
    "new-function": "functions made again",
    "redefined": "cells run again",
    "device": "other devices or layouts",
    "again": "caches cleared or settings changed",
}

WHY = {
    "first": "first call",
    "new-function": "a new function object",
    "redefined": "defined again: its cell ran again",
    "device": "another device or layout of the same program",
    "again": "traced again for the same types: a cache was cleared or a setting changed",
}
NEW = {"static": "new static value", "weak-type": "weak type"}


@dataclass(frozen=True)
class Group:
    """What one cell made of one function; a cell's operations outside jit, and our checks, are one each."""

    cell: int | None
    name: str
    made: tuple[Compilation, ...]

    @property
    def seconds(self) -> float:
        """Seconds of tracing, lowering and compiling."""
        return sum(c.seconds for c in self.made)


def asked_for(session: Session) -> list[Compilation]:
    """What the user's code made; checks of ours are told apart."""
    return [c for c in session.compilations if c.origin != "check"]


def verdict(session: Session) -> VerdictLine:
    """`3min 12s compiling, 80 % in cell 7: weak types`."""
    made = asked_for(session)
    total = sum(c.seconds for c in made)
    if not total:
        return VerdictLine("·", "note", "session", (Phrase("nothing was traced or compiled yet"),))
    counted = units.counted(len(made), "program")
    words = f"{units.seconds(total)} of tracing and compiling for {counted}"
    cell, share, why = _most(made, total)
    if cell is not None:
        words += f", {share:.0%} in cell {cell}".replace("%", " %") + (f": {why}" if why else "")
    avoidable = any(
        c.reason not in ("first", "redefined") for c in session.compilations if c.origin == "user"
    )
    return VerdictLine(
        "!" if avoidable else "·", "warning" if avoidable else "note", "session", (Phrase(words),)
    )


def _most(compilations: Sequence[Compilation], total: float) -> tuple[int | None, float, str]:
    """The dearest cell, its share, and what most of its time went into."""
    cells: dict[int | None, list[Compilation]] = {}
    for made in compilations:
        cells.setdefault(made.cell, []).append(made)
    cell, held = max(cells.items(), key=lambda item: sum(c.seconds for c in item[1]))
    reasons: dict[str, float] = {}
    for made in held:
        key = ORIGINS.get(made.origin) or REASONS[made.reason]
        reasons[key] = reasons.get(key, 0.0) + made.seconds
    return cell, sum(reasons.values()) / total, max(reasons, key=lambda k: reasons[k])


def parts(session: Session) -> tuple[Part, ...]:
    """By cell and function; then each program in order, with its place in the whole."""
    mine = asked_for(session)
    total = sum(c.seconds for c in mine)
    if not total:
        return ()
    made: list[Part] = [_groups(mine, total), _timeline(mine)]
    made += [Para(runs(text)) for text in _remarks(session)]
    return tuple(made)


def groups(compilations: Sequence[Compilation]) -> list[Group]:
    """By cell and function, in the order of their first program."""
    found: dict[tuple[int | None, str], list[Compilation]] = {}
    for made in compilations:
        found.setdefault((made.cell, ORIGINS.get(made.origin, made.function)), []).append(made)
    return [Group(cell, name, tuple(made)) for (cell, name), made in found.items()]


def _groups(compilations: Sequence[Compilation], total: float) -> Section:
    ranked = sorted(groups(compilations), key=lambda g: -g.seconds)
    rows = tuple(_group_row(g, total) for g in ranked[:GROUPS])
    head = ("cell", "function", "programs", "seconds", "share", "why")
    inner: tuple[Part, ...] = (Table(head, rows, frozenset({0, 2, 3, 4})),)
    if rest := ranked[GROUPS:]:
        seconds = units.seconds(sum(g.seconds for g in rest))
        inner += (Para((Phrase(f"… {units.counted(len(rest), 'row')} more, {seconds}"),)),)
    return Section((Phrase("by cell and function:", "strong"),), inner)


def _group_row(group: Group, total: float) -> tuple[Cell, ...]:
    words: dict[str, int] = {}
    for made in group.made if group.made[0].origin in ("user", "library") else ():
        reason = why(made, values=len(group.made) == 1)
        words[reason] = words.get(reason, 0) + 1
    told = [f"{count} × {reason}" if count > 1 else reason for reason, count in words.items()]
    share = f"{group.seconds / total:.0%}".replace("%", " %")
    return (*_where(group.cell, group.name, group.made[0]), (Phrase(str(len(group.made))),),
            (Phrase(units.seconds(group.seconds)),), (Phrase(share),), runs(units.listed(told, 4)))  # fmt: skip


def _where(cell: int | None, name: str, made: Compilation) -> tuple[Inline, Inline]:
    number = str(cell) if cell is not None else ""
    return (Phrase(number),), (Phrase(brief(name, 40), "plain" if made.origin in ORIGINS else "code"),)


def why(made: Compilation, values: bool = True) -> str:
    """The reason of one program in words: `new shape of x: (3,) → (4,)`."""
    change = f": {made.before} → {made.after}" if values and made.after else ""
    of = f" of `{made.argument}`" if made.argument else ""
    if made.reason in WHY:
        return WHY[made.reason]
    if made.reason == "structure":
        return f"other arguments from{of.removeprefix(' of')} on{change}"
    return f"{NEW.get(made.reason, f'new {made.reason}')}{of}{change}"


def _timeline(compilations: Sequence[Compilation]) -> Section:
    """Each program with a strip that shows its part of all seconds, idle time left out."""
    functions = [c for c in compilations if c.origin not in ORIGINS]
    shown = functions
    if len(shown) > ROWS:
        least = sorted((c.seconds for c in shown), reverse=True)[ROWS - 1]
        shown = [c for c in shown if c.seconds >= least][:ROWS]
    total = sum(c.seconds for c in shown) or 1.0
    rows, at = [], 0.0
    for made in shown:
        rows.append(_row(made, at, total))
        at += made.seconds
    head = ("at", "cell", "function", "trace", "lower", "compile", "in turn", "why")
    title = (
        Phrase("timeline:", "strong"),
        Phrase(" each program in order; the bars leave out the time between"),
    )
    inner: list[Part] = [Table(head, tuple(rows), frozenset({0, 1, 3, 4, 5}))] if rows else []
    if hidden := len(functions) - len(shown):
        inner.append(Para((Phrase(f"… {units.counted(hidden, 'shorter one')} in the report's data"),)))
    return Section(title, tuple(inner), fold=len(rows) > 12)


def _row(made: Compilation, place: float, total: float) -> tuple[Cell, ...]:
    stages: list[Stretch] = []
    for seconds, tone in ((made.trace_s, "warning"), (made.lower_s, "plain"), (made.compile_s, "note")):
        if seconds:
            stages.append(Stretch(place / total, (place + seconds) / total, tone))
            place += seconds
    times = (
        (Phrase(units.seconds(s) if s is not None else ""),)
        for s in (made.trace_s, made.lower_s, made.compile_s)
    )
    cached = [Phrase(" (from the persistent cache)")] if made.cached else []
    strip = Strip(tuple(stages), words=f"{units.seconds(made.seconds)} of {units.seconds(total)}")
    number, name = _where(made.cell, made.function, made)
    return ((Phrase(units.seconds(made.start_s)),), number, name, *times, strip, (*runs(why(made)), *cached))


def _remarks(session: Session) -> list[str]:
    cached = [c for c in session.compilations if c.cached]
    remarks = []
    checks = [c for c in session.compilations if c.origin == "check"]
    if checks:
        seconds = units.seconds(sum(c.seconds for c in checks))
        count = units.counted(len(checks), "program")
        remarks.append(
            f"checks of jitmagic took {seconds} more, for {count}: runs without jit, fixes that were tried"
        )
    if cached:
        remarks.append(f"the persistent compilation cache served {units.counted(len(cached), 'program')}")
    traced = [c for c in session.compilations if c.compile_s is None and c.origin != "check"]
    if traced:
        remarks.append(f"{units.counted(len(traced), 'program')} of these {'was' if len(traced) == 1 else 'were'} "
                       "traced and not compiled")  # fmt: skip
    if session.left_out:
        remarks.append(f"{units.counted(session.left_out, 'program')} over the limit of what is kept")
    if session.since_cell is not None and session.since_cell > 1:
        remarks.append(f"heard since cell {session.since_cell}, where the extension first met jax")
    return remarks
