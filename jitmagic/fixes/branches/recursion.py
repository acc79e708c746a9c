"""Functions that call themselves until a traced condition holds: a loop in place of the last call."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jitmagic.fixes.branches.merge import sides_of
from jitmagic.fixes.branches.truth import negated
from jitmagic.fixes.change import Change, Spot, Tag
from jitmagic.source import scope, signature
from jitmagic.source.edits import CannotEdit, FunctionNode, indented
from jitmagic.source.pattern import atom, stripped

TITLE = "loop in place of the function's call of itself"
_SUMS: dict[type[ast.operator], tuple[str, str, str]] = {
    ast.Add: ("total", "+", "0"),
    ast.Mult: ("product", "*", "1"),
}
"""What the results of the calls are put together in: a name for it, the sign, and what it starts as."""


def recursion(spot: Spot) -> Iterator[Change]:
    """The function's body as `while True:`, where a call of itself is the last thing that it does."""
    first, function = ended_by(spot), spot.innermost
    if first is None or function is None:
        return
    calls, body = _Calls(spot, function), signature.body_of(function)
    at = body.index(first)
    test, sides = _asked(first, body[at + 1 :])
    goes_on = [calls.within(*side) for side in sides]
    match sides[goes_on[0]]:
        case [ast.Return(value=ast.expr() as value)] if goes_on.count(True) == 1:
            result = stripped(spot.code(value))
            asked = negated(spot, test) if goes_on[0] else stripped(spot.code(test))
            again = calls.again(sides[goes_on[1]])
            name, sign, start = calls.sum or ("", "", "")
            if name:
                result = name if result == start else f"{name} {sign} {atom(result)}"
            turn = f"{spot.text.block(body[:at])}if {asked}:\n    return {result}\n{again}"
            new = f"{name} = {start}\n" * bool(name) + f"while True:\n{indented(turn)}"
            tags = frozenset((Tag.ENDS,))
            yield Change(TITLE, spot.edits().statements(body[0], new, body[-1]), tags=tags)


def ended_by(spot: Spot) -> ast.stmt | None:
    """The statement at the place whose condition ends the function's calls of itself: a trace of both of its branches
    would never end."""
    if (function := spot.innermost) is not None:
        calls, body = _Calls(spot, function), signature.body_of(function)
        for at, statement in enumerate(body):
            if _asked(statement, ())[1]:
                own = statement in spot.path and not calls.within(*body[:at])
                return statement if own and calls.within(*body[at:]) else None
    return None


def _asked(statement: ast.stmt, rest: Sequence[ast.stmt]) -> tuple[ast.expr, list[list[ast.stmt]]]:
    """A condition, and the two ways on; no ways for other statements."""
    match statement:
        case ast.If(test=test):
            return test, sides_of(statement, rest)
        case ast.Return(value=ast.IfExp(test=test, body=body, orelse=orelse)):
            return test, [[ast.Return(body)], [ast.Return(orelse)]]
    return ast.Constant(None), []


class _Calls:
    """A function's calls of itself, as its parameters bound anew. Raises CannotEdit where they are not the last that
    it does."""

    def __init__(self, spot: Spot, function: FunctionNode) -> None:
        self.spot, self.name = spot, function.name
        self.sum: tuple[str, str, str] | None = None
        self.defaults = scope.defaults_of(function)
        self.parameters = [x.arg for x in (*function.args.posonlyargs, *function.args.args)]
        if isinstance(spot.text.parents[function], ast.ClassDef) and self.parameters:
            self.name = f"{self.parameters.pop(0)}.{function.name}"
        self.wanted = [*self.parameters, *(x.arg for x in function.args.kwonlyargs)]

    def within(self, *nodes: ast.AST) -> bool:
        """The function calls itself somewhere in these."""
        calls = [c for n in nodes for c in self.spot.text.within(n, ast.Call)]
        return any(self.spot.code(c.func) == self.name for c in calls)

    def again(self, statements: Sequence[ast.stmt]) -> str:
        """Statements that end in calls of the function only, with its parameters bound anew in place of these."""
        at = next((i for i, s in enumerate(statements) if self.within(s)), -1)
        test, sides = _asked(statements[at], statements[at + 1 :])
        head = self.spot.text.block(statements[:at])
        if sides:
            ways, asked = [indented(self.again(side)) for side in sides], stripped(self.spot.code(test))
            return f"{head}if {asked}:\n{ways[0]}else:\n{ways[1]}"
        match statements[at]:
            case ast.Return(value=ast.Call() as call):
                return head + self._bound(call)
            case ast.Return(value=ast.BinOp(left=left, op=op, right=right)) if type(op) in _SUMS:
                added, last = sorted((left, right), key=self.within)
                word, sign, start = _SUMS[type(op)]
                self.sum = self.sum or (self.spot.fresh(word), sign, start)
                if isinstance(last, ast.Call) and not self.within(added) and sign == self.sum[1]:
                    more = f"{self.sum[0]} = {self.sum[0]} {sign} {atom(stripped(self.spot.code(added)))}"
                    return f"{head}{more}\n{self._bound(last)}"
        raise CannotEdit("the call of itself is not the last thing")

    def _bound(self, call: ast.Call) -> str:
        """The parameters bound to what a call of the function gives them."""
        values = self.defaults | dict(zip(self.parameters, call.args, strict=False))
        values |= {k.arg: k.value for k in call.keywords if k.arg}
        texts = {n: stripped(self.spot.code(values[n])) for n in self.wanted}
        changed = {n: t for n, t in texts.items() if n != t}
        spread = any(isinstance(a, ast.Starred) for a in call.args) or len(call.args) > len(self.parameters)
        if self.spot.code(call.func) != self.name or spread:
            raise CannotEdit("the call does not bind the parameters anew")
        return f"{', '.join(changed)} = {', '.join(changed.values())}\n" if changed else "pass\n"
