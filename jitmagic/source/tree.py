"""The syntax of files and cells: parsed once, searched by place, indexed only where somebody looks."""

from __future__ import annotations

import ast
import bisect
import contextlib
import functools
import gc
import linecache
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from jitmagic.patches import unwarned

Span = tuple[int, int, int, int]
"""First line, last line, first column, column after the end; columns in bytes of UTF-8."""

Position = tuple[int | None, int | None, int | None, int | None]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
T = TypeVar("T")
N = TypeVar("N", bound=ast.AST)

_KEPT_FILES = 64
_NO_NODES = frozenset(("ctx", "op", "ops", "id", "attr"))


class ByCode(Generic[T]):
    """What is known of code objects, by identity: the hash of one reads all of its instructions."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[types.CodeType], T]] = {}

    def get(self, code: types.CodeType) -> T | None:
        """What is known of this very object."""
        found = self._known.get(id(code))
        return found[1] if found is not None and found[0]() is code else None

    def put(self, code: types.CodeType, value: T) -> T:
        """Remember `value` as long as the code object lives."""
        gone = functools.partial(self._known.pop, id(code))  # not in Python: an interrupt would be lost there
        self._known[id(code)] = (weakref.ref(code, gone), value)
        return value


@functools.cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a kind of node that may hold nodes."""
    return () if kind is ast.Constant else tuple(f for f in kind._fields if f not in _NO_NODES)


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly below one, without contexts and operators (`Load`, `Add`), of which
    a file has one each; three times as fast as `ast`'s own."""
    found: list[ast.AST] = []
    for name in _fields(type(node)):  # type: ignore[arg-type]
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif type(value) is list:
            found += [part for part in value if isinstance(part, ast.AST)]
    return found


def walk(*roots: ast.AST) -> list[ast.AST]:
    """Nodes and all that is below them, breadth first, without contexts and operators."""
    found = list(roots)
    for node in found:
        kind = type(node)
        if kind is ast.Name or kind is ast.Constant:  # half of all nodes
            continue
        # as `children` does: a call for each node would take as long again
        for name in _fields(kind):  # type: ignore[arg-type]
            value = getattr(node, name, None)
            if type(value) is list:
                found += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


_below: weakref.WeakKeyDictionary[ast.AST, list[ast.AST]] = weakref.WeakKeyDictionary()


def nodes_of(root: ast.AST) -> list[ast.AST]:
    """`walk` of a tree that nobody changes, remembered as long as it lives: many ask about the same function."""
    found = _below.get(root)
    if found is None:
        found = _below[root] = walk(root)[1:]
    return [root, *found]


def copied(node: N) -> N:
    """A copy of a tree, without what libraries hang on its nodes: IPython's tracebacks give each its parent, and
    Python's `ast.Load()` is the same one in every tree."""

    def part(value: Any) -> Any:
        if isinstance(value, list):
            return [part(v) for v in value]
        return copied(value) if isinstance(value, ast.AST) else value

    new = type(node)(**{name: part(getattr(node, name)) for name in node._fields if hasattr(node, name)})
    return ast.copy_location(new, node)


def in_order(node: ast.AST, *, own: bool = False) -> Iterator[ast.AST]:
    """A node and what it holds in the order of the source; `own`: not what functions and classes in it hold."""
    todo = [node]
    while todo:
        current = todo.pop()
        yield current
        if not own or current is node or not isinstance(current, SCOPES):
            todo += children(current)[::-1]


def statements(root: ast.AST) -> list[Any]:
    """A module or statement and the statements below it, breadth first: no expression is looked into."""
    found: list[Any] = [root]
    for node in found:
        found += [inner for _, block in bodies(node) for inner in block]
    return found


def span_of(node: ast.AST) -> Span | None:
    """The node's span, or None for nodes without a place."""
    line = getattr(node, "lineno", None)
    end = getattr(node, "end_lineno", None)
    if line is None or end is None:
        return None
    return (line, end, node.col_offset, node.end_col_offset)  # type: ignore[attr-defined]


def first_line(node: Any) -> int:
    """The line where a statement or function begins, decorators included."""
    decorators = getattr(node, "decorator_list", None)
    return min(node.lineno, decorators[0].lineno) if decorators else int(node.lineno)


class Source:
    """One file's lines and tree.

    What stands around a place is indexed when somebody asks: of ten thousand lines, a diagnosis looks at few."""

    def __init__(self, lines: list[str], tree: ast.Module | None) -> None:
        self.lines, self.tree = lines, tree
        self._parents: dict[ast.AST, ast.AST] = {}
        self._spans: dict[Span, list[ast.AST]] = {}
        self._own: dict[ast.AST, list[ast.AST]] = {}
        self._around: dict[Span, ast.AST | None] = {}

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that holds this one; None for the module."""
        if node not in self._parents and hasattr(node, "lineno"):
            self.statements(node.lineno, node.end_lineno)  # type: ignore[attr-defined]
        return self._parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What holds a node, from the inside out."""
        above = self.parent(node)
        while above is not None:
            yield above
            above = self.parent(above)

    def bound_to(self, node: ast.AST) -> list[str]:
        """Names that the assignment around an expression binds."""
        around = next((n for n in (node, *self.ancestors(node)) if isinstance(n, ast.stmt)), None)
        targets = around.targets if isinstance(around, ast.Assign) else []
        return [n.id for t in targets for n in walk(t) if isinstance(n, ast.Name)]

    def at(self, span: Span) -> list[ast.AST]:
        """The nodes of exactly that span, outermost first."""
        self.statements(span[0], span[1])
        return self._spans.get(span, [])

    def around(self, span: Span) -> ast.AST | None:
        """The smallest node that holds a span."""
        if span not in self._around:
            self.statements(span[0], span[1])
            inside = [(s, n) for s, ns in self._spans.items() if _contains(s, span) for n in ns[-1:]]
            self._around[span] = min(inside, key=lambda item: _size(item[0]), default=(None, None))[1]
        return self._around[span]

    def statements(self, first: int, last: int | None = None) -> list[ast.stmt]:
        """The statements that hold these lines, outermost first; several of one line stand side by side."""
        found: list[ast.stmt] = []
        last = first if last is None else last
        todo: list[tuple[ast.AST, list[ast.stmt]]] = [(self.tree, self.tree.body)] if self.tree else []
        for owner, body in todo:
            for statement in _holding(body, first, last):
                if statement not in self._own:
                    self._open(statement, owner)
                found.append(statement)
                todo += bodies(statement)
        return found

    def own(self, statement: ast.stmt) -> list[ast.AST]:
        """A statement and the nodes below it that are no statements, nor below one: of a loop, its head."""
        if statement not in self._own:
            self.statements(first_line(statement), statement.end_lineno)
        return self._own[statement]

    def functions(self, line: int) -> list[Function]:
        """Functions and lambdas that hold the line, outermost first."""
        nodes = (n for s in self.statements(line) for n in self.own(s))
        return [n for n in nodes if isinstance(n, Function) and first_line(n) <= line <= (n.end_lineno or 0)]

    def function(self, code: types.CodeType) -> Function | None:
        """The definition or lambda that a code object was compiled from."""
        line, wanted = code.co_firstlineno, (code.co_name, _code_parameters(code))
        here = (n for n in self.functions(line) if first_line(n) == line)
        nodes = [n for n in here if (getattr(n, "name", "<lambda>"), parameters_of(n)) == wanted]
        if len(nodes) < 2:
            return nodes[0] if nodes else None
        spans = [p for p in positions_of(code) if None not in p and p[2] != p[3]]
        inside = [n for n in nodes if all(_covers(n, p) for p in spans)]
        return min(inside or nodes, key=lambda n: (n.end_lineno, n.end_col_offset))  # type: ignore[arg-type,return-value]

    def _open(self, statement: ast.stmt, owner: ast.AST) -> None:
        own: list[ast.AST] = [statement]
        parents, spans = self._parents, self._spans
        parents[statement] = owner
        for node in own:
            span = span_of(node)
            if span is not None:
                spans.setdefault(span, []).append(node)
            for child in children(node):
                if not isinstance(child, ast.stmt):
                    parents[child] = node
                    own.append(child)
        self._own[statement] = own


def bodies(statement: ast.AST) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    """The blocks of a compound statement, each with the node that holds it (an `except` its own)."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if type(block) is list and block:
            yield statement, block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part, part.body


def _holding(body: list[ast.stmt], first: int, last: int) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for index in range(bisect.bisect_right(body, first, key=first_line) - 1, -1, -1):
        end = body[index].end_lineno or body[index].lineno
        if end < first:
            break
        if end >= last:
            found.insert(0, body[index])
    return found


def _contains(outer: Span, inner: Span) -> bool:
    return (outer[0], outer[2]) <= (inner[0], inner[2]) and (inner[1], inner[3]) <= (outer[1], outer[3])


def _size(span: Span) -> tuple[int, int]:
    return span[1] - span[0], span[3] - span[2]


def _covers(node: Function, position: Any) -> bool:
    start = (node.lineno, node.col_offset)
    end = (node.end_lineno, node.end_col_offset)
    return start <= (position[0], position[2]) and (position[1], position[3]) <= end  # type: ignore[operator]


def parameters_of(node: Function) -> list[str]:
    """Names of a function's parameters: positional, by keyword alone, `*args`, `**kwargs`."""
    a = node.args
    names = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    return [n.arg for n in names]


def _code_parameters(code: types.CodeType) -> list[str]:
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return list(code.co_varnames[:count])


UPDATES = frozenset("set add subtract multiply divide power min max apply".split())


def characters(line: str, column: int) -> int:
    """The column in characters of one that Python counts in bytes."""
    return column if line.isascii() else len(line.encode()[:column].decode(errors="ignore"))


def updated_array(node: ast.AST) -> str:
    """The array of `array.at[index].set(...)`, or nothing for other expressions."""
    match node:
        case ast.Call(ast.Attribute(ast.Subscript(ast.Attribute(array, "at")), method)) if method in UPDATES:
            return ast.unparse(array)
    return ""


# --- texts and files ----------------------------------------------------------------------------------

_sources: OrderedDict[str, tuple[list[str], str, Source]] = OrderedDict()


def source_of(filename: str) -> Source:
    """Lines and tree of a file or cell, from linecache; cached until the text changes."""
    lines = linecache.getlines(filename)
    cached = _sources.get(filename)
    if cached is not None and cached[0] is lines:  # linecache hands out the same list until the file changes
        return cached[2]
    text = "".join(lines)
    if cached is None or cached[1] != text:
        cached = (lines, text, Source(lines, tolerant_tree(text)))
    _sources[filename] = (lines, *cached[1:])
    while len(_sources) > _KEPT_FILES:
        _sources.popitem(last=False)
    return cached[2]


@functools.lru_cache(maxsize=64)
def parsed(text: str) -> ast.Module:
    """The tree of a text, not to be changed. Raises what `ast.parse` raises."""
    with uncollected(), unwarned(SyntaxWarning):  # Python has told, or will tell, the user
        return ast.parse(text)


USUAL_DEPTH = 60
"""Nested expressions up to here are read within Python's usual limit of recursion."""


def frames_for(tree: ast.AST) -> int:
    """How many frames more than usual it takes to read a tree by recursion: a sum of 500 terms is 500 deep."""
    level, depth = [tree], 0
    while level:
        level, depth = [child for node in level for child in children(node)], depth + 1
    return 20 * depth if depth > USUAL_DEPTH else 0


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """While many small objects are made that all stay, garbage is not looked for: each time it would be, Python
    reads through all of the modules loaded."""
    _pauses.append(looks_for_garbage())
    try:
        gc.disable()
        yield
    finally:
        if _pauses and _pauses.pop() and not _pauses:
            gc.enable()


_pauses: list[bool] = []
"""For each pause under way, in whatever thread, whether garbage was looked for before the first."""


def looks_for_garbage() -> bool:
    """Whether Python does, but for pauses of ours."""
    return _pauses[0] if _pauses else gc.isenabled()


def end_pauses() -> None:
    """At the border of a cell: no pause is under way, whatever an interrupt has cut short."""
    if _pauses:
        was_on = _pauses[0]
        _pauses.clear()
        if was_on:
            gc.enable()


def tolerant_tree(text: str) -> ast.Module | None:
    """The tree of a cell that may hold magics: a line that is no Python is read as `pass`."""
    lines = text.split("\n")
    for _ in range(len(lines) + 1):
        try:
            return parsed("\n".join(lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            bad = getattr(error, "lineno", None)
            if bad is None or not 1 <= bad <= len(lines) or lines[bad - 1].strip() == "pass":
                return None
            line = lines[bad - 1]
            lines[bad - 1] = line[: len(line) - len(line.lstrip())] + "pass"
    return None


# --- instructions -------------------------------------------------------------------------------------

_positions: ByCode[list[Position]] = ByCode()


def positions_of(code: types.CodeType) -> list[Position]:
    """Span of every instruction of a code object: (first line, last line, column, end column)."""
    found = _positions.get(code)
    if found is None:
        with uncollected():
            found = _positions.put(code, list(code.co_positions()))
    return found


def line_of(code: types.CodeType, lasti: int) -> int:
    """Line of the instruction at byte offset `lasti`; that of the definition where it has none."""
    positions = positions_of(code)
    index = max(lasti, 0) // 2
    return (positions[index][0] if index < len(positions) else None) or code.co_firstlineno
