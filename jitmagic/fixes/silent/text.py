"""A cell as text and syntax tree, and changes of stretches of it that leave everything else alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from jitmagic.report import Finding

T = TypeVar("T")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Text:
    """Source with the changes made so far; `node`s belong to the tree of the original source."""

    source: str
    changes: list[tuple[int, int, str]] = field(default_factory=list)

    @cached_property
    def tree(self) -> ast.Module:
        """Raises SyntaxError where the source is no plain Python (magics, say)."""
        return ast.parse(self.source)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Parent of each node."""
        return {c: p for p in ast.walk(self.tree) for c in ast.iter_child_nodes(p)}

    @cached_property
    def starts(self) -> list[int]:
        """Where each line begins, and where the last one ends."""
        starts = [0]
        for line in self.source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def _at(self, line: int, column: int) -> int:
        text = self.source.splitlines(keepends=True)[line - 1] if line <= self.source.count("\n") + 1 else ""
        return self.starts[line - 1] + len(text.encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """First and last character of a node."""
        start = self._at(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return start, self._at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def code(self, node: ast.AST) -> str:
        """Source of a node as written."""
        start, end = self.span(node)
        return self.source[start:end]

    def replace(self, node: ast.AST, new: str) -> Text:
        """Put source in the place of a node."""
        self.changes.append((*self.span(node), new))
        return self

    def before(self, statement: ast.stmt, lines: Sequence[str]) -> Text:
        """Put statements above one, at its indentation."""
        start = self.starts[statement.lineno - 1]
        indent = " " * statement.col_offset
        self.changes.append((start, start, "".join(f"{indent}{line}\n" for line in lines)))
        return self

    def after(self, statement: ast.stmt, lines: Sequence[str]) -> Text:
        """Put lines, indented already, below a statement."""
        end = self.starts[min(statement.end_lineno or 0, len(self.starts) - 1)]
        gap = "" if self.source[:end].endswith("\n") else "\n"
        self.changes.append((end, end, gap + "".join(f"{line}\n" for line in lines)))
        return self

    def remove(self, statement: ast.stmt) -> Text:
        """Take out a statement with its lines; `pass` stays where a block would be empty."""
        parent = self.parents[statement]
        block = getattr(parent, "body", [])
        if block == [statement]:
            return self.replace(statement, "pass")
        end = self.starts[min(statement.end_lineno or 0, len(self.starts) - 1)]
        self.changes.append((self.starts[statement.lineno - 1], end, ""))
        return self

    def result(self) -> str:
        """The source with all changes. Raises SyntaxError where that is no Python."""
        text = self.source
        last = len(text) + 1
        for start, end, new in sorted(self.changes, key=lambda c: (c[0], c[1]), reverse=True):
            if end <= last:
                text = text[:start] + new + text[end:]
                last = start
        ast.parse(text)
        return text

    def body_start(self, function: FunctionNode, *, docstring: bool = True) -> int:
        """The first character of the line behind the head of a function (and its docstring); comments are body."""
        parts = [n.end_lineno for n in ast.walk(function.args) if hasattr(n, "end_lineno")]
        line = max([function.lineno, *parts, function.returns.end_lineno if function.returns else 0])
        lines = self.source.splitlines()
        while line < function.body[0].lineno and not lines[line - 1].partition("#")[0].rstrip().endswith(":"):
            line += 1
        if line >= function.body[0].lineno:
            raise ValueError("the function stands in one line")
        first = function.body[0]
        return self.starts[line if docstring else first.end_lineno or line]

    # -- finding things

    def function(self, name: str) -> FunctionNode | None:
        """The definition of `f` or `Class.method`."""
        body: Sequence[ast.stmt] = self.tree.body
        *classes, last = name.split(".")
        for part in classes:
            found = [n for n in body if isinstance(n, ast.ClassDef | FunctionNode) and n.name == part]
            body = found[-1].body if found else []
        own = [n for n in body if isinstance(n, FunctionNode) and n.name == last]
        return own[-1] if own else None

    def line_of(self, finding: Finding) -> int:
        """Line of a finding in this source, which has no magic line; 0 where it is not there."""
        span = finding.span
        lines = self.source.splitlines()
        for offset in (1, 0):
            line = span.line - offset if span is not None and span.cell is None else 0
            if 1 <= line <= len(lines) and span is not None and lines[line - 1].strip() == span.source:
                return line
        return 0

    def on_line(self, line: int) -> Iterator[ast.AST]:
        """Nodes that begin on a line, outer ones first."""
        return (n for n in ast.walk(self.tree) if getattr(n, "lineno", None) == line)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds a node."""
        current: ast.AST = node
        while not isinstance(current, ast.stmt):
            current = self.parents[current]
        return current

    def around(self, node: ast.AST, *kinds: type) -> ast.AST | None:
        """The innermost node of these types around `node`, or None."""
        current = self.parents.get(node)
        while current is not None and not isinstance(current, kinds):
            current = self.parents.get(current)
        return current

    @cached_property
    def names(self) -> set[str]:
        """Every name that the source mentions."""
        found = {n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name)}
        found |= {n.arg for n in ast.walk(self.tree) if isinstance(n, ast.arg)}
        return found | {n.name for n in ast.walk(self.tree) if isinstance(n, FunctionNode | ast.ClassDef)}

    def fresh(self, *wanted: str) -> str:
        """The first of these names that is free, else the last with a number."""
        for name in wanted:
            if name not in self.names:
                return name
        number = 1
        while f"{wanted[-1]}{number}" in self.names:
            number += 1
        return f"{wanted[-1]}{number}"


def add_parameter(text: Text, function: FunctionNode, name: str) -> bool:
    """Add a parameter; True where calls have to pass it by keyword."""
    a = function.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs]
    keyword = bool(a.defaults or a.vararg or a.kwonlyargs or a.kwarg)
    head = text.source.index("(", text.span(function)[0] + len("def "))
    if not every and not a.vararg and not a.kwarg:
        text.changes.append((head + 1, head + 1, name))
        return False
    if a.kwarg is not None:
        start = text.source.rindex("**", 0, text.span(a.kwarg)[0])
        star = "" if a.vararg or a.kwonlyargs else "*, "
        text.changes.append((start, start, f"{star}{name}, "))
        return True
    last = max(
        [
            text.span(n)[1]
            for n in (
                *every,
                *a.defaults,
                *(d for d in a.kw_defaults if d),
                *([a.vararg] if a.vararg else []),
            )
        ]
    )
    star = "*, " if keyword and not (a.vararg or a.kwonlyargs) else ""
    text.changes.append((last, last, f", {star}{name}"))
    return keyword


def add_argument(source: str, function: str, name: str, argument: str, *, keyword: bool = False) -> str:
    """The source of a call with one more argument, for the parameter `name`, in every call of the function."""
    text = Text(source)
    for call in calls_in(text.tree, function):
        pass_to(text, call, name, argument, keyword=keyword)
    return text.result()


def pass_to(text: Text, call: ast.Call, name: str, argument: str, *, keyword: bool = False) -> None:
    """One more argument for a call: the last one, by name where others are given by name too."""
    end = text.span(call)[1] - 1
    given = f"{name}={argument}" if keyword or call.keywords else argument
    inside = text.source[:end].rstrip()
    comma = "" if inside.endswith(("(", ",")) else ", "
    text.changes.append((end, end, f"{comma}{given}"))


def calls_in(tree: ast.AST, function: str) -> list[ast.Call]:
    """Calls of the function (or method, on any object) in a source."""
    last = function.rpartition(".")[2]
    method = "." in function
    return [
        n for n in ast.walk(tree)
        if isinstance(n, ast.Call)
        and (getattr(n.func, "attr", None) == last if method else getattr(n.func, "id", None) == last)
    ]  # fmt: skip


def the(found: Iterable[T]) -> T:
    """The first of these. Raises LookupError where there is none."""
    for item in found:
        return item
    raise LookupError("nothing like that in the cell")
