"""What to write in a function of another file, which is not corrected from here: it is only shown."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import replace

from jitmagic.evidence import Evidence, Where
from jitmagic.fixes import families
from jitmagic.fixes.search import Search, diff, offered, written
from jitmagic.report import Finding, Fix
from jitmagic.source.tree import source_of
from jitmagic.trial.verify import Attempt


def shown(finding: Finding, evidence: Evidence, search: Search | None) -> Iterator[Fix]:
    """The first change for the place in its own file, as words and a diff, where the finding is not in the cell."""
    if not families.of(finding.kind) or not finding.wants_fixes:
        return
    where = _where(finding, evidence)
    found = _function_at(where) if where is not None else None
    if where is None or found is None or search is None:
        return
    text, first = found
    indent = len(text) - len(text.lstrip())
    plain = "".join(x[indent:] if x.strip() else x for x in text.splitlines(keepends=True))
    spot = search.spot(
        Attempt("", plain), finding.kind, where.line - first + 1, where.column - indent, where.end_line - first + 1,
        where.end_column - indent, finding.culprits, finding.detail,
    )  # fmt: skip
    spot = replace(spot, probe=lambda cell: (), outputs=lambda cell: ())
    rewritten = (c for family in families.of(finding.kind) for c in offered(family, spot) if c.edits)
    change = next(rewritten, None)
    if change is not None and change.edits is not None:
        file = os.path.basename(where.file)
        yield Fix(
            title=f"in `{file}`: {change.title}", applicability="display",
            evidence=f"it stands in `{file}`, which is not corrected from here",
            diff=diff(plain, written(change, spot)),
        )  # fmt: skip


def _where(finding: Finding, evidence: Evidence) -> Where | None:
    """The place of the finding, where it is in a file that is not the cell's."""
    span = finding.span
    for problem in evidence.problems:
        where = problem.where
        if where is not None and span is not None and (where.line, where.source) == (span.line, span.source):
            return where if where.file != evidence.function.file and os.path.isfile(where.file) else None
    return None


def _function_at(where: Where) -> tuple[str, int] | None:
    """Source and first line of the innermost function around the place."""
    source = source_of(where.file)
    around = [n for n in source.functions(where.line) if isinstance(n, ast.FunctionDef)]
    if not around:
        return None
    return "".join(source.lines[around[-1].lineno - 1 : around[-1].end_lineno]), around[-1].lineno
