"""The report of an exception that happened without us."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from jitmagic import conclusions, rules
from jitmagic import evidence as ev
from jitmagic.report import CellText, Report

CELL = "the cell"


def _name(error: BaseException, seen: str) -> str:
    """The function that jax names, else the one that the error was raised in."""
    named = re.search(r"argument to <function (\S+) at ", str(error))
    if named is not None:
        return named[1]
    return seen if seen and seen != "<module>" else CELL


def report_of(error: BaseException, sources: Sequence[str] = ()) -> Report | None:
    """What a rule says about an exception that jax raised while tracing; None for any other exception."""
    from jitmagic.tracing import locate

    problem = locate.locate(error)
    if problem.op in ("user", "other"):
        return None
    where = problem.where
    name = _name(error, where.function if where is not None else "")
    cell = next((s for s in reversed(sources) if where is not None and where.source in s), "")
    function = ev.Function(
        name=name.replace("<locals>.", ""), file=where.file if where else "", source="",
        line=where.line if where else 0, where=where, cell=cell,
    )  # fmt: skip
    found = rules.run(ev.Evidence(function=function, problems=(problem,)), rules.Settings())
    findings = tuple(replace(f, message=f.message.replace(f" while jax traces `{CELL}`", "")) for f in found)
    empty = conclusions.assemble([])
    return Report(
        findings=findings, backend=empty.backend, versions=empty.versions, cell=CellText(source=cell)
    )
