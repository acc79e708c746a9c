"""From an instruction to the expression that stands there: file text, syntax tree, span and names.

`co_positions` gives the span of every instruction; the syntax tree of the file tells which node it is.
Spans of jumps differ between Python versions (3.11 gives `if x:` the whole statement), so a test is
found as the last operand evaluated before the instruction.
"""

from __future__ import annotations

import ast
import dis
import types
from collections.abc import Iterator
from dataclasses import dataclass

from jitmagic.evidence import Where
from jitmagic.source.tree import ByCode, Source, Span, characters, positions_of, source_of, span_of

_LOOK_BACK = 40


@dataclass(frozen=True)
class Site:
    """The expression at an instruction. `node` is None where there is no source."""

    where: Where
    node: ast.AST | None
    source: Source
    called: bool
    """The instruction is a call (and not, say, the jump that follows it)."""


# --- from an instruction to a node --------------------------------------------------------------------


def site_of(code: types.CodeType, lasti: int) -> Site | None:
    """The expression at byte offset `lasti` of `code`; None where not even a line is known."""
    index = max(lasti, 0) // 2
    positions = positions_of(code)
    if not positions:
        return None
    index = min(index, len(positions) - 1)
    span, line = _full(positions[index]), positions[index][0]
    source = source_of(code.co_filename)
    if span is None:
        return _line_site(code, line, source) if line else None
    node = _node_at(source, span)
    opname = _opname(code, index)
    if node is not None:
        before = [_full(p) for p in positions[max(index - _LOOK_BACK, 0) : index]]
        node = _refine(source, node, before, jump="JUMP" in opname)
        span = span_of(node) or span
    return Site(_where(code, span, source), node, source, opname.startswith("CALL"))


def _opname(code: types.CodeType, index: int) -> str:
    # Used only to tell calls and jumps from the rest: these two words are in the names of every version.
    try:
        return dis.opname[(_instructions.get(code) or _instructions.put(code, code.co_code))[index * 2]]
    except IndexError:
        return ""


_instructions: ByCode[bytes] = ByCode()
"""`co_code`, which Python makes anew each time it is asked for."""


def _full(position: tuple[int | None, ...]) -> Span | None:
    return None if None in position else position  # type: ignore[return-value]


def _line_site(code: types.CodeType, line: int, source: Source) -> Site:
    text = source.lines[line - 1] if line <= len(source.lines) else ""
    start = len(text) - len(text.lstrip())
    where = Where(code.co_filename, line, start, line, len(text.rstrip()), text.strip(), "", code.co_qualname)
    return Site(where, None, source, False)


def _node_at(source: Source, span: Span) -> ast.AST | None:
    nodes = source.at(span)
    if nodes:
        # A statement and its only expression share a span: the expression is meant.
        return next((n for n in nodes if isinstance(n, ast.expr)), nodes[0])
    return source.around(span)


_TESTED = (ast.If, ast.While, ast.Assert, ast.IfExp)


def _refine(source: Source, node: ast.AST, before: list[Span | None], *, jump: bool) -> ast.AST:
    """The operand that was tested where `node` is a test or holds one, else the node's own expression."""
    test = _whole_test(source, node)
    if test is not None:
        operands = list(_operands(test))
        if not jump and node in operands:
            return node
        found = _last_evaluated(operands, before)
        return found or (operands[0] if len(operands) == 1 else node if jump and node in operands else test)
    return _own_expression(source, node)


def _whole_test(source: Source, node: ast.AST) -> ast.expr | None:
    """The outermost test that `node` is, is part of, or (a statement) asks."""
    if isinstance(node, _TESTED):
        # An `x if c else y` is itself an operand when it stands in a test.
        outer = _enclosing_test(source, node) if isinstance(node, ast.IfExp) else None
        return outer or node.test
    case = _case_of(source, node)
    if case is not None:
        return case.guard
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        tests = [t for g in node.generators for t in g.ifs]
        return tests[0] if len(tests) == 1 else None
    if isinstance(node, ast.expr):
        outer = _enclosing_test(source, node)
        if outer is not None:
            return outer
        if isinstance(node, ast.BoolOp) or _is_not(node):
            return node
    return None


def _case_of(source: Source, node: ast.AST) -> ast.match_case | None:
    above: ast.AST | None = node
    while isinstance(above, ast.pattern):
        above = source.parent(above)
    return above if isinstance(above, ast.match_case) and above.guard is not None else None


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _enclosing_test(source: Source, node: ast.AST) -> ast.expr | None:
    """Climb from an operand through `not`, `and`, `or` and conditional expressions to the whole test."""
    child = node
    parent = source.parent(child)
    top: ast.expr | None = None
    while parent is not None:
        if isinstance(parent, ast.BoolOp) or _is_not(parent):
            top = parent  # type: ignore[assignment]
        elif isinstance(parent, ast.IfExp) and child is not parent.test:
            pass
        elif isinstance(parent, ast.NamedExpr) and child is parent.value:
            pass
        elif isinstance(parent, _TESTED) and child is parent.test:
            top = child  # type: ignore[assignment]
            if not isinstance(parent, ast.IfExp):
                return top
            break
        elif isinstance(parent, ast.comprehension) and child in parent.ifs:
            return child  # type: ignore[return-value]
        elif isinstance(parent, ast.match_case) and child is parent.guard:
            return child  # type: ignore[return-value]
        else:
            break
        child, parent = parent, source.parent(parent)
    return top


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    """The expressions whose truth a test may ask for, in order of evaluation."""
    if _is_not(test):
        yield from _operands(test.operand)  # type: ignore[attr-defined]
    elif isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _operands(value)
    elif isinstance(test, ast.IfExp):
        yield from _operands(test.test)
        yield from _operands(test.body)
        yield from _operands(test.orelse)
    else:
        yield test


def _last_evaluated(operands: list[ast.expr], before: list[Span | None]) -> ast.expr | None:
    places = {span_of(operand): operand for operand in operands}
    for span in reversed(before):
        if span in places:
            return places[span]
    return None


def _own_expression(source: Source, node: ast.AST) -> ast.AST:
    """For a statement the expression that it is about; formatted values stand for their f-string."""
    if isinstance(node, ast.expr):
        parent = source.parent(node)
        while isinstance(parent, (ast.FormattedValue, ast.JoinedStr)) and not isinstance(node, ast.Call):
            # 3.12 gives the single field, 3.11 the whole string: the string is the same on both.
            node, parent = parent, source.parent(parent)
        return node
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)) and node.value is not None:
        return node.value
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
        return node.target
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return node.iter
    if isinstance(node, ast.Match):
        return node.subject
    return node


# --- text ---------------------------------------------------------------------------------------------


def _where(code: types.CodeType, span: Span, source: Source) -> Where:
    return where_at(code.co_filename, span, source, code.co_qualname)


def where_at(filename: str, span: Span, source: Source, function: str) -> Where:
    """The place of a span: columns turned from bytes to characters, with its text."""
    first, last, start, end = span
    lines = source.lines
    if not first <= last <= len(lines):
        return Where(filename, first, start, last, end, "", "", function)
    head, tail = lines[first - 1], lines[last - 1]
    column, end_column = characters(head, start), characters(tail, end)
    whole = [line.rstrip("\n") for line in lines[first - 1 : last]]
    whole[-1] = whole[-1][:end_column]
    whole[0] = whole[0][column:]
    text = "\n".join(whole)
    return Where(filename, first, column, last, end_column, head.strip(), text, function)
