"""What is known of the notebook, as a report: of the watched functions, of a single call, of the last exception."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from jitmagic.checking.request import Request, Run
from jitmagic.checking.watched import Watched, checker_of
from jitmagic.notebook import targets
from jitmagic.notebook.running import Notebook
from jitmagic.settings import CellSource, Settings

if TYPE_CHECKING:
    from jitmagic.checking.checker import Checker
    from jitmagic.render import Report
    from jitmagic.report import Finding


def of_notebook(notebook: Notebook, *, whole: bool = True) -> Report:
    """Everything known since the last cell with a magic; with `whole`, of functions of `jitmagic.jit` too."""
    from jitmagic.checking import conclusions, corrections, remade

    run = notebook.last
    if run is None:
        return _with_leftovers(notebook, conclusions.assemble([]), notebook.sources, whole)
    checkers = _shown(list(run.checkers.values()))
    start = max((i for i, s in enumerate(notebook.sources) if s == run.source.text), default=0)
    known = corrections.report_of(checkers, run.source)
    known = _with_leftovers(notebook, known, notebook.sources[start:], whole)
    return remade.beside(known, compilations(notebook))


def _shown(checkers: list[Checker]) -> list[Checker]:
    """All but plain functions that were called through their compiled form only."""
    called = [c.fn for c in checkers if c.seen.count]
    return [c for c in checkers if c.seen.count or c.fn not in called]


def _with_leftovers(notebook: Notebook, known: Report, sources: Sequence[str], whole: bool) -> Report:
    """The report with what these cells make and do not use, and with what functions of `jitmagic.jit` go on with."""
    from jitmagic.checking import gone_stale, subject, unused

    try:
        found = (
            *(gone_stale.findings() if whole else ()),
            *unused.findings(sources, notebook.sources, notebook.shell.user_ns),
        )
    except Exception as exc:
        if subject.RAISE:
            raise
        note = (
            f"the search for what was made and is not used, or has gone stale, failed ({type(exc).__name__})"
        )
        return replace(known, notes=(*known.notes, note))
    return replace(known, findings=(*known.findings, *found)) if found else known


def compilations(notebook: Notebook, *, fixes: bool = True) -> tuple[Finding, ...]:
    """The places that make compiled functions again and again."""
    from jitmagic.checking import remade

    watcher = notebook.compilations.watcher
    found = remade.findings(watcher.events) if watcher is not None else ()
    return tuple(_corrected(notebook, f) for f in found) if fixes else found


def _corrected(notebook: Notebook, finding: Finding) -> Finding:
    """A finding with fixes; where nobody watches its function, they are tried on the whole cell."""
    from jitmagic import evidence as ev
    from jitmagic.checking import remade
    from jitmagic.checking.postmortem import with_fixes

    run = notebook.last
    if run is not None:
        finding = remade.with_fix(finding, _shown(list(run.checkers.values())))
    if finding.fixes or run is None or finding.span is None or finding.span.cell is not None:
        return finding
    function = ev.Function(finding.function, "", "", 0, cell=run.source.body)
    return with_fixes(
        (finding,), ev.Evidence(function), run.source.text, notebook.shell.user_ns,
        notebook.verifier,
    )[0]  # fmt: skip


def of_call(notebook: Notebook, text: str, request: Request) -> Report:
    """Diagnose one call of any function of the notebook. Raises UsageError for anything but a call."""
    from jitmagic.checking import conclusions
    from jitmagic.checking.checker import Checker
    from jitmagic.state.definition import misfit, source_file
    from jitmagic.whatif import answers

    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as exc:
        raise UsageError(f"{text.strip()!r} is no call that Python can read: {exc.msg}") from None
    if not isinstance(node, ast.Call):
        raise UsageError(f"{text.strip()!r} is no call; write it as it would stand in a cell, f(x, 3)")
    fn, args, kwargs = _evaluate(node, notebook.shell.user_ns)
    name = ast.unparse(node.func)
    if inspect.iscoroutinefunction(inspect.unwrap(fn)):
        raise UsageError(f"{name} is async: jax can't trace it; check what it calls")
    if words := misfit(fn.plain_function if isinstance(fn, Watched) else fn, args, kwargs):
        raise UsageError(f"{text.strip()} can't be called: {words}")
    if wrong := targets.wrong_of_call(request, name, fn, notebook.shell.user_ns):
        raise UsageError("; ".join(wrong))
    inner = checker_of(fn) or next((c for c in notebook.checkers if c.original is fn), None)
    checker = Checker(
        inner.fn if inner is not None else fn, name, options=request.options, dyn=request.dyn,
        namespace=notebook.shell.user_ns, settings=request.settings,
        cell=inner.cell if inner is not None else _cell_of(notebook, fn),
    )  # fmt: skip
    checker.what_if = answers
    checker.seen.count = 1
    checker.call_source = lambda: (text, notebook.running.id)
    checker.guarded(checker.check, args, kwargs)
    notebook.last = Run(request, checker.cell, (name,), {name: checker})
    known = of_notebook(notebook, whole=False)
    if checker.cell.text.strip() in ("", notebook.running.source.strip()):
        return known
    return conclusions.below_another(known, {name: notebook.cell_name(source_file(checker.fn))})


def with_fixes_of_call(notebook: Notebook, late: Report, error: BaseException) -> Report:
    """The report of an exception with the fixes that stand the test on the call that failed, made once more."""
    from jitmagic.checking import corrections
    from jitmagic.checking.checker import Checker
    from jitmagic.checking.users_jit import unwrap_jitted
    from jitmagic.source.cell import body_of
    from jitmagic.tracing.callsite import failed_call

    call = failed_call(error)
    if call is None or any(f.fixes for f in late.findings):
        return late
    fn, options = unwrap_jitted(call.function)
    source = next((s for s in reversed(notebook.sources) if late.cell.source in (s, body_of(s))), "")
    checker = Checker(
        fn, call.name, options=options, namespace=notebook.shell.user_ns, settings=Settings(compile=False, time=False),
        cell=CellSource(source, body_of(source)),
    )  # fmt: skip
    checker.seen.count = 1
    checker.guarded(checker.check, call.args, call.kwargs)
    known = {(f.kind, f.culprits): f.fixes for f in corrections.report_of([checker], checker.cell).findings}
    found = (replace(f, fixes=known.get((f.kind, f.culprits), ())) for f in late.findings)
    return replace(late, findings=tuple(found))


def _cell_of(notebook: Notebook, fn: Any) -> CellSource:
    """The last cell that has this function's text in its place; an empty one for a function of a file."""
    from jitmagic.source.cell import body_of
    from jitmagic.state.definition import function_facts

    facts = function_facts(fn, "")
    own = [line.strip() for line in facts.source.splitlines()]

    def has(source: str) -> bool:
        lines = [line.strip() for line in body_of(source).splitlines()]
        places = range(max(0, facts.line - len(own)), facts.line)
        return any(lines[at : at + len(own)] == own for at in places)

    found = reversed(notebook.sources) if own and notebook.cell_name(facts.file) else ()
    source = next(filter(has, found), "")
    return CellSource(source, body_of(source))


def _evaluate(node: ast.Call, ns: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Function and arguments of a call, evaluated in the notebook's names."""

    def value(n: ast.expr) -> Any:
        return eval(compile(ast.fix_missing_locations(ast.Expression(n)), "<jitcheck call>", "eval"), ns)

    args: list[Any] = []
    for a in node.args:
        args += list(value(a.value)) if isinstance(a, ast.Starred) else [value(a)]
    kwargs: dict[str, Any] = {}
    for k in node.keywords:
        kwargs |= {k.arg: value(k.value)} if k.arg else dict(value(k.value))
    return value(node.func), tuple(args), kwargs


def of_error(notebook: Notebook, error: BaseException | None) -> Report | None:
    """The report of an exception, where jax raised it while tracing."""
    if not isinstance(error, Exception):  # an interrupt waits for nothing
        return None
    from jitmagic.checking.postmortem import report_of

    subjects = list(notebook.last.checkers.values()) if notebook.last is not None else []
    return report_of(error, notebook.sources, subjects, notebook.shell.user_ns, notebook.verifier)
