"""Calls that stand in the function's own cell: the cell taken apart into definitions and program, and put together.

The definitions keep their lines: where a statement of the program stood, there is a mark. Each statement carries the
number of its mark, so that a correction may rewrite it as if it stood in a cell of its own.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence
from jitmagic.fixes.rewrite.cells import masked, unmasked
from jitmagic.fixes.silent.text import calls_in
from jitmagic.report import Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

_PLACE, _REST = "#:program:", "#:program"
_MARK = re.compile(r"[ \t]*#:(\d+)$")
_TO_DEFINE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Parts:
    """A cell taken apart. `sources` are its statements, then the calls of its magic line and of later cells."""

    cell: str
    definitions: str
    sources: tuple[str, ...]
    inside: int
    """How many of the sources stand in the cell."""
    function: str
    callers: frozenset[str]
    """Functions and classes of the cell that call the function."""

    @property
    def names(self) -> frozenset[str]:
        """What a call has to name to reach the function."""
        return self.callers | {self.function.rpartition(".")[2]}

    def joined(self, definitions: str, sources: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """The cell with corrected definitions and statements, and what belongs outside of it.

        A source without a number belongs in front of the next one that has one. Raises LookupError where a
        statement has lost its place.
        """
        placed, rest = _sorted(sources)
        known = dict(enumerate(map(unmarked, self.sources)))
        cell = _filled(definitions, {k: placed.get(k, known[k]) for k in range(self.inside)})
        return cell, tuple([s for k, s in sorted(placed.items()) if k >= self.inside] + rest)

    def program(self, definitions: str, sources: Sequence[str]) -> str:
        """What runs to try them: definitions and sources in order; other statements where they do not call."""
        placed, rest = _sorted(sources)
        known = {k: s for k, s in enumerate(map(unmarked, self.sources)) if not self._calls(s)}
        texts = {**known, **placed}
        cell = _filled(definitions, {k: texts.get(k, "") for k in range(self.inside)})
        later = [texts[k] for k in range(self.inside, len(self.sources)) if k in texts]
        return "\n".join([cell, *later, *rest]) + "\n"

    def _calls(self, source: str) -> bool:
        return bool(calls_in(ast.parse(source), self.function))


def view(evidence: Evidence, prover: Prover) -> tuple[Evidence, Prover] | None:
    """The function as if its calls stood in cells of their own; None where the cell holds no calls of it."""
    checker = prover.checker
    told = getattr(checker, "history", None)
    later = told() if callable(told) else ()
    parts = taken_apart(evidence.function.cell, checker.name, checker.cell.calls, later)
    if parts is None:
        return None
    subject = copy.copy(checker)
    subject.cell = replace(checker.cell, body=parts.definitions)
    subject.history = lambda: list(parts.sources)
    inner = copy.copy(prover)
    inner.__dict__.pop("trial", None)
    inner.checker, inner.parts = subject, parts
    inner.samples = [replace(s, source="") for s in prover.samples]
    function = replace(evidence.function, cell=parts.definitions)
    return replace(evidence, function=function), inner


def folded(fix: Fix, parts: Parts) -> Fix | None:
    """The fix with its calls in the cell; None where they cannot be put there."""
    from jitmagic.fixes.rewrites import diff

    try:
        cell, calls = parts.joined(fix.cell or parts.definitions, fix.calls or ())
    except LookupError:
        return None
    if cell == parts.cell:
        return replace(fix, cell=None, diff=None, calls=calls or None)
    return replace(fix, cell=cell, diff=diff(parts.cell, cell), calls=calls or None)


# --- taking apart


def taken_apart(
    cell: str, function: str, line: Sequence[str] = (), later: Sequence[str] = ()
) -> Parts | None:
    """The cell's parts, where statements of it or calls of its magic `line` lead to the function."""
    plain = masked(cell)
    try:
        tree = ast.parse(plain)
    except SyntaxError:
        return None
    callers = callers_of(tree, function)
    if plain != cell and _in_a_magic(cell, plain, {function.rpartition(".")[2], *callers}):
        return None
    stretches = list(_stretches(tree, function, callers))
    lines = plain.splitlines()
    sources: list[str] = []
    for number, (first, last) in enumerate(stretches):
        sources.append(marked("\n".join(lines[first - 1 : last]), number))
        lines[first - 1 : last] = [f"{_PLACE}{number}", *[_REST] * (last - first)]
    inside = len(sources)
    if not any(calls_in(ast.parse(s), n) for s in (*sources, *line) for n in (function, *callers)):
        return None
    sources += [marked(s.strip("\n"), inside + i) for i, s in enumerate((*line, *_parsable(later)))]
    tail = "\n" if cell.endswith("\n") else ""
    return Parts(cell, "\n".join(lines) + tail, tuple(sources), inside, function, frozenset(callers))


def _in_a_magic(cell: str, plain: str, names: Collection[str]) -> bool:
    """A magic line, which is not rewritten, calls the function too."""
    lines = (a for a, b in zip(cell.splitlines(), plain.splitlines(), strict=True) if a != b)
    return any(re.search(rf"\b{re.escape(n)}\b", line) for line in lines for n in names)


def _parsable(sources: Sequence[str]) -> Iterator[str]:
    for source in sources:
        try:
            ast.parse(source)
        except SyntaxError:
            continue
        yield source


def callers_of(tree: ast.Module, function: str) -> set[str]:
    """Functions and classes at the top level that call the function, or one that does."""
    head = function.partition(".")[0]
    found: set[str] = set()
    while True:
        new = {
            s.name for s in tree.body
            if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            and s.name != head and s.name not in found
            and any(calls_in(s, n) for n in (function, *found))
        }  # fmt: skip
        if not new:
            return found
        found |= new


def _stretches(tree: ast.Module, function: str, callers: Collection[str]) -> Iterator[tuple[int, int]]:
    """First and last line of each statement of the program; statements that share a line are one."""
    last: tuple[int, int] | None = None
    for node in tree.body:
        if not _is_program(node, function, callers):
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        end = node.end_lineno or node.lineno
        if last is not None and first <= last[1]:
            last = (last[0], end)
            continue
        if last is not None:
            yield last
        last = (first, end)
    if last is not None:
        yield last


def _is_program(node: ast.stmt, function: str, callers: Collection[str]) -> bool:
    if isinstance(node, _TO_DEFINE):
        return getattr(node, "name", "") in callers
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        return function not in {t.id for t in node.targets if isinstance(t, ast.Name)}
    return True


# --- marks


def marked(source: str, number: int) -> str:
    """The source with its number behind it."""
    return f"{source}  #:{number}"


def unmarked(source: str) -> str:
    """The source without its number."""
    return _MARK.sub("", source)


def number_of(source: str) -> int:
    """Its number. Raises LookupError where it has none."""
    found = _MARK.search(source)
    if found is None:
        raise LookupError("a statement has lost its number")
    return int(found[1])


def _sorted(sources: Sequence[str]) -> tuple[dict[int, str], list[str]]:
    """Sources by number, each with those in front of it that have none; and what is left over."""
    placed: dict[int, str] = {}
    waiting: list[str] = []
    rest: list[str] = []
    for source in sources:
        found = _MARK.search(source)
        if found is None:
            waiting.append(source)
        elif int(found[1]) in placed:
            rest.append(unmarked(source))
        else:
            placed[int(found[1])] = "\n".join([*waiting, unmarked(source)])
            waiting = []
    return placed, rest + waiting


def _filled(definitions: str, texts: dict[int, str]) -> str:
    lines: list[str] = []
    for line in definitions.splitlines():
        if line.startswith(_PLACE):
            lines += [t for t in [texts.pop(int(line.removeprefix(_PLACE)))] if t]
        elif line != _REST:
            lines.append(line)
    if texts:
        raise LookupError("a statement of the cell has lost its place")
    return unmasked("\n".join(lines) + ("\n" if definitions.endswith("\n") else ""))
