"""Expressions over selections whose length depends on data (`x[mask]`, `x[:n]`), and over padded arrays, as expressions
over the whole arrays with masks of what counts.

Each expression is changed in place, from the inside out, and has a value: the whole array with its masks, the number of
what counts, or (None) anything that no mask concerns. What works element by element stays as it is written; a reduction
gets the mask; where neither holds `Unsupported` is raised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from jitmagic.fixes.change import Spot
from jitmagic.fixes.sizes.masks import Length, Mask, Masked, Unsupported, together
from jitmagic.source import scope
from jitmagic.source.edits import Edits
from jitmagic.source.pattern import Pattern, atom, number_of, stripped

Value = Masked | Length | None

_POSITIONS = [
    Pattern(source)
    for source in (
        "where($c)[0]", "nonzero($c)[0]", "flatnonzero($c)", "argwhere($c)[:, 0]", "ravel(argwhere($c))",
        "flatten(argwhere($c))", "squeeze(argwhere($c))",
    )
]  # fmt: skip
"""Positions at which a condition holds."""
_PLAIN = [Pattern("asarray($c)"), Pattern("array($c)")]


class Alias(NamedTuple):
    """What a variable stands for, and how that is written."""

    text: str
    value: Masked


class Expressions:
    """Lowers expressions. `known` says what variables stand for."""

    def __init__(self, spot: Spot) -> None:
        self.spot, self.edits = spot, spot.edits()
        self.known: dict[str, Alias | Length] = {}
        self.masks: dict[tuple[str, ...], Mask] = {}
        """Masks that have a name, by what they say."""
        self.inner: list[set[str]] = []
        """What lambdas and comprehensions around the expression bind."""
        self.bound_to: dict[ast.AST, str] = {}
        """Variables that are bound to an expression."""
        self._values: dict[ast.AST, Value] = {}

    def name(self, mask: Mask, base: str, behind: bool = False) -> None:
        """Bind a mask by a name like this, in front of the statement or behind it."""
        raise NotImplementedError

    def call(self, node: ast.Call) -> Value:
        """What a call gives."""
        raise NotImplementedError

    def product(self, node: ast.BinOp) -> Value:
        """What `x @ y` gives."""
        raise NotImplementedError

    def item(self, node: ast.Subscript, base: Masked | None) -> Value:
        """What `x[...]` gives where the index, or the array, is of interest."""
        raise NotImplementedError

    # -- any expression

    def value(self, node: ast.expr) -> Value:
        """What the expression is, after it has been changed."""
        if node not in self._values:
            self._values[node] = self._value(node)
        return self._values[node]

    def masked(self, node: ast.expr) -> Masked | None:
        """The same, where a length is written as the number that it is."""
        value = self.value(node)
        if isinstance(value, Length):
            self.edits.replace(node, atom(self.count(value.mask)))
            self._values[node] = None
        if isinstance(value, Masked) and value.holds in ("own places", "arrays"):
            raise Unsupported
        return value if isinstance(value, Masked) else None

    def given(self, node: ast.expr) -> Masked | None:
        """The same for what goes into a function of the cell, which may hold several arrays."""
        value = self.value(node)
        return value if isinstance(value, Masked) and value.holds == "arrays" else self.masked(node)

    def dense(self, *nodes: ast.expr) -> None:
        """Change expressions that must not be selections themselves."""
        if [n for n in nodes if self.masked(n) is not None]:
            raise Unsupported

    def count(self, mask: Mask) -> str:
        """How many count."""
        return mask.count or self.spot.write("jnp.sum($m)", m=mask.written())

    def rank(self, node: ast.AST) -> int:
        """Number of axes of an expression, in the cell as it was or (where that did not get there) as it is by now.
        Raises Unsupported where it is not one number."""
        shapes = self.spot.seen(node)
        if not shapes:
            now = Edits(self.spot.text, dict(self.edits.changes))
            shapes = list(self.spot.probe(now.replace(node, f"__seen__({self.edits.code(node)})").result()))
        ranks = {len(s.shape) for s in shapes}
        if len(ranks) != 1:
            raise Unsupported
        return ranks.pop()

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._positions(node) or self._subscript(node)
            case ast.Call():
                return self._positions(node) or self.length(node) or self.call(node)
            case ast.BinOp(op=ast.MatMult()):
                return self.product(node)
            case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
                return self.each(node, [left, right])
            case ast.UnaryOp(operand=operand) if not isinstance(node.op, ast.Not):
                return self.each(node, [operand])
        self.parts(node)
        return None

    def parts(self, node: ast.AST) -> None:
        """Change what an expression holds, none of which may be a selection."""
        names = _bound_inside(node)
        if names & self.known.keys():
            raise Unsupported
        self.inner.append(names)
        for child in ast.iter_child_nodes(node):
            self.dense(child) if isinstance(child, ast.expr) else self.parts(child)
        self.inner.pop()

    def _name(self, node: ast.Name) -> Value:
        found = self.known.get(node.id)
        if not isinstance(found, Alias):
            return found
        if found.text != node.id:
            self.edits.replace(node, atom(found.text))
        return found.value

    def each(self, node: ast.expr, operands: Iterable[ast.expr]) -> Value:
        """What works element by element."""
        values = {o: self.masked(o) for o in operands}
        found = [v for v in values.values() if v is not None]
        if not found:
            return None
        rank = max(v.selected_rank for v in found)
        if any(v is None and not isinstance(o, ast.Constant) for o, v in values.items()):
            rank = max(rank, self.rank(node))
        wide = next((v.wide for v in found if v.wide), None)
        return together(rank + (wide.rank - 1 if wide else 0), found)

    # -- attributes and items

    def _attribute(self, node: ast.Attribute) -> Value:
        value = self.value(node.value)
        match value, node.attr:
            case None, _:
                return None
            case Masked(holds="arrays"), _:
                return Masked(self.rank(node), value.axes)
            case Masked(), "real" | "imag":
                return value
            case Masked(wide=None, rank=rank), "T":
                return value.turned(range(rank)[::-1])
            case (Masked(), "dtype") | (Masked(wide=None), "ndim"):
                return None
            case Masked(wide=None), "size":
                return self._size(node, value)
        raise Unsupported

    def _size(self, node: ast.Attribute, value: Masked) -> Value:
        masks = [value.at(axis) for axis in range(value.rank)]
        if len(masks) == 1 and masks[0] is not None:
            return Length(masks[0])
        x = atom(self.edits.code(node.value))
        sizes = [atom(self.count(m)) if m else f"{x}.shape[{axis}]" for axis, m in enumerate(masks)]
        self.edits.replace(node, f"({' * '.join(sizes)})")
        return None

    def length(self, node: ast.expr) -> Length | None:
        """`x.shape[k]` or `len(x)` of a selection along an axis of which a part counts."""
        match node:
            case ast.Subscript(value=ast.Attribute(attr="shape", value=array), slice=index):
                axis = whole_number(index)
            case ast.Call(func=ast.Name("len"), args=[array]):
                axis = 0
            case _:
                return None
        value = self.value(array)
        if not isinstance(value, Masked):
            return None
        if axis is None:
            raise Unsupported
        mask = value.at(axis % value.selected_rank)
        return Length(mask) if mask is not None else None

    def _subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            if (found := self.length(node)) is not None:
                return found
            if isinstance(self.value(node.value.value), Masked):
                return None  # of an axis of which all counts
        held = self.value(node.value)
        if isinstance(held, Masked) and held.holds == "arrays":
            return Masked(self.rank(node), held.axes)
        base = self.masked(node.value)
        asked = any(isinstance(n, ast.Name) and n.id in self.known for n in ast.walk(node.slice))
        stored = isinstance(node.value, ast.Attribute) and node.value.attr in ("at", "loc", "iloc")
        if not stored and (base is not None or asked or self.spot.is_traced(node.slice)):
            return self.item(node, base)
        self.parts(node)
        return None

    # -- what selects

    def mask(self, condition: ast.expr, within: Mask | None = None) -> Mask:
        """The mask of what a condition selects, of the whole or of what counts already."""
        found = (m.expr("c") for p in _PLAIN if (m := p.match(condition, self.spot.modules)))
        plain = next(found, condition)
        value, rank = self.masked(plain), self.rank(condition)
        text = stripped(self.edits.code(plain))
        if any(s.dtype != "bool" for s in self.spot.seen(condition)):
            text = f"{atom(text)} != 0"
        if within is None and value is not None:
            raise Unsupported
        if within is not None:
            if rank != 1 or value is None or value.at(0) is not within:
                raise Unsupported
            text = f"{atom(within.written())} & {atom(text)}"
        return self.kept((text,), Mask(text, rank), "mask")

    def kept(self, key: tuple[str, ...], mask: Mask, base: str, behind: bool = False) -> Mask:
        """The mask that says this, where there is one already, else this one with a name."""
        if scope.loads(mask.text) & set().union(*self.inner):
            return mask  # another one in each turn of a comprehension
        if key not in self.masks:
            self.name(mask, base, behind)
            self.masks[key] = mask
        return self.masks[key]

    def forget(self, *names: str) -> None:
        """These variables are bound anew: masks that were made of them are others from here on."""
        self.masks = {k: m for k, m in self.masks.items() if not scope.loads(m.text) & set(names)}

    def _positions(self, node: ast.expr) -> Value:
        """`jnp.nonzero(c)[0]`: the numbers of all positions, with the condition as their mask."""
        match = next((m for p in _POSITIONS if (m := p.match(node, self.spot.modules))), None)
        if match is None:
            return None
        found = self.positions(match.expr("c"))
        self.edits.replace(node, found.text)
        return found.value

    def positions(self, condition: ast.expr) -> Alias:
        """The numbers of all positions, with the condition as their mask. Raises Unsupported for several axes."""
        if self.rank(condition) != 1:
            raise Unsupported
        mask = self.mask(condition)
        text = self.spot.write("jnp.arange($m.shape[0])", m=mask.written())
        return Alias(text, Masked(1, ((0, mask),), holds="places"))


def whole_number(node: ast.AST | None) -> int | None:
    """The value of `3` or `-1`, None for other expressions."""
    number = number_of(node)
    return number if isinstance(number, int) else None


def is_constant(node: ast.expr) -> bool:
    """A name, an attribute or an entry."""
    match node:
        case ast.Name():
            return True
        case ast.Attribute(value=value) | ast.Subscript(value=value, slice=ast.Constant() | ast.Name()):
            return is_constant(value)
    return False


def _bound_inside(node: ast.AST) -> set[str]:
    """Names that a lambda or a comprehension binds."""
    if isinstance(node, ast.Lambda):
        return set(scope.parameters_of(node))
    return {n for g in getattr(node, "generators", ()) for n in scope.stores(g.target)}
