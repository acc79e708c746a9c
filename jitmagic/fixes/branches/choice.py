"""What a condition chooses of two values: of tuples, lists, dicts and objects that are alike, part by part."""

from __future__ import annotations

import ast

from jitmagic.evidence import root
from jitmagic.fixes.branches.truth import is_boolean, maybe_traced, negated, truth
from jitmagic.fixes.change import Spot
from jitmagic.source import scope
from jitmagic.source.edits import CannotEdit, Edits, Text
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import atom, bare, call_of, expression, same, stripped

_LOOSE = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr)
_DISPLAYS = (ast.Tuple, ast.List, ast.Dict)


class Choice:
    """Writes choices by one condition, and sees whether it needs a name of its own for that."""

    def __init__(self, spot: Spot, test: ast.expr, name: str = "") -> None:
        self.spot, self.asked, self.name, self.flipped = spot, test, name, False
        while isinstance(self.asked, ast.UnaryOp) and isinstance(self.asked.op, ast.Not):
            self.asked, self.flipped = self.asked.operand, not self.flipped
        at_place = self.asked in spot.path or spot.node in ast.walk(self.asked)
        self.python = not at_place and not maybe_traced(spot, self.asked)
        """The condition is known while jax traces."""
        self.test = name or stripped(spot.code(self.asked) if self.python else truth(spot, self.asked))
        self.uses, self.late, self.chose = 0, False, False
        self.bound: set[str] = set()
        """What is bound anew before the next choice."""

    @property
    def wants_name(self) -> bool:
        """The condition is asked more than once, or after something that it reads is bound anew."""
        return self.late or self.uses > 1 and not isinstance(expression(self.test), ast.Name | ast.Constant)

    def holds(self, then: bool, test: str = "") -> str:
        """Python's question whether one branch is taken, and another test of this branch holds."""
        self._use()
        asked = self.name or stripped(self.spot.code(self.asked))
        if then == self.flipped:
            asked = f"not {atom(asked)}" if self.name else negated(self.spot, self.asked)
        tests = [asked, test] if test else [asked]
        return " and ".join(f"({t})" if test and isinstance(expression(t), _LOOSE) else t for t in tests)

    def of(self, then: str, other: str) -> str:
        """The value where the condition holds, or the other."""
        return self._of(other, then) if self.flipped else self._of(then, other)

    def _of(self, then: str, other: str) -> str:
        (one, a), (two, b) = parsed_value(then), parsed_value(other)
        if same(a, b):
            return then
        parts, others = _held(a), _held(b)
        if parts and parts.keys() == others.keys():
            edits = Edits(one)
            for at, part in parts.items():
                edits.replace(part, self._of(one.code(part), two.code(others[at])))
            return edits.code(a)
        if isinstance(a, _DISPLAYS) or isinstance(b, _DISPLAYS):
            raise CannotEdit("the branches give other structures")
        self._use()
        self.chose = True
        if self.python:
            return f"{f'({then})' if isinstance(a, _LOOSE) else then} if {self.test} else {other}"
        if is_boolean(self.spot, self.asked) and (then, other) in (("True", "False"), ("False", "True")):
            return self.test if then == "True" else self.spot.write("jnp.logical_not($t)", t=self.test)
        return call_of(self.spot.write("jnp.where"), self.test, bare(then), bare(other))

    def _use(self) -> None:
        self.uses += 1
        self.late |= not scope.loads(self.test).isdisjoint(map(root, self.bound))


def parsed_value(code: str) -> tuple[Text, ast.expr]:
    """The source of an expression as a text of its own, and its node there."""
    text = Text(f"({code}\n)" if "\n" in code else f"({code})")
    return text, text.within(text.tree, ast.expr)[0]


def _held(node: ast.expr) -> dict[str, ast.expr]:
    """What a tuple, a list, a dict or the making of an object holds, by where that is; nothing for others."""
    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            found = {f"{type(node).__name__}[{i}]": part for i, part in enumerate(parts)}
        case ast.Dict(keys=keys, values=parts):
            found = {ast.unparse(k) if k else "**": part for k, part in zip(keys, parts, strict=True)}
        case ast.Call(func=made, args=parts, keywords=keywords) if last_name(made)[:1].isupper():
            found = {f"{ast.unparse(made)}({i})": part for i, part in enumerate(parts)}
            found |= {f"{ast.unparse(made)}({k.arg or '**'})": k.value for k in keywords}
        case _:
            return {}
    return {} if any("**" in at or isinstance(part, ast.Starred) for at, part in found.items()) else found
