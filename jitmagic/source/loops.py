"""Loops of Python's: what a `for` or a comprehension goes over, and what its body does besides computing."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from jitmagic.source import scope
from jitmagic.source.edits import Text
from jitmagic.source.modules import dotted
from jitmagic.source.tree import in_order

LoopNode = ast.For | ast.While
_CHANGES = frozenset("append extend insert pop add update setdefault remove".split())


@dataclass(frozen=True)
class Counting:
    """The numbers of a `range`; without a `stop`, as many as there are iterations."""

    start: ast.expr | None = None
    stop: ast.expr | None = None
    step: ast.expr | None = None

    @classmethod
    def of(cls, looped: ast.expr) -> Counting | None:
        """Those of `range(...)`, None for other expressions."""
        if not isinstance(looped, ast.Call) or dotted(looped.func) != "range" or looped.keywords:
            return None
        given = looped.args
        if not 1 <= len(given) <= 3 or any(isinstance(a, ast.Starred) for a in given):
            return None
        start, stop, step = [None, given[0], None] if len(given) == 1 else [*given, None][:3]
        return cls(_unless(start, 0), stop, _unless(step, 1))

    @property
    def plain(self) -> bool:
        """It counts 0, 1, 2."""
        return self.start is None and self.step is None


@dataclass(frozen=True)
class Column:
    """What one part of the target takes in each iteration: the rows of an array, or a number that counts."""

    target: ast.expr
    source: ast.expr | Counting


@dataclass(frozen=True)
class Turns:
    """What a `for` or a comprehension goes over, column by column; `backwards` from the last row to the first."""

    columns: tuple[Column, ...]
    backwards: bool = False

    @classmethod
    def of(cls, loop: ast.For | ast.comprehension) -> Turns | None:
        """Those of a loop; None where they cannot be told from its head."""
        looped, backwards = loop.iter, False
        if isinstance(looped, ast.Call) and dotted(looped.func) == "reversed" and len(looped.args) == 1:
            looped, backwards = looped.args[0], True
        try:
            return cls(tuple(_columns(loop.target, looped)), backwards)
        except ValueError:
            return None

    @property
    def counting(self) -> Counting | None:
        """The numbers that the loop counts, where it does nothing else."""
        only = self.columns[0].source if len(self.columns) == 1 else None
        return only if isinstance(only, Counting) else None

    @property
    def arrays(self) -> list[ast.expr]:
        """What it takes rows of."""
        return [c.source for c in self.columns if isinstance(c.source, ast.expr)]

    @property
    def names(self) -> frozenset[str]:
        """The names that an iteration binds in its head."""
        return frozenset(n for c in self.columns for n in scope.stores(c.target))


def _columns(target: ast.expr, looped: ast.expr) -> Iterator[Column]:
    """Raises ValueError where the target does not fit."""
    name = dotted(looped.func) if isinstance(looped, ast.Call) else ""
    given = looped.args if isinstance(looped, ast.Call) else []
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    if name in ("range", "enumerate", "zip") and any(isinstance(a, ast.Starred) for a in given):
        raise ValueError("arguments that are not written out")
    if name == "range":
        numbers = Counting.of(looped)
        if numbers is None or not isinstance(target, ast.Name):
            raise ValueError("no range")
        yield Column(target, numbers)
    elif name == "enumerate" and isinstance(looped, ast.Call) and len(parts) == 2 and given:
        first = [*given[1:], *(k.value for k in looped.keywords)][:1]
        yield Column(parts[0], Counting(_unless(first[0], 0) if first else None))
        yield from _columns(parts[1], given[0])
    elif name == "zip" and len(parts) == len(given):
        for part, argument in zip(parts, given, strict=True):
            yield from _columns(part, argument)
    elif name in ("list", "tuple") and len(given) == 1:
        yield from _columns(target, given[0])
    else:
        yield Column(target, looped)


def _unless(node: ast.expr | None, usual: int) -> ast.expr | None:
    return None if isinstance(node, ast.Constant) and node.value == usual else node


class LoopBody:
    """What the body of a loop does besides computing: how it is left, and what it changes outside of itself."""

    def __init__(self, text: Text, loop: LoopNode) -> None:
        self.text, self.loop = text, loop
        self.nodes = list(in_order(scope.body_of(loop.body), own=True))
        """What the body holds, but for the insides of functions."""

    @property
    def jumps(self) -> list[ast.Break | ast.Continue | ast.Return]:
        """Ways out of an iteration: `break` and `continue` of this loop, and every `return`."""
        found = (n for n in self.nodes if isinstance(n, ast.Break | ast.Continue | ast.Return))
        return [n for n in found if isinstance(n, ast.Return) or self.holds(n)]

    def holds(self, jump: ast.AST) -> bool:
        """A `break` or `continue` belongs to this loop, not to one inside it."""
        return self.text.around(jump, ast.For, ast.While) is self.loop

    @property
    def waits(self) -> bool:
        """It gives something out or waits while it runs: no traced body can."""
        return any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Await) for n in self.nodes)

    def entered(self, tree: ast.AST) -> list[str]:
        """Dicts and lists of this function into whose entries the statements store: nobody else sees them."""
        around = self.text.function(self.loop)
        given = scope.parameters_of(around) if around is not None else ()
        own = scope.bound_before(self.text, self.loop) - set(given)
        items = (n for n in in_order(tree) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
        return list(dict.fromkeys(name for n in items if (name := getattr(n.value, "id", "")) in own))


def mutates(tree: ast.AST, modules: Collection[str] = ()) -> bool:
    """Statements fill a list or another object that they have not bound."""
    bound = {*scope.stores(tree), *modules}
    for node in in_order(tree, own=True):
        match node:
            case ast.Call(ast.Attribute(ast.Name(name), method)) if method in _CHANGES and name not in bound:
                return True
    return False
