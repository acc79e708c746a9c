"""What a function asks of the world outside (the clock, an iterator, a queue), asked before each call and passed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Claim, Spot, Tag
from jitmagic.source import passing, scope
from jitmagic.source.edits import CannotEdit, FunctionNode
from jitmagic.source.modules import dotted, last_name

BLOCKING = frozenset(("queue", "input", "process"))
"""To ask these again may wait for ever, or change something outside."""
ONCE = frozenset(("file", "iterator"))
"""What gives its answer once: tried where it can be put back."""
_TAKERS = frozenset("next pop popleft popitem get_nowait readline send".split())
_NAMES = {
    "time": "now", "perf_counter": "now", "now": "now", "next": "item", "getenv": "setting", "environ": "setting",
    "open": "contents", "input": "answer",
}  # fmt: skip


def questions(spot: Spot) -> Iterator[Change]:
    """The question, with what is made of it alone, becomes an argument that each call passes."""
    main = passing.definition_of(spot.text, spot.function)
    silent = spot.evidence.silent if spot.evidence is not None else None
    asked = {e.what for e in (silent.effects if silent is not None else ())}
    for question in _questions(spot, main):
        for static in (False, True) if not asked & BLOCKING else ():
            yield from _passed(spot, main, question, static=static)
        if asked & (BLOCKING | ONCE):
            yield from _passed(spot, main, question, untried=True)


def _questions(spot: Spot, main: FunctionNode) -> list[ast.expr]:
    """The asking expression and those around it that read nothing local but parameters: the largest first that reads
    no parameter either, and so can be asked anywhere."""
    on_line = [n for n in spot.text.within(main, ast.Call, ast.Subscript) if n.lineno == spot.line]
    names = {n.partition("(")[0] for n in spot.names}
    asked = (
        [n for n in on_line if any(_mentions(n, name) for name in names)]
        or on_line
        or _leading_to(spot, main)
    )
    if spot.writes:  # of what changes, only what is taken out is an answer
        asked = [n for n in asked if isinstance(n, ast.Call) and last_name(n.func) in _TAKERS]
    if not asked:
        return []
    parameters = set(scope.parameters_of(main))
    local = scope.local_names(main) - parameters
    node: ast.AST = min(asked, key=lambda n: len(spot.code(n)))
    found: list[ast.expr] = []
    while isinstance(node, ast.expr | ast.keyword):
        if isinstance(node, ast.expr) and not scope.loads(node) & local:
            found.append(node)
        node = spot.text.parents[node]
    found = [n for n in found if not isinstance(spot.text.parents[n], ast.Expr)]
    free = [n for n in found if not scope.loads(n) & parameters]
    return [*reversed(free), *(n for n in found if n not in free)]


def _mentions(node: ast.AST, name: str) -> bool:
    found = (dotted(n) for n in ast.walk(node))
    return any(f == name or f.startswith(f"{name}.") for f in found if f)


def _leading_to(spot: Spot, main: FunctionNode) -> list[ast.expr]:
    """Calls in the function of the helpers on the way to the line."""
    helper = spot.outermost
    if helper is None or helper is main:
        return []
    (_, *takers) = passing.chain(spot.text, main, [spot.path[0]])
    called = [u for t in takers for u in passing.uses_of(spot.text, main, t)]
    calls = [spot.text.parents[u] for u in called]
    return [c for c in calls if isinstance(c, ast.Call)]


def _passed(
    spot: Spot, main: FunctionNode, question: ast.expr, *, static: bool = False, untried: bool = False
) -> Iterator[Change]:
    text, edits = spot.text, spot.edits()
    statement, code = text.statement(question), spot.code(question)
    target = (
        statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is question else None
    )
    bound = target.id if isinstance(target, ast.Name) else ""
    if bound and bound not in scope.parameters_of(main):
        name, _ = bound, edits.remove(statement)
    else:
        words = (_NAMES[w] for n in ast.walk(question) if (w := last_name(getattr(n, "func", n))) in _NAMES)
        name = spot.fresh(next(words, "value"), f"new_{bound}" if bound else "value")
        edits.replace(question, name)
    try:
        later = passing.pass_down(edits, spot.later, [main], [passing.Passed(name, code)], spot.modules)
    except CannotEdit:
        return
    tags = frozenset((Tag.UNTRIED,)) if untried else frozenset[Tag]()
    title = f"pass `{code}` as an argument at each call"
    yield Change(
        title, edits, later, static=(name,) if static else (), claim=Claim("new"), sure=False, tags=tags
    )
