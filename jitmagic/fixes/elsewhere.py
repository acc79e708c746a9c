"""What to write in source that is not corrected from here: a function of another file, or text that ran by `exec`.

It is only shown.
"""

from __future__ import annotations

import ast
import keyword
import linecache
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from jitmagic.evidence import Evidence, Where
from jitmagic.fixes import families
from jitmagic.fixes.search import Search, diff, offered, written
from jitmagic.report import Finding, Fix
from jitmagic.rules import page
from jitmagic.trial.verify import Attempt


def shown(finding: Finding, evidence: Evidence, search: Search | None) -> Iterator[Fix]:
    """The first change for the place in its own file, as words and a diff, where the finding is not in the cell."""
    if not families.of(finding.kind) or finding.severity == "note":
        return
    if not (evidence.function.source or evidence.function.cell):
        yield from _example(finding, evidence)
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
    lines = linecache.getlines(where.file)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    around = [
        n for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef) and n.lineno <= where.line <= (n.end_lineno or 0)
    ]  # fmt: skip
    if not around:
        return None
    node = max(around, key=lambda n: n.lineno)
    return "".join(lines[node.lineno - 1 : node.end_lineno]), node.lineno


def _example(finding: Finding, evidence: Evidence) -> Iterator[Fix]:
    """Where no source is at hand, the two cells of the rule's page, with the names of the user's function."""
    cells = re.findall(r"```python\n(.*?)```", page(finding.code), re.DOTALL)
    if len(cells) < 2:
        return
    functions = [n for n in ast.parse(cells[0]).body if isinstance(n, ast.FunctionDef)]
    if not functions:
        return
    new = {functions[-1].name: evidence.function.name.rpartition(".")[2]}
    parameters = [a.arg for a in functions[-1].args.args]
    roots = dict.fromkeys(re.split(r"[.\[]", c, maxsplit=1)[0] for c in finding.culprits)
    new |= dict(zip(parameters, (r for r in roots if r.isidentifier()), strict=False))
    before, after = (_renamed(cell, new) for cell in cells[:2])
    yield Fix(
        title=f"as in the example of {finding.code}, here with the names of `{evidence.function.name}`",
        applicability="display",
        evidence="the source of the function is not at hand",
        diff=diff(before, after),
    )


def _renamed(cell: str, new: Mapping[str, str]) -> str:
    """The cell with these names in place of its own; a name that stands for something else in it stays."""
    taken = {n.id for n in ast.walk(ast.parse(cell)) if isinstance(n, ast.Name)} - set(new)
    names = {old: name for old, name in new.items() if name not in taken and not keyword.iskeyword(name)}
    words = "|".join(map(re.escape, names))
    return re.sub(rf"(?<![.\w])(?:{words})\b", lambda m: names[m.group()], cell) if words else cell
