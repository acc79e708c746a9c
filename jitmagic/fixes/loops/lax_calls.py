"""Calls of `scan`, `while_loop` and `fori_loop`, and the functions that they are given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from jitmagic.fixes.change import Spot
from jitmagic.source.edits import FunctionNode
from jitmagic.source.modules import argument_at, last_name

Given = FunctionNode | ast.Lambda
_PARTS = {
    "scan": {"body": "f", "start": "init", "xs": "xs", "length": "length"},
    "while_loop": {"test": "cond_fun", "body": "body_fun", "start": "init_val"},
    "fori_loop": {"low": "lower", "high": "upper", "body": "body_fun", "start": "init_val"},
}
"""The parameters of each loop in their order, by names that the three of them share."""


@dataclass(frozen=True)
class LaxLoop:
    """A call of a loop of jax's."""

    spot: Spot
    call: ast.Call
    name: str

    @classmethod
    def of(cls, spot: Spot, call: ast.Call) -> LaxLoop | None:
        """The call as a loop, None where it is none or its body and start are not given."""
        name = (spot.full(call) or last_name(call.func)).rpartition(".")[2]
        found = cls(spot, call, name) if name in _PARTS else None
        return found if found is not None and {"body", "start"} <= set(found.parts) else None

    @property
    def parts(self) -> dict[str, ast.expr]:
        """What it is given, where that can be seen."""
        named = enumerate(_PARTS[self.name].items())
        given = {part: argument_at(self.call, at, name) for at, (part, name) in named}
        return {part: node for part, node in given.items() if node is not None}

    @property
    def start(self) -> ast.expr:
        return self.parts["start"]

    @property
    def body(self) -> Given | None:
        """The body where it is written in this cell."""
        return definition(self.spot, self.parts["body"])

    @property
    def state(self) -> str:
        """The name of the body's parameter for the state."""
        given = self.body.args.args if self.body is not None else []
        at = -2 if self.name == "scan" else -1
        return given[at].arg if len(given) >= -at else ""

    def spelt_out(self, node: ast.expr) -> ast.expr:
        """What a name was assigned in the function around the loop, where that happens once; others as they are."""
        return spelt_out(self.spot, self.spot.text.function(self.call) or self.spot.text.tree, node)


def lax_loops(spot: Spot) -> Iterator[LaxLoop]:
    """Those around the place, and on its line."""
    found = (LaxLoop.of(spot, call) for call in spot.on_line(ast.Call))
    yield from (loop for loop in found if loop is not None)


def definition(spot: Spot, node: ast.expr) -> Given | None:
    """The function of this cell that an expression stands for: by its name, as a method, under `partial`."""
    if isinstance(node, ast.Lambda):
        return node
    if spot.full(node) == "functools.partial" and isinstance(node, ast.Call) and node.args:
        return definition(spot, node.args[0])
    if not isinstance(node, ast.Name | ast.Attribute):
        return None
    name = last_name(node)
    own = [f for f in spot.text.functions if f.name == name]
    if own or isinstance(node, ast.Attribute):
        return own[-1] if own else None
    value = spelt_out(spot, spot.text.tree, node)
    return definition(spot, value) if value is not node else None


def returned(spot: Spot, function: Given | None) -> list[ast.expr]:
    """The expressions that a function returns."""
    if function is None or isinstance(function, ast.Lambda):
        return [function.body] if function is not None else []
    return [r.value for r in spot.text.own(function, ast.Return) if r.value is not None]


def spelt_out(spot: Spot, around: ast.AST, node: ast.expr) -> ast.expr:
    """What a name is assigned in a function, where that happens once; any other expression as it is."""
    every = (spot.text.within if around is spot.text.tree else spot.text.own)(around, ast.Assign)
    name = node.id if isinstance(node, ast.Name) else ""
    found = [a.value for a in every if [spot.code(t) for t in a.targets] == [name]]
    return found[0] if len(found) == 1 else node
