"""What a function asks of the world outside (the clock, an iterator, a queue) or draws, asked before each call and
passed."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence

from jitmagic.fixes.change import Change, Claim, Spot, Tag
from jitmagic.source import passing, scope
from jitmagic.source.edits import CannotEdit, Edits, FunctionNode
from jitmagic.source.modules import dotted, last_name

BLOCKING = frozenset(("queue", "input", "process"))
"""To ask these again may wait for ever, or change something outside."""
ONCE = frozenset(("file", "iterator"))
"""What gives its answer once: tried where it can be put back."""
_TAKERS = frozenset("next pop popleft popitem get_nowait readline send".split())
_NAMES = {
    "time": "now", "perf_counter": "now", "now": "now", "next": "item", "getenv": "setting", "environ": "setting",
    "open": "contents", "input": "answer", "normal": "noise", "randn": "noise", "standard_normal": "noise",
    "gauss": "noise", "uniform": "u", "rand": "u", "random": "u", "choice": "chosen", "permutation": "order",
    "randint": "number", "integers": "number",
}  # fmt: skip
"""What a parameter is called that takes the answer."""


def questions(spot: Spot) -> Iterator[Change]:
    """The question, with what is made of it alone, becomes an argument that each call passes."""
    if spot.sets_process:
        return
    main = passing.definition_of(spot.text, spot.function)
    kinds, asked = {e.what for e in spot.evidence.silent.effects}, asking(spot, main)
    if spot.writes:  # of what changes, only what is taken out is an answer
        asked = [n for n in asked if isinstance(n, ast.Call) and last_name(n.func) in _TAKERS]
    ways = [(False, False), (True, False)] if not kinds & BLOCKING else []
    ways += [(False, True)] if kinds & (BLOCKING | ONCE) else []
    for question in around(spot, main, asked):
        looped = spot.text.around(question, ast.For, ast.While) is not None  # each turn gets another answer
        for static, untried in ways:
            if untried and looped:
                continue
            with contextlib.suppress(CannotEdit):
                name, edits, later = as_argument(spot, main, question)
                yield Change(
                    f"pass `{spot.code(question)}` as an argument at each call", edits, later,
                    static=(name,) if static else (), claim=Claim("new"), sure=False,
                    tags=frozenset((Tag.UNTRIED,) if untried else ()),
                )  # fmt: skip


def asking(spot: Spot, main: FunctionNode) -> list[ast.expr]:
    """What asks on the line, by its name if it is named; else the calls in the function of the helpers on the way to
    the line."""
    on_line = [n for n in spot.text.within(main, ast.Call, ast.Subscript) if n.lineno == spot.line]
    names = {n.partition("(")[0] for n in spot.names}
    named = [n for n in on_line if any(_mentions(n, name) for name in names)]
    return [*(named or on_line or _leading_to(spot, main))]


def around(spot: Spot, main: FunctionNode, asked: Sequence[ast.expr]) -> list[ast.expr]:
    """The smallest of these and the expressions around it that read nothing local but parameters: the largest first
    that reads no parameter either, and so can be asked anywhere."""
    if not asked:
        return []
    parameters = set(scope.parameters_of(main))
    local = scope.local_names(main) - parameters
    node: ast.AST = smallest(spot, asked)
    found: list[ast.expr] = []
    while isinstance(node, ast.expr | ast.keyword):
        if isinstance(node, ast.expr) and not scope.loads(node) & local:
            found.append(node)
        node = spot.text.parents[node]
    found = [n for n in found if not isinstance(spot.text.parents[n], ast.Expr)]
    free = [n for n in found if not scope.loads(n) & parameters]
    alone = main.body[0] if len(main.body) == 1 else None  # without it, the function does nothing
    return [*reversed(free), *(n for n in found if n not in free and spot.text.parents[n] is not alone)]


def smallest(spot: Spot, nodes: Sequence[ast.expr]) -> ast.expr:
    """The node with the shortest source."""
    return min(nodes, key=lambda n: len(spot.code(n)))


def _mentions(node: ast.AST, name: str) -> bool:
    found = (dotted(n) for n in ast.walk(node))
    return any(f == name or f.startswith(f"{name}.") for f in found if f)


def _leading_to(spot: Spot, main: FunctionNode) -> list[ast.Call]:
    """Calls in the function of the helpers on the way to the line."""
    helper = spot.outermost
    if helper is None or helper is main:
        return []
    (_, *takers) = passing.chain(spot.text, main, [spot.path[0]])
    called = [u for t in takers for u in passing.uses_of(spot.text, main, t)]
    calls = [spot.text.parents[u] for u in called]
    return [c for c in calls if isinstance(c, ast.Call)]


def as_argument(spot: Spot, main: FunctionNode, node: ast.expr) -> tuple[str, Edits, tuple[str, ...]]:
    """A parameter in the place of an expression that each call passes: its name, and the changes of the cell and of
    later cells. Raises CannotEdit."""
    text, edits = spot.text, spot.edits()
    bound, code = text.bound_to(node), spot.code(node)
    if bound and bound not in scope.parameters_of(main):
        name, _ = bound, edits.remove(text.statement(node))
    else:
        called = (last_name(getattr(n, "func", n)) for n in ast.walk(node))
        words = [_NAMES[w] for w in called if w in _NAMES] or ["value"]
        name = spot.fresh(*words, f"new_{bound}" if bound else "value")
        edits.replace(node, name)
    new = passing.Passed(name, code)
    return name, edits, passing.pass_down(edits, spot.later, [main], [new], spot.modules)
