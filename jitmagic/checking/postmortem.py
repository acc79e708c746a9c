"""The report of an exception that happened without us."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import jax

from jitmagic import evidence as ev
from jitmagic import rules
from jitmagic.checking import conclusions, exhausted
from jitmagic.checking.corrections import proposed
from jitmagic.checking.shim import Shim
from jitmagic.checking.subject import Subject
from jitmagic.checking.users_jit import unwrap_jitted
from jitmagic.checking.watched import Watched, checker_of
from jitmagic.options import JitOptions
from jitmagic.render import Report
from jitmagic.report import CellText, Finding, Span
from jitmagic.rules.base import covers, root
from jitmagic.settings import CellSource, Settings
from jitmagic.source import cell as cells
from jitmagic.state.definition import function_facts
from jitmagic.tracing import callsite, locate
from jitmagic.tracing.leaves import named_leaves
from jitmagic.tracing.messages import (
    function_called,
    is_interrupt,
    is_out_of_memory,
    raised_in_callback,
    refused_type,
)
from jitmagic.trial import budget
from jitmagic.trial.verify import Verifier

VerifierUntil = Callable[[float], Verifier | None]
CELL = "the cell"
EARLIER = "<the cell before it>"
_RANK = {"error": 0, "warning": 1, "note": 2}


def is_jax_error(error: BaseException) -> bool:
    """jax raised it while it bound arguments, traced, or found a value that is no more; or it hands on what a callback
    has raised while the device worked."""
    in_callback = raised_in_callback(error) is not None and not is_interrupt(error)
    return in_callback or locate.locate(error).op not in ("user", "other")


def report_of(
    error: BaseException,
    sources: Sequence[str] = (),
    subjects: Iterable[Subject] = (),
    namespace: dict[str, object] | None = None,
    verifier: VerifierUntil = lambda deadline: None,
) -> Report | None:
    """What a rule says about an exception that jax raised; None for any other exception.

    `subjects` are functions whose calls were seen: one that was given the donated array is named. With the
    notebook's names (`namespace`), corrections of the whole cell are tried too, which the `verifier` tests.
    """
    problem, exhausted_by = locate.locate(error), is_out_of_memory(error)
    if not exhausted_by and not is_jax_error(error):
        return None
    site = callsite.calling_site(error) if problem.where is None else None
    if site is not None:
        problem = replace(
            problem, where=site.where, locals=tuple(dict.fromkeys([*problem.locals, *site.names]))
        )
    donor = _donor(error, subjects) if problem.op == "donated" else None
    evidence = (
        _donated(donor[0], problem, donor[1])
        if donor is not None
        else _exhausted(error, problem, sources, namespace or {})
        if exhausted_by
        else _evidence(error, problem, site, sources)
    )
    found = rules.run(evidence, rules.Thresholds())
    cell = next((s for s in reversed(sources) if evidence.function.cell in (s, cells.body_of(s))), "")
    if namespace is not None and cell:
        found = with_fixes(found, evidence, cell, namespace, verifier)
    findings = tuple(replace(f, message=f.message.replace(f" while jax traces `{CELL}`", "")) for f in found)
    empty = conclusions.assemble([])
    return Report(
        findings=findings,
        backend=empty.backend,
        versions=empty.versions,
        cell=CellText(source=cell or evidence.function.cell),
    )


def joined(report: Report, late: Report) -> Report:
    """A report with the findings of an exception that came later, which it then is about; what it knew already becomes
    more severe."""
    known, new = list(report.findings), []
    for finding in late.findings:
        same = [i for i, f in enumerate(known) if _is_same(f, finding)]
        for i in same:
            severity = min(known[i].severity, finding.severity, key=lambda s: _RANK[s])
            known[i] = replace(known[i], severity=severity, detail=known[i].detail or finding.detail)
        if not same:
            new.append(finding)
    if new and any(f.severity == "error" for f in known):
        new = []  # the first error is the cause
    if not report.functions:
        return replace(report, findings=(*known, *new), cell=late.cell)
    if not new or report.cell.source == late.cell.source:
        return replace(report, findings=(*known, *new))
    functions = tuple(
        replace(f, lines=(), line_times=(), state=tuple(replace(s, lines=()) for s in f.state))
        for f in report.functions
    )
    before = (_elsewhere(f, report.cell.source) for f in known)
    return replace(report, functions=functions, findings=(*before, *new), cell=late.cell)


def _elsewhere(finding: Finding, cell: str) -> Finding:
    """The finding in a report about another cell, with its own lines; its fixes are shown there, and change nothing."""
    fixes = tuple(
        replace(
            fix, cell=None, magic=None, applicability="display", verified=False,
            evidence="not tried from here: it belongs into the other cell",
        )
        for fix in finding.fixes
    )  # fmt: skip

    def there(span: Span | None) -> Span | None:
        if span is None or span.cell is not None:
            return span
        first = max(1, span.line - conclusions.AROUND) - 1
        lines = cell.split("\n")[first : span.end_line + conclusions.AROUND]
        return replace(span, cell=EARLIER, around=tuple(lines))

    return replace(finding, span=there(finding.span), shows=there(finding.shows), fixes=fixes)


def _is_same(one: Finding, other: Finding) -> bool:
    places = [(f.span.line, f.span.source) for f in (one, other) if f.span is not None]
    line = len(places) == 2 and places[0] == places[1]
    return one.kind == other.kind and (
        line
        or one.function in other.culprits  # all that is known of the call is what it calls
        or any(covers(a, b) or covers(b, a) for a in one.culprits for b in other.culprits)
    )


def _evidence(
    error: BaseException, problem: ev.Problem, site: callsite.CallSite | None, sources: Sequence[str]
) -> ev.Evidence:
    """The function is that which the call names, where its object can be had; else what the message tells."""
    where = problem.where
    cell = next((s for s in reversed(sources) if where is not None and where.source in s), "")
    fn = inner = site.function if site is not None else None
    own = JitOptions.of(**site.declared) if site is not None and (fn is None or site.declared) else None
    if fn is not None:
        checker = checker_of(fn)
        inner, made_with = unwrap_jitted(checker.original if checker is not None else fn)
        own = own or made_with
        function = function_facts(inner, getattr(inner, "__name__", CELL), cell)
    else:
        name = (site.name if site is not None else "") or _name(error, where.function if where else "")
        function = ev.Function(
            name=name.replace("<locals>.", ""), file=where.file if where else "", source="",
            line=where.line if where else 0, where=where, parameters=site.parameters if site is not None else (),
        )  # fmt: skip
    return ev.Evidence(
        function=replace(function, cell=cells.body_of(cell)),
        options=conclusions.options_of(own or JitOptions()),
        problems=(problem,),
        calls=(ev.Call(_told_leaves(error, problem, inner, own or JitOptions()), "failed"),),
    )


def _told_leaves(
    error: BaseException, problem: ev.Problem, fn: Callable[..., object] | None, options: JitOptions
) -> tuple[ev.Leaf, ...]:
    """The argument that jax refused, as far as its message and what the function was made with describe it."""
    kind = refused_type(str(error))
    static = _declared_names("static", fn, options) if fn is not None and problem.op == "unhashable" else []
    if len(static) == 1:
        name = kind.rpartition(".")[2]
        return (ev.Leaf(static[0], static[0], "other", name, static=True, hashable=False),)
    if not kind or len(problem.leaves) != 1:
        return ()
    path, name = problem.leaves[0], kind.rpartition(".")[2]
    return (ev.Leaf(path, root(path), "other", "function" if name == Watched.__name__ else name),)


def _name(error: BaseException, seen: str) -> str:
    """The function that jax names, else the one that the error was raised in."""
    return function_called(str(error)) or (seen if seen and seen != "<module>" else CELL)


def _exhausted(
    error: BaseException, problem: ev.Problem, sources: Sequence[str], names: dict[str, object]
) -> ev.Evidence:
    """Of the function that did not fit into memory, where a call of one is on the way to the error."""
    if call := callsite.failed_call(error):
        fn, options = unwrap_jitted(call.function)
        subject = Subject(fn, call.name, options=options, namespace=names, settings=Settings(compile=False))
        subject.seen.exhausted_by = error
        with contextlib.suppress(Exception):
            traced = subject.options.jit(Shim(fn).function()).trace(*call.args, **call.kwargs)
            exhausted.explain(subject, traced, call.args, call.kwargs)
        if subject.seen.exhausted is not None:
            return conclusions.evidence_of(subject)
    evidence = _evidence(error, problem, None, sources)
    return replace(evidence, problems=(), calls=(), exhausted=exhausted.outside(error, names))


# -- arrays that were given away


def _donor(error: BaseException, subjects: Iterable[Subject]) -> tuple[Subject, list[str]] | None:
    """The watched function that was given the array that the failing expression reads, and its parameters."""
    read = {id(leaf) for value in callsite.values_read(error) for leaf in jax.tree.leaves(value)}
    donors = [s for s in subjects if s.options.donates]
    for subject in donors:
        for sample in subject.seen.samples:
            leaves = named_leaves(subject.fn, sample.args, sample.kwargs)
            given = [path for path, leaf in leaves if id(leaf) in read]
            if given:
                return subject, given
    called = [s for s in donors if s.seen.samples]  # of later calls none is kept
    return (
        (called[0], _declared_names("donate", called[0].fn, called[0].options))
        if len(donors) == len(called) == 1
        else None
    )


def _declared_names(kind: str, fn: Callable[..., object], options: JitOptions) -> list[str]:
    """The parameters that a function was compiled with as `static`, or as those to `donate`."""
    order = list(inspect.signature(fn).parameters)
    named, numbers = getattr(options, f"{kind}_argnames"), getattr(options, f"{kind}_argnums")
    return list(dict.fromkeys([*named, *(order[n] for n in numbers if -len(order) <= n < len(order))]))


def _donated(subject: Subject, problem: ev.Problem, given: list[str]) -> ev.Evidence:
    """Evidence of the donor, with the reading expression as the problem."""
    evidence = conclusions.evidence_of(subject)
    return ev.Evidence(
        function=evidence.function, options=evidence.options,
        problems=(replace(problem, leaves=tuple(given)),), calls=evidence.calls,
    )  # fmt: skip


# -- corrections of the whole cell


def with_fixes(
    found: tuple[Finding, ...],
    evidence: ev.Evidence,
    cell: str,
    namespace: dict[str, object],
    verifier: VerifierUntil = lambda deadline: None,
) -> tuple[Finding, ...]:
    """Fixes that need no call on record: the cell is run again with the cells after it."""
    name = evidence.function.name
    subject = Subject(
        _function(name, namespace), name, namespace=namespace, settings=Settings(compile=False),
        cell=CellSource(cell, cells.body_of(cell)),
    )  # fmt: skip
    try:
        deadline = budget.clock() + subject.settings.budget
        tests = verifier(deadline)
        own = tests is not None and tests.reruns.original.cell == subject.cell.body
        return proposed(found, evidence, subject, deadline, tests if own else None)
    except Exception as exc:
        subject.failed_inside("the search for fixes", exc)
    return found


def _function(name: str, namespace: dict[str, object]) -> Callable[..., object]:
    """The function of the notebook, or one that does nothing."""
    head, _, method = name.partition(".")
    found = namespace.get(head)
    found = vars(found).get(method) if method and isinstance(found, type) else found
    return found if callable(found) else lambda: None
