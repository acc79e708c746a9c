"""The text of a cell with its tree, and changes of stretches of it that leave everything else as it is.

A tree says where things are, the text is what is changed: comments, blank lines, line breaks and magics stay. Columns
count characters here, those of a tree bytes.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import keyword
import re
import tokenize
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from jitmagic.patches import unwarned
from jitmagic.source.tree import characters, first_line, in_order, nodes_of, parsed

N = TypeVar("N", bound=ast.AST)
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_MAGIC = re.compile(r"^([ \t]*)((?:[\w.,\[\] ]+=[ \t]*)?[%!?].*)$", re.M)
_QUOTED = re.compile(r"^()([;,/]\w.*)$", re.M)
"""Calls without brackets, as IPython takes them: `;f 1`, `,f 1 2`, `/f 1`."""
_MASK = "pass  #:magic:"
_BESIDE = re.compile(r"[ \t]*#.*")
_GAP = r"(?:\s|#[^\n]*\n)*"
_OPENING = re.compile(
    r"(?:[-+*/%@<>=&|^~,(\[{:]\s*|\b(?:return|in|if|else|elif|and|or|not|is|while|assert|yield)\s+)"
    rf"(\({_GAP})$"
)
"""A bracket that is not that of a call."""
_CLOSING = re.compile(rf"{_GAP}\)")


class CannotEdit(ValueError):
    """Changes that meet, or a place where statements cannot stand."""


def masked(source: str) -> str:
    """The cell with its lines of magic as statements that do nothing, where it is no Python otherwise."""
    plain = source
    for lines in (_MAGIC, _QUOTED):
        try:
            parsed(plain)
        except (SyntaxError, ValueError):
            plain = lines.sub(rf"\1{_MASK}\2", plain)
    return plain


def unmasked(source: str) -> str:
    """The lines of magic as they were."""
    return source.replace(_MASK, "")


class Text:
    """A cell, parsed once. `tree` and what asks it raise SyntaxError where the cell is no Python."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.plain = masked(source)

    @functools.cached_property
    def tree(self) -> ast.Module:
        return parsed(self.plain)

    @functools.cached_property
    def lines(self) -> list[str]:
        """Lines with their ends."""
        return self.plain.splitlines(keepends=True)

    @functools.cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """What holds each node."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @functools.cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        return starts

    def offset(self, line: int, column: int) -> int:
        """Position in the text of a line and a column in bytes, as trees count."""
        if line > len(self.lines):
            return len(self.plain)
        return self._starts[line - 1] + characters(self.lines[line - 1], column)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends, decorators included."""
        line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
        if isinstance(node, FunctionNode | ast.ClassDef) and node.decorator_list:
            line = first_line(node)
        return self.offset(line, column), self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def code(self, node: ast.AST) -> str:
        """Source of a node as written; that of a statement stands at the margin, and an `elif` reads `if`."""
        return Edits(self).code(node)

    def at_margin(self, code: str, start: int) -> str:
        """Source that begins at `start`, as it would stand without the indentation of its line."""
        line = self.plain[self.plain.rfind("\n", 0, start) + 1 :]
        return shifted(code, line[: len(line) - len(line.lstrip())], "")

    def block(self, statements: Sequence[ast.stmt]) -> str:
        """Source of statements at the margin, with the comments above and beside them."""
        return Edits(self).block(statements)

    def bracketed(self, node: ast.AST) -> tuple[int, int]:
        """Where an expression begins and ends with the round brackets around it, if there are some."""
        start, end = self.span(node)
        before, after = _OPENING.search(self.plain[:start]), _CLOSING.match(self.plain, end)
        return (before.start(1), after.end()) if before and after else (start, end)

    def comments_in(self, start: int, end: int) -> list[str]:
        """The comments of a stretch."""
        return [c for at, c in self.comments if start <= at < end]

    def line_start(self, node: ast.AST) -> int:
        """Where the line begins on which a node does."""
        return self.plain.rfind("\n", 0, self.span(node)[0]) + 1

    def is_elif(self, node: ast.AST) -> bool:
        """The `if` is written as the `elif` of another."""
        return isinstance(node, ast.If) and self.plain.startswith("elif", self.span(node)[0])

    @functools.cached_property
    def comments(self) -> list[tuple[int, str]]:
        """Each comment, and where it begins."""
        tokens = tokenize.generate_tokens(io.StringIO(self.plain).readline)
        found = [(self._starts[t.start[0] - 1] + t.start[1], t) for t in tokens if t.type == tokenize.COMMENT]
        return [(start, t.string) for start, t in found if not t.string.startswith("#:magic:")]

    def above(self, statement: ast.stmt) -> int:
        """Where the comments right above a statement begin, or its own line."""
        line = first_line(statement)
        while line > 1 and self.lines[line - 2].lstrip().startswith("#"):
            line -= 1
        return self._starts[line - 1]

    # -- where things are

    def at(self, line: int, column: int = -1, end_line: int = 0, end_column: int = 0) -> list[ast.AST]:
        """The nodes that cover a stretch (columns in characters), innermost first; without a column, the line."""
        if not 1 <= line <= len(self.lines):
            return []
        text = self.lines[line - 1]
        if column < 0 or not end_column:
            column, end_line, end_column = len(text) - len(text.lstrip()), line, len(_without_comment(text))
        start = self._starts[line - 1] + column
        end = self._starts[(end_line or line) - 1] + end_column
        best: ast.AST | None = None
        size = len(self.plain) + 2
        for node in nodes_of(self.tree):
            if isinstance(node, ast.expr | ast.stmt):
                first, last = self.span(node)
                if first <= start and end <= last and last - first <= size:
                    best, size = node, last - first
        return [best, *self.ancestors(best)] if best is not None else []

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What holds a node, from the inside out, the module last."""
        current = self.parents.get(node)
        while current is not None:
            yield current
            current = self.parents.get(current)

    def around(self, node: ast.AST, *kinds: type[N]) -> N | None:
        """The innermost node of these types that holds a node."""
        return next((n for n in self.ancestors(node) if isinstance(n, kinds)), None)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds a node, which may be it."""
        found = node if isinstance(node, ast.stmt) else self.around(node, ast.stmt)
        if found is None:
            raise LookupError("no statement holds this")
        return found

    def top(self, node: ast.AST) -> ast.stmt:
        """The statement at the top of the cell that holds a node, which may be it."""
        found = [n for n in (node, *self.ancestors(node)) if isinstance(n, ast.stmt)]
        return found[-1]

    def bound_to(self, node: ast.AST) -> str:
        """`y` of `y = node`, where that is all that the statement does; nothing for what has no name."""
        around = self.parents[node]
        targets = around.targets if isinstance(around, ast.Assign) and around.value is node else []
        return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""

    def function(self, node: ast.AST) -> FunctionNode | None:
        """The innermost function that holds a node."""
        return next((n for n in self.ancestors(node) if isinstance(n, FunctionNode)), None)

    def outermost(self, node: ast.AST) -> FunctionNode | None:
        """The outermost function that holds a node, or is it."""
        return next((n for n in [node, *self.ancestors(node)][::-1] if isinstance(n, FunctionNode)), None)

    def within(self, node: ast.AST, *kinds: type[N]) -> list[N]:
        """Nodes of these types in a node, itself included, in the order of the source."""
        return [n for n in in_order(node) if isinstance(n, kinds)]

    def own(self, node: ast.AST, *kinds: type[N]) -> list[N]:
        """As `within`, but not inside of functions, lambdas and classes that the node holds."""
        return [n for n in in_order(node, own=True) if isinstance(n, kinds)]

    def on_line(self, line: int, *kinds: type[N]) -> list[N]:
        """Nodes of these types that begin on a line, outer ones first."""
        return [n for n in in_order(self.tree) if isinstance(n, kinds) and getattr(n, "lineno", 0) == line]

    def siblings(self, statement: ast.stmt) -> tuple[list[ast.stmt], int]:
        """The block that holds a statement, and its index there."""
        parent = self.parents[statement]
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and statement in block:
                return block, block.index(statement)
        raise LookupError("the statement stands in no block")

    def definition(self, name: str) -> FunctionNode | None:
        """The last definition of `f` or `Class.method`."""
        body: Sequence[ast.stmt] = self.tree.body
        *classes, last = name.split(".")
        for part in classes:
            found = [n for n in body if isinstance(n, ast.ClassDef | FunctionNode) and n.name == part]
            body = found[-1].body if found else []
        own = [n for n in body if isinstance(n, FunctionNode) and n.name == last]
        return own[-1] if own else None

    def calls(self, function: str) -> list[ast.Call]:
        """Calls of `f`, or of a method `Class.method` on any object."""
        last, method = function.rpartition(".")[2], "." in function
        return [
            n for n in in_order(self.tree)
            if isinstance(n, ast.Call)
            and (getattr(n.func, "attr", None) if method else getattr(n.func, "id", None)) == last
        ]  # fmt: skip

    @property
    def functions(self) -> list[FunctionNode]:
        """Every function that the cell defines."""
        return self.within(self.tree, ast.FunctionDef, ast.AsyncFunctionDef)

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Every name in the cell: of variables, parameters, functions, classes."""
        found = {n.id for n in nodes_of(self.tree) if isinstance(n, ast.Name)}
        found |= {n.arg for n in nodes_of(self.tree) if isinstance(n, ast.arg)}
        named = (n.name for n in nodes_of(self.tree) if isinstance(n, FunctionNode | ast.ClassDef))
        return frozenset((*found, *named))

    def fresh(self, *wanted: str, taken: Collection[str] = ()) -> str:
        """The first of these names that is free here, else the last with a number."""
        for name in wanted:
            if name not in self.names and name not in taken and not keyword.iskeyword(name):
                return name
        number = 2
        while f"{wanted[-1]}{number}" in self.names or f"{wanted[-1]}{number}" in taken:
            number += 1
        return f"{wanted[-1]}{number}"


# --- changes ------------------------------------------------------------------------------------------


@dataclass
class Edits:
    """Changes of one text. A change around others takes their place; what `code` gives has those inside it."""

    text: Text
    changes: dict[tuple[int, int], str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.changes)

    def replace(self, node: ast.AST, new: str) -> Edits:
        """Other source for an expression or a simple statement; in brackets where what stands around it would take
        an expression apart."""
        start, end = self.text.span(node)
        if isinstance(node, ast.stmt):
            return self._put(start, end, self._indented(new, start))
        if isinstance(node, ast.expr) and not self._holds_together(node, new):
            new = f"({new})"
        elif "\n" in new and not in_brackets(new) and not isinstance(expression(new), _CLOSED):
            new = f"({new})" if not self._in_brackets(node) else new
        outer, alone = self.text.bracketed(node), ast.Call | ast.Name | ast.Subscript
        if isinstance(expression(new), alone) and not self.text.comments_in(*outer):
            start, end = outer  # it needs no brackets
        return self._put(start, end, new)

    def statements(self, first: ast.stmt, new: str, last: ast.stmt | None = None) -> Edits:
        """Source at the margin in the place of statements that follow each other; a blank line above a `def`."""
        start, end = self.text.span(first)[0], self.text.span(last or first)[1]
        line, lead = self._lead(first)
        if not new.strip():
            return self.remove(first, last)
        new = self._indented(new.strip("\n"), start)
        if new.startswith("def ") and self.text.siblings(first)[1] and self.text.above(first) == line:
            if self.text.plain[:line].rpartition("\n")[0].rpartition("\n")[2].strip():
                return self._put(line, end, f"\n{lead}{new}")
        return self._put(start, end, new)

    def before(self, statement: ast.stmt, new: str) -> Edits:
        """Source at the margin above a statement, below its comments."""
        line, lead = self._lead(statement)
        return self.insert(line, shifted(new.strip("\n") + "\n", "", lead, first=True))

    def after(self, statement: ast.stmt, new: str) -> Edits:
        """Source at the margin below a statement."""
        code = shifted(new.strip("\n") + "\n", "", self._lead(statement)[1], first=True)
        if below := self.text.plain.find("\n", self.text.span(statement)[1]) + 1:
            return self.insert(below, code)
        return self.insert(len(self.text.plain), "\n" + code.rstrip("\n"))

    def remove(self, first: ast.stmt, last: ast.stmt | None = None) -> Edits:
        """Statements taken out with their lines; `pass` where a block would be left empty."""
        block, index = self.text.siblings(first)
        start, end = self.text.span(first)[0], self.text.span(last or first)[1]
        count = block.index(last or first) - index + 1
        if count == len(block):
            return self._put(start, end, "pass")
        line, below = self._lead(first)[0], self.text.plain.find("\n", end) + 1
        return self._put(line, below or len(self.text.plain), "")

    def insert(self, position: int, new: str) -> Edits:
        """Text at a position of the plain text."""
        if any(first < position < last for first, last in self.changes):
            raise CannotEdit("two changes meet")
        self.changes[position, position] = self.changes.get((position, position), "") + new
        return self

    def argument(self, call: ast.Call, new: str) -> Edits:
        """One more argument at the end of a call."""
        return self.last(self.text.plain.index("(", self.text.span(call.func)[1]), new)

    def last(self, opening: int, new: str) -> Edits:
        """One part more before the bracket that closes the one at a position."""
        code, depth, last = self.text.plain[opening:], 0, "("
        lines, end = code.splitlines(keepends=True), 0
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
            if not depth:
                break
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                (row, column), last = token.end, token.string
                end = sum(map(len, lines[: row - 1])) + column
        return self.insert(opening + end, {"(": "", ",": " "}.get(last, ", ") + new)

    def undecorate(self, decorator: ast.expr) -> Edits:
        """A decorator taken off, with its line."""
        below = self.text.plain.find("\n", self.text.span(decorator)[1]) + 1
        return self._put(self.text.line_start(decorator), below, "")

    def add(self, other: Edits) -> Edits:
        """The changes of another set of the same text too. Raises CannotEdit where two of them meet."""
        for (start, end), new in other.changes.items():
            self.insert(start, new) if start == end else self._put(start, end, new, over=False)
        return self

    def fresh(self, *wanted: str, taken: Collection[str] = ()) -> str:
        """As `Text.fresh`, and free in what was written too."""
        written = {name for new in self.changes.values() for name in re.findall(r"\w+", new)}
        return self.text.fresh(*wanted, taken={*taken, *written})

    def code(self, node: ast.AST) -> str:
        """Source of a node, as `Text.code` gives it, with the changes inside it."""
        start, end = self.text.span(node)
        code = self._applied(start, end)[2 * self.text.is_elif(node) :]
        return self.text.at_margin(code, start) if isinstance(node, ast.stmt) else code

    def block(self, statements: Sequence[ast.stmt]) -> str:
        """Source of statements, as `Text.block` gives it, with the changes inside them."""
        text, code, done, margin = self.text, "", 0, ""
        for statement in statements:
            line, (start, end) = text.line_start(statement), text.span(statement)
            prefix = text.plain[line:start]
            if prefix.strip():  # on the line of its header
                code, done = f"{code}{self.code(statement)}\n", 0
                continue
            above = text.above(statement)
            if done and prefix == margin and not text.plain[done:above].strip():
                above = done + 1  # with the blank lines between them
            beside = _BESIDE.match(text.plain, end)
            own = self._applied(start, end)[2 * text.is_elif(statement) :] + (beside[0] if beside else "")
            code += shifted(f"{text.plain[above:start]}{own}\n", prefix, "", first=True)
            done, margin = end + len(beside[0] if beside else ""), prefix
        return code

    def result(self) -> str:
        """The whole source. Raises SyntaxError where it is no Python any more."""
        new = self._applied(0, len(self.text.plain))
        with unwarned(SyntaxWarning):
            ast.parse(new)
        return unmasked(new)

    def _applied(self, start: int, end: int) -> str:
        found, at = [], start
        whole = (start, end) == (0, len(self.text.plain))
        for (first, last), new in sorted(self.changes.items()):
            inside = start <= first and last <= end and (first < last or whole or start < first < end)
            if inside:
                found += [self.text.plain[at:first], new]
                at = last
        return "".join([*found, self.text.plain[at:end]])

    def _put(self, start: int, end: int, new: str, *, over: bool = True) -> Edits:
        """A change, in the place of those inside of it."""
        for first, last in list(self.changes):
            if over and start <= first and last <= end and (first < last or start < first < end):
                del self.changes[first, last]
            elif first < end and start < last:
                raise CannotEdit("two changes meet")
        self.changes[start, end] = new
        return self

    def _indented(self, new: str, start: int) -> str:
        line = self.text.plain.rfind("\n", 0, start) + 1
        lead = self.text.plain[line:start]
        return shifted(new, "", lead if not lead.strip() else "")

    def _lead(self, statement: ast.stmt) -> tuple[int, str]:
        """Where the line of a statement begins, and what indents it. Raises CannotEdit where others share the line."""
        line = self.text.line_start(statement)
        lead = self.text.plain[line : self.text.span(statement)[0]]
        if lead.strip():
            raise CannotEdit("the statement shares its line")
        return line, lead

    def _holds_together(self, node: ast.expr, new: str) -> bool:
        """The source means the new expression at the place of the node, not one that takes in its neighbours."""
        whole: ast.AST = node
        for around in self.text.ancestors(node):
            if isinstance(around, ast.stmt):
                break
            whole = around if hasattr(around, "lineno") else whole
        (start, end), (first, last) = self.text.span(whole), self.text.span(node)
        if whole is node:
            return True
        before, after = self.text.plain[start:first], self.text.plain[last:end]
        named, own = _dumped(f"{before}{_HOLE}{after}"), _dumped(new)
        wanted = named.replace(ast.dump(ast.Name(_HOLE, ast.Load())), own)
        return not named or not own or _dumped(f"{before}{new}{after}") == wanted

    def _in_brackets(self, node: ast.AST) -> bool:
        parent = self.text.parents.get(node)
        holds = isinstance(parent, ast.Call | ast.Subscript | ast.List | ast.Tuple | ast.Dict | ast.Set)
        called = getattr(parent, "func", None) is node
        return holds and not called and parent.end_lineno != parent.lineno  # type: ignore[union-attr]


_CLOSED = (ast.Call, ast.Subscript, ast.List, ast.Dict, ast.Set, ast.Name, ast.Constant)
_HOLE = "__hole__"


def _without_comment(line: str) -> str:
    """A line up to the comment at its end."""
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(line.strip()).readline):
            if token.type == tokenize.COMMENT and token.start[1]:
                return line[: len(line) - len(line.lstrip()) + token.start[1]].rstrip()
    return line.rstrip()


def _dumped(code: str) -> str:
    """The tree of an expression as text; nothing where it is none."""
    tree = expression(code)
    return ast.dump(tree) if tree else ""


def in_brackets(code: str) -> bool:
    """Round brackets stand around the whole expression."""
    text = code.strip()
    if not text.startswith("(") or not text.endswith(")"):
        return False
    try:
        inner = ast.parse(f"f{text}", mode="eval").body
        return isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)
    except SyntaxError:
        return False


@functools.lru_cache(maxsize=512)
def expression(code: str) -> ast.expr | None:
    """The tree of an expression, None where it is none."""
    try:
        return ast.parse(f"({code}\n)", mode="eval").body
    except SyntaxError:
        return None


def shifted(code: str, old: str, new: str, *, first: bool = False) -> str:
    """Lines that begin with `old` begin with `new` instead; the insides of texts and blank lines stay. The first
    line only where asked for."""
    inside = _inside_of_texts(code)
    lines = code.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if (number > 1 or first) and number not in inside and line.strip() and line.startswith(old):
            lines[number - 1] = new + line[len(old) :]
    return "".join(lines)


def _inside_of_texts(code: str) -> set[int]:
    """Numbers of the lines that begin inside of a text of several lines."""
    found: set[int] = set()
    begun: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            name = tokenize.tok_name[token.type]
            if name == "STRING":
                found.update(range(token.start[0] + 1, token.end[0] + 1))
            elif name in ("FSTRING_START", "TSTRING_START"):
                begun.append(token.start[0])
            elif name in ("FSTRING_END", "TSTRING_END"):
                found.update(range(begun.pop() + 1, token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        pass
    return found


def indented(code: str, by: str = "    ") -> str:
    """Source of statements one level deeper."""
    return shifted(code, "", by, first=True)
