"""Selections whose length depends on data (`x[mask]`, `x[:n]`): the whole array stays, masked where it is reduced.
Functions of the cell that get selections or padded arrays: their bodies too, with masks as parameters."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.sizes.masked_expressions import Alias, Value
from jitmagic.fixes.sizes.masks import Length, Mask, Masked, Unsupported
from jitmagic.fixes.sizes.statements import Known, Results, Statements, first_of
from jitmagic.source import passing, scope, signature
from jitmagic.source.edits import Edits, FunctionNode, Text
from jitmagic.source.modules import last_name

REDUCED = "keep the whole array, and mask where it is reduced"
FILLED = "keep the whole array, with zeros in place of what was cut off"
BY_SIZE = frozenset(
    "max min amax amin maximum minimum argmax argmin top_k sort argsort median percentile quantile "
    "searchsorted clip relu".split()
)
"""Functions that compare numbers by their size."""
Given = dict[str, Masked | Length]
_PLAIN = ("jax.jit", "staticmethod", "classmethod")
"""Decorators after which a function does what is written in it."""


@dataclass
class _Followed:
    """A function whose body is changed: for which arguments, what it returns, the masks that it is given, its calls."""

    given: Given
    masks: list[Mask]
    results: Results | None
    calls: list[ast.Call]


class Bodies(Statements):
    """Follows calls into the functions of the cell."""

    def __init__(self, spot: Spot) -> None:
        super().__init__(spot)
        self._followed: dict[FunctionNode, _Followed] = {}
        self.given_back: list[str] = []
        """Variables that calls bind for the masks that functions make."""

    def followed(self, called: ast.expr) -> FunctionNode | None:
        """The function of the cell that is called, the only method of this name, or of an object `__call__`."""
        if isinstance(called, ast.Attribute):
            named = [f for c in self.spot.classes for f in c.body if isinstance(f, FunctionNode)]
            found = [f for f in named if f.name == called.attr]
            return found[0] if len(found) == 1 else None
        if not isinstance(called, ast.Name):
            return None
        kind = passing.objects_of(self.spot.text).get(called.id, "")
        return self.spot.text.definition(f"{kind}.__call__" if kind else called.id)

    def inside(self, node: ast.Call) -> Value:
        """What a function of the cell gives for selections, or its derivative."""
        called, derived = node.func, ""
        if isinstance(called, ast.Call) and len(called.args) == 1 and not called.keywords:
            called, derived = called.args[0], self.spot.full(called)
        function = self.followed(called)
        if function is None or derived not in ("", "jax.grad", "jax.value_and_grad"):
            raise Unsupported
        results, values = self._results_of(node, function)
        if not derived and len(results) == 1:
            return results[0]
        of = values.get(scope.parameters_of(function)[0]) if derived else None
        if any(results) or isinstance(of, Length) or (of is not None and derived != "jax.grad"):
            raise Unsupported
        return of  # a derivative has the form of what it is taken by

    def several(self, node: ast.Call) -> Results | None:
        """What a function of the cell gives for selections, part by part; None where there are none."""
        function = self.followed(node.func)
        given = [a for a in (*node.args, *(k.value for k in node.keywords)) if not isinstance(a, ast.Starred)]
        selected = function is self.selecting or any([self.value(a) for a in given])
        return self._results_of(node, function)[0] if function is not None and selected else None

    def _results_of(self, node: ast.Call, function: FunctionNode) -> tuple[Results, Given]:
        """What a function gives, and what it is given that is of interest."""
        values = self._arguments(function, node)
        outer = list(dict.fromkeys(m for v in values.values() for m in v.masks))
        found = self._followed.get(function) or self._follow(function, values, outer)
        if found.results is None or len(found.masks) != len(outer):
            raise Unsupported
        inner = dict(zip(found.masks, outer, strict=True))
        if {p: v.renamed(inner) for p, v in found.given.items()} != values:
            raise Unsupported
        inner |= self._given_back(node, function, found)
        found.calls.append(node)
        passed = {m.text: inner[m].written() for m in found.masks if m.used}
        if passed:
            signature.pass_to(self.edits, node, passed, keyword=signature.takes_by_name(function))
        return tuple(v.renamed(inner) if v is not None else None for v in found.results), values

    def _given_back(self, node: ast.Call, function: FunctionNode, found: _Followed) -> dict[Mask, Mask]:
        """The masks that a function makes for what it returns: it returns them too, and the statement binds them."""
        own = dict.fromkeys(m for v in found.results or () if v for m in v.masks if m not in found.masks)
        returns = self.spot.text.own(function, ast.Return)
        new: dict[Mask, Mask] = {}
        for mask in own:
            at = self._at
            if not isinstance(at, ast.Assign) or at.value is not node or len(returns) != 1:
                raise Unsupported
            name = self.spot.text.fresh("mask", "selected", taken=[*self.given_back, *(m.text for m in own)])
            self.given_back.append(name)
            new[mask] = Mask(name, mask.rank, leading=mask.leading)
            if not found.calls:
                self.edits.insert(self._end(returns[0].value), f", {mask.written()}")
            self.edits.insert(self._end(at.targets[0]), f", {name}")
        return new

    def _end(self, node: ast.expr | None) -> int:
        """Where one part more can stand."""
        assert node is not None
        return self.spot.text.span(node.elts[-1] if isinstance(node, ast.Tuple) else node)[1]

    def _arguments(self, function: FunctionNode, node: ast.Call) -> Given:
        """Selections that a call passes, and their lengths, by parameter."""
        starred = any(isinstance(a, ast.Starred) for a in node.args) or not all(k.arg for k in node.keywords)
        others = any(
            (self.spot.full(d) or getattr(d, "id", "")) not in _PLAIN for d in function.decorator_list
        )
        if starred or others or function.args.vararg or function.args.kwarg:
            raise Unsupported
        bound = signature.takes_receiver(node, function)
        if isinstance(node.func, ast.Attribute):
            self.dense(node.func.value)
        by_place = zip(scope.parameters_of(function)[bound:], node.args, strict=False)
        given = [*by_place, *((k.arg or "", k.value) for k in node.keywords)]
        lengths = {p: v for p, a in given if isinstance(v := self.value(a), Length)}
        self.sized |= {n for p, a in given if p in lengths for n in scope.loads(a)}
        return lengths | {p: v for p, a in given if p not in lengths and (v := self.given(a)) is not None}

    def _follow(self, function: FunctionNode, values: Given, outer: Sequence[Mask]) -> _Followed:
        inner: dict[Mask, Mask] = {}
        for mask in outer:
            name = self.spot.text.fresh(mask.name or "mask", taken=[m.text for m in inner.values()])
            inner[mask] = Mask(name, mask.rank, leading=mask.leading)
        given = {p: v.renamed(inner) for p, v in values.items()}
        found = self._followed[function] = _Followed(given, list(inner.values()), None, [])
        known: Known = {p: v if isinstance(v, Length) else Alias(p, v) for p, v in given.items()}
        found.results = self.body(signature.body_of(function), known, {})
        return found

    def fill(self) -> None:
        """What is returned has zeros where it does not count. Raises Unsupported where what counts is not in front, and
        where the cell compares numbers by size: that zero is not among them then would be luck."""
        first = [m.leading for v in self.returned.values() for _, m in v.axes]
        calls = self.spot.text.within(self.spot.text.tree, ast.Call)
        if self._followed or not all(first) or any(last_name(c.func) in BY_SIZE for c in calls):
            raise Unsupported
        for node, value in self.returned.items():
            mask = value.spread(range(value.rank))
            self.edits.replace(
                node, self.spot.write("jnp.where($mask, $x, 0)", self.edits, mask=mask, x=node)
            )

    def finished(self) -> Edits:
        """The changes, with parameters for the masks that functions need."""
        edits = super().finished()
        for function, found in self._followed.items():
            used = [m.text for m in found.masks if m.used]
            names = [function.name]
            if function.name == "__call__":
                own = getattr(self.spot.text.parents[function], "name", "")
                names += [n for n, kind in passing.objects_of(self.spot.text).items() if kind == own]
            here, *later = (_uses(text, names) for text in (self.spot.text, *map(Text, self.spot.later)))
            if (used or function is self.selecting) and (here != len(found.calls) or any(later)):
                raise Unsupported
            if used:
                signature.add_parameter(edits, function, ", ".join(used))
        return edits


def _uses(text: Text, names: Sequence[str]) -> int:
    nodes = [n for n in ast.walk(text.tree) if isinstance(getattr(n, "ctx", None), ast.Load)]
    return sum(getattr(n, "id", "") in names or getattr(n, "attr", "") in names for n in nodes)


def masked_selections(spot: Spot) -> Iterator[Change]:
    """The statement of the place and those that follow it in its block, with masks for selections."""
    statement = first_of(spot.text, spot.text.statement(spot.node))
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return
    block, index = spot.text.siblings(statement)
    lower = Bodies(spot)
    if any(lower.body(block[index:], {}, {})):
        with contextlib.suppress(Unsupported):
            yield Change(REDUCED, _in_caller(spot, statement))
        lower.fill()
        yield Change(FILLED, lower.finished(), sure=False)
    elif edits := lower.finished():
        yield Change(REDUCED, edits)


def _in_caller(spot: Spot, statement: ast.stmt) -> Edits:
    """The function around the place, and what follows its calls in one block. Raises Unsupported."""
    lower, text = Bodies(spot), spot.text
    lower.selecting = text.function(statement)
    called = [c for c in text.within(text.tree, ast.Call) if lower.followed(c.func) is lower.selecting]
    if lower.selecting is None or not called:
        raise Unsupported
    first = min(called, key=lambda call: (call.lineno, call.col_offset))
    block, index = text.siblings(first_of(text, text.statement(first)))
    if any(lower.body(block[index:], {}, {})):
        raise Unsupported
    return lower.finished()
