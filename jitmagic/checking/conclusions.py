"""What follows from what was seen: evidence, findings, and the report."""

from __future__ import annotations

import inspect
import linecache
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import jax

from jitmagic import evidence as ev
from jitmagic import report, rules
from jitmagic.checking import tracebacks
from jitmagic.checking.seen import Seen
from jitmagic.checking.subject import Subject
from jitmagic.kinds import RANDOM
from jitmagic.measure import noise
from jitmagic.options import JitOptions
from jitmagic.render import Report
from jitmagic.rules.select import CHANGE_RESULTS
from jitmagic.settings import CellSource
from jitmagic.state.definition import function_facts
from jitmagic.state.paths import split_paths
from jitmagic.tracing import compat
from jitmagic.tracing.leaves import is_restless

AROUND = 2
"""Lines shown before and after a place in another cell."""


def evidence_of(subject: Subject) -> ev.Evidence:
    """Everything seen so far, frozen."""
    s = subject.seen
    return ev.Evidence(
        function=function_facts(subject.fn, subject.name, subject.cell.body),
        options=options_of(subject.options, subject.dyn),
        jitted_by_user=subject.jitted_by_user, framework=subject.framework,
        calls=tuple(s.calls), problems=tuple(s.problems), variables=tuple(s.variables.values()),
        writes=tuple(s.writes.values()), differences=tuple(s.differences), lost=tuple(s.lost),
        traces=s.traces,
        compiles=s.compiles, equations=s.equations, dynamic_inputs=s.dynamic_inputs, printed=s.printed,
        static_verified=s.static_verified, silent=subject.silent(), waits=s.waits, exhausted=s.exhausted,
        notes=tuple(s.notes), compared=s.compared,
    )  # fmt: skip


def options_of(options: JitOptions, dyn: str | None = None) -> ev.Options:
    """The options as evidence."""
    return ev.Options(
        options.static_argnames, options.static_argnums, options.donate_argnames, options.donate_argnums,
        tuple(split_paths(dyn)) if dyn else None,
    )  # fmt: skip


def told_of(subject: Subject) -> tuple[report.Finding, ...]:
    """The findings, without a search for corrections."""
    evidence = evidence_of(subject)
    try:
        found = rules.run(evidence, rules.Thresholds(large_constant=subject.settings.large_constant))
        return confirmed(found, evidence.lost, subject.seen.is_wrong)
    except Exception as exc:
        subject.failed_inside("the search for findings", exc)
        return ()


def confirmed(
    found: Sequence[report.Finding], losses: Sequence[ev.Loss], is_wrong: bool
) -> tuple[report.Finding, ...]:
    """The findings: an error with both values where the calls have shown what one warns of. Where calls are wrong there
    is one at least."""
    mine = {f: [x for x in losses if x.place in f.culprits] for f in found if f.severity == "warning"}
    told = tuple(_as_error(f, mine[f]) if mine.get(f) else f for f in found)
    blamed = next((f for f in told if f.severity == "warning" and f.kind in CHANGE_RESULTS), None)
    if not is_wrong or blamed is None or any(f.severity == "error" for f in told):
        return told
    return tuple(_as_error(f, losses) if f is blamed else f for f in told)


def _as_error(finding: report.Finding, losses: Sequence[ev.Loss]) -> report.Finding:
    """A warning as an error that says the values of the first loss."""
    if finding.kind == RANDOM or not losses:  # the state of a generator says nothing to a reader
        return replace(finding, severity="error")
    loss = losses[0]
    verb = "has" if loss.compiled.endswith((" item", " items")) else "is"
    shown = loss.path.startswith(("result ", "printed "))
    place = loss.path if shown else f"after this cell `{loss.path}`"
    values = f"{place} {verb} {loss.compiled} with jit, and {loss.plain} without jit"
    return replace(finding, severity="error", message=f"{finding.message}; {values}")


def _lies_in(subject: Subject, cell: CellSource) -> str | None:
    """The name of the code that the function lies in, where that is not the report's cell."""
    where = function_facts(subject.fn, subject.name).where
    if where is None or not cell.text:
        return None
    there = cell.text.split("\n")[where.line - 1 : where.line]
    return None if there and there[0].strip() == where.source.strip() else where.file


def placed(
    finding: report.Finding, problems: Sequence[ev.Problem], lies_in: str | None = None
) -> report.Finding:
    """The finding with the lines around it, where it lies in another cell, and with the call that led to a helper;
    `lies_in`: the name of that cell's code, where the whole function lies there."""
    span = finding.span
    if span is None:
        return finding
    if span.cell is None and lies_in is not None:
        span = replace(span, cell=lies_in)
    known = (p for p in problems if p.where is not None and p.where.line == span.line and p.called_from)
    problem = next(known, None)
    if problem is not None and problem.where is not None and problem.called_from is not None:
        outer = problem.called_from
        named = replace(
            span, function=problem.where.function, called_from=f"line {outer.line} of `{outer.function}`"
        )
        span = named if problem.where.function != finding.function else span
    if span.cell is not None and not span.around:
        first = max(1, span.line - AROUND)
        lines = [
            linecache.getline(span.cell, n).rstrip("\n") for n in range(first, span.end_line + AROUND + 1)
        ]
        span = replace(span, around=tuple(lines) if any(lines) else ())
    return replace(finding, span=_named(span), shows=_named(finding.shows) if finding.shows else None)


def _named(span: report.Span) -> report.Span:
    """With the name that the notebook has for the cell where it lies."""
    cell = span.cell
    names = [name_of(cell) for name_of in tracebacks.name_of_cell] if cell is not None else []
    return replace(span, cell_name=next(filter(None, names), ""))


def function_report(subject: Subject, lies_in: str | None = None) -> report.FunctionReport:
    """The function's own part of a report; `lies_in`: the name of another cell's code, where it lies there."""
    s = subject.seen
    verdict: report.Verdict = "untraced"
    lines, times = _of_cell(s.lines, lies_in), _of_cell(s.line_times, lies_in)
    if s.calls:
        failed = s.exhausted is not None or any(c.outcome == "failed" for c in s.calls)
        verdict = "fails" if failed else "wrong" if s.is_wrong else "ok"
    return report.FunctionReport(
        name=subject.name, verdict=verdict, calls=s.count, traces=s.traces, compiles=s.compiles,
        state=tuple(_state(v) for v in s.variables.values()), stages=s.stages, all_stages=s.all_stages,
        timing=report.Timing() if verdict == "wrong" else s.timing,
        cost=s.cost, lines=lines, line_times=times, what_if=s.what_if, remarks=tuple(s.remarks),
        against=_against(subject), arguments=_arguments(s), signature=_signature(subject.fn), notes=tuple(s.notes),
        interrupted=s.interrupted and not s.count,
    )  # fmt: skip


Line = TypeVar("Line", report.LineCost, report.LineTime)


def _of_cell(lines: Sequence[Line], lies_in: str | None) -> tuple[Line, ...]:
    """The lines of the function itself with the name of the cell that it lies in, and their text."""
    if lies_in is None:
        return tuple(lines)
    return tuple(
        replace(x, cell=lies_in, source=linecache.getline(lies_in, x.line).strip()) if x.cell is None else x
        for x in lines
    )


def _arguments(seen: Seen) -> tuple[str, ...]:
    """Types of the first call's arguments; values of the static ones."""
    leaves = seen.calls[0].leaves[:40] if seen.calls else ()
    return tuple(
        f"{x.path}: {x.dtype}[{','.join(map(str, x.shape))}]"
        if x.dtype and not x.static
        else f"{x.path} = {x.value}"
        for x in leaves
    )


def _against(subject: Subject) -> report.Comparison | None:
    """This run beside an earlier one of the same function."""
    if subject.seen.earlier is None:
        return None
    then, name = subject.seen.earlier
    now = _arguments(subject.seen)
    changed = f"its arguments were {', '.join(then.arguments) or 'none'}" if then.arguments != now else ""
    return noise.compare_runs(subject.seen.timing, then.timing, name, changed)


def below_another(shown: Report, names: Mapping[str, str]) -> Report:
    """The report with its own cells named in each place, by function, where it stands below another one."""

    def named(span: report.Span | None, function: str) -> report.Span | None:
        own = span is not None and span.cell is None and function in names
        return replace(span, cell_name=names[function]) if span is not None and own else span

    found = [
        replace(f, span=named(f.span, f.function), shows=named(f.shows, f.function)) for f in shown.findings
    ]
    return replace(shown, findings=tuple(found))


class _Named(str):
    """Stands for a default that is not asked for its text."""

    __slots__ = ()
    __repr__ = str.__str__


def _signature(fn: Callable[..., object]) -> str:
    try:
        signature = inspect.signature(fn)
        given = [p.replace(default=_Named(type(p.default).__name__)) if is_restless(type(p.default), "__repr__") else p
                 for p in signature.parameters.values()]  # fmt: skip
        text = str(signature.replace(parameters=given))
        return text.replace("jax.jaxlib._jax.Array", "jax.Array")[:200]  # it tells a wrong path of itself
    except (TypeError, ValueError):
        return ""


def _state(v: ev.Variable) -> report.State:
    return report.State(
        path=v.path, role=v.role, declared=v.declared, origin=v.origin, type=v.type, shape=v.shape, dtype=v.dtype,
        bytes=v.bytes, lines=tuple(dict.fromkeys(w.line for w in v.reads)), written=v.written, stale=v.stale,
        value=v.value,
    )  # fmt: skip


def assemble(
    subjects: Sequence[Subject],
    cell: CellSource | None = None,
    notes: Sequence[str] = (),
    *,
    findings: Callable[[Subject], Sequence[report.Finding]] = told_of,
) -> Report:
    """One report about several functions; its findings have no corrections, unless `findings` gives some."""
    cell = cell or (subjects[0].cell if subjects else CellSource())
    beside = [(s, _lies_in(s, cell)) for s in subjects]
    found = [placed(f, s.seen.problems, there) for s, there in beside for f in findings(s)]
    return Report(
        functions=tuple(function_report(s, there) for s, there in beside),
        findings=rules.select(found),
        backend=compat.started_backend(),
        versions=report.Versions(report.own_version(), jax.__version__, platform.python_version()),
        cell=report.CellText(cell.text, cell.name, cell.id, cell.magic),
        notes=tuple(notes),
    )
