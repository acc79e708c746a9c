"""Updates of what a mask selects, which are choices in a compiled program: `x[mask] = v` as `jnp.where(mask, v, x)`."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from jitmagic.fixes.branches.truth import is_boolean
from jitmagic.fixes.change import Spot
from jitmagic.source import scope
from jitmagic.source.pattern import atom, same

AFTER = {
    "set": "$value", "add": "$x + $value", "subtract": "$x - $value", "multiply": "$x * $value",
    "divide": "$x / $value", "power": "$x ** $value", "max": "jnp.maximum($x, $value)",
    "min": "jnp.minimum($x, $value)",
}  # fmt: skip
"""What an array is after methods of `.at[...]`."""


@dataclass(frozen=True)
class MaskedUpdate:
    """An index that holds a mask, the array, and the index with a colon in place of the mask where more is in it."""

    array: ast.expr
    index: ast.expr
    mask: ast.expr
    beside: str = ""
    gone: int = 0
    """Axes that the index takes away, or that stand before the mask."""

    def updated(self, spot: Spot, x: str, method: str, value: str, node: ast.expr | None) -> str:
        """The array, as `x`, after an update; what the same mask selects in the value is taken as a whole."""
        part = f"{x}[{self.beside}]" if self.beside else x
        if node is not None:
            edits = spot.edits()
            for selected in spot.text.within(node, ast.Subscript):
                if same(selected.slice, self.index):
                    whole = spot.code(selected.value)
                    edits.replace(selected, f"{whole}[{self.beside}]" if self.beside else whole)
            value = edits.code(node) if edits else value
        after = spot.write(AFTER[method], x=part, value=value)
        new = spot.write("jnp.where($mask, $after, $x)", mask=self._spread(spot), after=after, x=part)
        return f"{x}.at[{self.beside}].set({new})" if self.beside else new

    def _spread(self, spot: Spot) -> str:
        """The mask with an axis for each that the array has behind its own."""
        code = spot.code(self.mask)
        if self.beside or not scope.loads(self.array) & scope.loads(self.mask):
            axes = [{len(s.shape) for s in spot.seen(n)} for n in (self.array, self.mask)]
            if len(axes[0]) == len(axes[1]) == 1:
                behind = axes[0].pop() - axes[1].pop() - self.gone
                return f"{atom(code)}[..., {', '.join(['None'] * behind)}]" if behind > 0 else code
        return code


def masked(spot: Spot, array: ast.expr, index: ast.expr, *, ask: bool = False) -> MaskedUpdate | None:
    """What an index selects by a mask: `x[mask]`, `x[mask, 0]`; None for others. `ask`: a run without jit is asked."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    found = [p for p in parts if not isinstance(p, ast.Slice) and _is_mask(spot, p, ask=ask)]
    if len(found) != 1 or isinstance(index, ast.Tuple) and len(parts) == 1:
        return None
    if len(parts) == 1:
        return MaskedUpdate(array, index, index)
    at = parts.index(found[0])
    beside = ", ".join(":" if p is found[0] else spot.code(p) for p in parts)
    gone = at + sum(not isinstance(p, ast.Slice) for p in parts[at + 1 :])
    return MaskedUpdate(array, index, found[0], beside, gone)


def _is_mask(spot: Spot, index: ast.expr, *, ask: bool) -> bool:
    inverted = isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Invert)
    if inverted or not isinstance(index, ast.Constant) and is_boolean(spot, index):
        return True
    seen = spot.seen(index) if ask and isinstance(index, ast.Name | ast.Attribute | ast.Subscript) else []
    return bool(seen) and all(s.dtype == "bool" and s.shape for s in seen)
