"""The report of an exception that happened without us."""

from __future__ import annotations

from collections.abc import Sequence

from jitmagic import conclusions, rules
from jitmagic import evidence as ev
from jitmagic.report import CellText, Report


def report_of(error: BaseException, sources: Sequence[str] = ()) -> Report | None:
    """What a rule says about an exception that jax raised while tracing; None for any other exception."""
    from jitmagic.tracing import locate

    problem = locate.locate(error)
    if problem.op in ("user", "other"):
        return None
    where = problem.where
    name = where.function if where is not None else "the function"
    cell = next((s for s in reversed(sources) if where is not None and where.source in s), "")
    function = ev.Function(
        name=name.replace("<locals>.", ""), file=where.file if where else "", source="",
        line=where.line if where else 0, where=where, cell=cell,
    )  # fmt: skip
    findings = rules.run(ev.Evidence(function=function, problems=(problem,)), rules.Settings())
    empty = conclusions.assemble([])
    return Report(
        findings=findings, backend=empty.backend, versions=empty.versions, cell=CellText(source=cell)
    )
