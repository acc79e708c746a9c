"""What follows from what was seen: evidence, findings with proved fixes, and the report."""

from __future__ import annotations

import contextlib
import inspect
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jitmagic import evidence as ev
from jitmagic import report
from jitmagic.checking.seen import Seen
from jitmagic.checking.subject import Subject
from jitmagic.settings import CellSource
from jitmagic.state.definition import function_facts
from jitmagic.state.paths import split_paths

LOOKING = "looking for corrections"


def evidence_of(subject: Subject) -> ev.Evidence:
    """Everything seen so far, frozen."""
    s = subject.seen
    return ev.Evidence(
        function=function_facts(subject.fn, subject.name, subject.cell.body),
        options=ev.Options(
            static_argnames=subject.options.static_argnames,
            static_argnums=subject.options.static_argnums,
            donate_argnames=subject.options.donate_argnames,
            donate_argnums=subject.options.donate_argnums,
            dyn=tuple(split_paths(subject.dyn)) if subject.dyn else None,
        ),
        jitted_by_user=subject.jitted_by_user, framework=subject.framework,
        calls=tuple(s.calls), problems=tuple(s.problems), variables=tuple(s.variables.values()),
        writes=tuple(s.writes.values()), differences=tuple(s.differences), traces=s.traces,
        compiles=s.compiles, equations=s.equations, dynamic_inputs=s.dynamic_inputs, printed=s.printed,
        static_verified=s.static_verified, silent=s.silent, notes=tuple(s.notes),
    )  # fmt: skip


def findings_of(subject: Subject, deadline: float | None = None) -> tuple[report.Finding, ...]:
    """The findings with their fixes; computed again only where something new was seen.

    `deadline` ends the search for fixes, where that is before the subject's own budget does."""
    from jitmagic import fixes, rules

    evidence = evidence_of(subject)
    # Notes say what the search for fixes left out: they are no reason to search again.
    key = (replace(evidence, notes=()), len(subject.seen.samples))
    if subject.concluded is None or subject.concluded[0] != key:
        found: tuple[report.Finding, ...] = ()
        try:
            found = rules.run(evidence, rules.Settings(large_constant=subject.settings.large_constant))
            with subject.progress(LOOKING) if subject.progress is not None else contextlib.nullcontext():
                found = fixes.propose(found, evidence, subject, deadline)
        except Exception as exc:
            subject.failed_inside("the search for findings and fixes", exc)
        subject.concluded = key, found
    return subject.concluded[1]


def function_report(subject: Subject) -> report.FunctionReport:
    """The function's own part of a report."""
    s = subject.seen
    verdict: report.Verdict = "untraced"
    if s.calls:
        verdict = "fails" if any(c.outcome == "failed" for c in s.calls) else "ok"
    return report.FunctionReport(
        name=subject.name, verdict=verdict, calls=s.count, traces=s.traces, compiles=s.compiles,
        state=tuple(_state(v) for v in s.variables.values()), stages=s.stages, timing=s.timing,
        cost=s.cost, lines=s.lines, what_if=s.what_if, remarks=tuple(s.remarks),
        against=_against(subject), arguments=_arguments(s), signature=_signature(subject.fn), notes=tuple(s.notes),
    )  # fmt: skip


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
    from jitmagic.measure import noise

    if subject.seen.earlier is None:
        return None
    then, name = subject.seen.earlier
    now = _arguments(subject.seen)
    changed = f"its arguments were {', '.join(then.arguments) or 'none'}" if then.arguments != now else ""
    return noise.compare_runs(subject.seen.timing, then.timing, name, changed)


def _signature(fn: Callable[..., Any]) -> str:
    try:
        return str(inspect.signature(fn))[:200]
    except (TypeError, ValueError):
        return ""


def _state(v: ev.Variable) -> report.State:
    return report.State(
        path=v.path, role=v.role, declared=v.declared, origin=v.origin, type=v.type, shape=v.shape, dtype=v.dtype,
        bytes=v.bytes, lines=tuple(dict.fromkeys(w.line for w in v.reads)), written=v.written, stale=v.stale,
        value=v.value,
    )  # fmt: skip


def assemble(
    subjects: Sequence[Subject], cell: CellSource | None = None, notes: Sequence[str] = ()
) -> report.Report:
    """One report about several functions."""
    import jax

    import jitmagic
    from jitmagic import rules
    from jitmagic.fixes import prove
    from jitmagic.tracing import compat

    cell = cell or (subjects[0].cell if subjects else CellSource())
    deadline = prove.clock() + max((s.budget for s in subjects), default=0.0)
    findings = rules.select([f for s in subjects for f in findings_of(s, deadline)])
    return report.Report(
        functions=tuple(function_report(s) for s in subjects),
        findings=findings,
        backend=compat.started_backend(),
        versions=report.Versions(jitmagic.__version__, jax.__version__, platform.python_version()),
        cell=report.CellText(cell.text, cell.name, cell.id, cell.magic),
        notes=tuple(notes),
    )
