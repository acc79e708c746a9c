"""The text of a cell as a LibCST tree: where things are in it, and how to change them and nothing else.

Rewrites are put together as text and parsed again, so every unchanged stretch keeps its formatting. Lines
with IPython magics are comments while the cell is a tree.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import libcst as cst

_MAGIC = re.compile(r"^([ \t]*)([%!?].*)$", re.M)
_MASK = "#:magic:"
_MASKED = re.compile(rf"^([ \t]*){_MASK}(.*)$", re.M)


def masked(text: str) -> str:
    """The cell with its magic lines as comments."""
    return _MAGIC.sub(rf"\1{_MASK}\2", text)


def unmasked(text: str) -> str:
    """The magic lines as they were."""
    return _MASKED.sub(r"\1\2", text)


class Unparsable(ValueError):
    """The cell is no Python that can be rewritten."""


class Cell:
    """A parsed cell. Lines count from 1 in `text`, columns are characters from 0."""

    def __init__(self, text: str) -> None:
        import libcst as cst
        from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider

        self.text = text
        try:
            module = cst.parse_module(masked(text))
        except Exception as exc:  # ParserSyntaxError; very deep cells also raise RecursionError
            raise Unparsable(str(exc)) from exc
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self.module: cst.Module = wrapper.module
        self.positions: Mapping[Any, Any] = wrapper.resolve(PositionProvider)
        self.parents: Mapping[Any, Any] = wrapper.resolve(ParentNodeProvider)

    def code(self, node: cst.CSTNode) -> str:
        """Source of a node; a statement comes unindented and without the comments above it."""
        if hasattr(node, "leading_lines"):
            node = node.with_changes(leading_lines=())
        return self.module.code_for_node(node)

    def block(self, statements: Sequence[cst.BaseStatement]) -> str:
        """Source of consecutive statements with their comments, unindented."""
        return "".join(self.module.code_for_node(s) for s in statements)

    # -- where things are

    def path(self, line: int, column: int, end_line: int, end_column: int) -> list[cst.CSTNode]:
        """The nodes that cover the stretch, innermost first; without a column those that begin on the line."""
        import libcst as cst

        start, end = (line, column), (end_line, end_column)
        best: cst.CSTNode | None = None
        size: tuple[int, int] = (1 << 30, 0)
        for node, p in self.positions.items():
            if not isinstance(node, (cst.BaseExpression, cst.BaseSmallStatement, cst.BaseStatement)):
                continue
            if (p.start.line, p.start.column) <= start and end <= (p.end.line, p.end.column):
                extent = (p.end.line - p.start.line, p.end.column - p.start.column)
                if extent < size:
                    best, size = node, extent
        return list(self.ancestors(best)) if best is not None else []

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The node itself, its parent, and so on up to the module."""
        current: Any = node
        while current is not None:
            yield current
            current = self.parents.get(current)

    def within(self, node: cst.CSTNode, *types: type) -> list[Any]:
        """Nodes of these types inside `node` (itself included), in order of the source."""
        found: list[Any] = []

        def walk(current: cst.CSTNode) -> None:
            if isinstance(current, types):
                found.append(current)
            for child in current.children:
                walk(child)

        walk(node)
        return found

    def own(self, node: cst.CSTNode, *types: type) -> list[Any]:
        """As `within`, but not inside functions, lambdas and classes that `node` contains."""
        import libcst as cst

        found: list[Any] = []

        def walk(current: cst.CSTNode, top: bool) -> None:
            if isinstance(current, types):
                found.append(current)
            if top or not isinstance(current, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
                for child in current.children:
                    walk(child, False)

        walk(node, True)
        return found

    def statement(self, node: cst.CSTNode) -> Any:
        """The innermost statement (a line or a block with its header) that holds `node`."""
        import libcst as cst

        kinds = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
        return next((n for n in self.ancestors(node) if isinstance(n, kinds)), None)

    def function(self, node: cst.CSTNode) -> Any:
        """The innermost `def` around `node` (not `node` itself), or None."""
        import libcst as cst

        return next((n for n in list(self.ancestors(node))[1:] if isinstance(n, cst.FunctionDef)), None)

    def functions(self) -> list[Any]:
        """Every `def` of the cell, in order."""
        import libcst as cst

        return self.within(self.module, cst.FunctionDef)

    def siblings(self, statement: cst.CSTNode) -> tuple[Any, int]:
        """The block that holds the statement, and its index there."""
        import libcst as cst

        parent = self.parents[statement]
        if not isinstance(parent, (cst.IndentedBlock, cst.Module)):
            raise Unparsable("a statement on the line of its header")
        return parent, next(i for i, s in enumerate(parent.body) if s is statement)

    # -- changes

    def edit(self, changes: Mapping[Any, str | None]) -> str:
        """The cell with these nodes replaced by source (None: removed). Outer changes win over inner ones.

        A statement may become several; the comments above it stay above the first.
        """
        import libcst as cst

        by_id = {id(k): (k, v) for k, v in changes.items()}
        blocks = self.within(self.module, cst.IndentedBlock)
        first = {id(b.body[0]) for b in (*blocks, self.module) if b.body}
        new = self.module.visit(_editor_class()(by_id, self.module, first))
        text = unmasked(new.code)
        try:
            Cell(text)
        except Unparsable as exc:
            raise Unparsable(f"the rewritten cell is no Python: {exc}") from exc
        return text


@functools.cache
def _editor_class() -> Any:
    import libcst as cst

    class Editor(cst.CSTTransformer):
        def __init__(
            self, changes: Mapping[int, tuple[Any, str | None]], module: cst.Module, first: Collection[int]
        ) -> None:
            super().__init__()
            self.changes, self.config = changes, module.config_for_parsing
            self.first = first

        def on_leave(self, original_node: Any, updated_node: Any) -> Any:
            updated = super().on_leave(original_node, updated_node)
            if id(original_node) not in self.changes:
                return updated
            text = self.changes[id(original_node)][1]
            if text is None:
                return cst.RemoveFromParent()
            if isinstance(original_node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
                return self._statements(original_node, text)
            if isinstance(original_node, cst.BaseSmallStatement):
                line: Any = cst.parse_statement(text, self.config)
                return line.body[0]
            return cst.parse_expression(text, self.config)

        def _statements(self, old: Any, text: str) -> Any:
            module = cst.parse_module(text.rstrip("\n") + "\n", self.config)
            new = list(module.body)
            if not new:
                return cst.RemoveFromParent()
            for i, statement in enumerate(new):
                blank = [x if x.comment else x.with_changes(indent=False) for x in statement.leading_lines]
                new[i] = statement.with_changes(leading_lines=blank)
            above = [*old.leading_lines, *module.header, *new[0].leading_lines]
            if isinstance(new[0], cst.FunctionDef) and not above and id(old) not in self.first:
                above = [cst.EmptyLine(indent=False)]
            new[0] = new[0].with_changes(leading_lines=above)
            last = new[-1]
            if isinstance(old, cst.SimpleStatementLine) and isinstance(last, cst.SimpleStatementLine):
                if last.trailing_whitespace.comment is None:
                    new[-1] = last.with_changes(trailing_whitespace=old.trailing_whitespace)
            return cst.FlattenSentinel(new)

    return Editor


def indented(text: str, by: str = "    ") -> str:
    """Source of statements one level deeper; blank lines and the insides of strings stay as they are."""
    import tokenize
    from io import StringIO

    keep: set[int] = set()
    try:
        for token in tokenize.generate_tokens(StringIO(text).readline):
            if token.type == tokenize.STRING or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
                keep.update(range(token.start[0] + 1, token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError):
        pass
    lines = text.splitlines(keepends=True)
    return "".join(x if i in keep or not x.strip() else by + x for i, x in enumerate(lines, 1))
