"""Sizes that jnp computes from shapes and static numbers, which are traced then: computed by Python instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot
from jitmagic.source import scope
from jitmagic.source.edits import Edits
from jitmagic.source.pattern import Pattern, atom
from jitmagic.source.tree import in_order

_FOLLOWED = 20
"""How many assignments are looked at for the origin of a size."""

_ROWS = {
    "int(ceil($n))": "math.ceil($n)", "int(floor($n))": "math.floor($n)", "int(prod($n))": "math.prod($n)",
    "astype(ceil($n), $t)": "math.ceil($n)", "astype(floor($n), $t)": "math.floor($n)", "astype($n, $t)": "int($n)",
    "ceil($n)": "math.ceil($n)", "floor($n)": "math.floor($n)", "prod($n)": "math.prod($n)",
    "trunc($n)": "math.trunc($n)",
    "sqrt($n)": "math.sqrt($n)", "exp($n)": "math.exp($n)", "log($n)": "math.log($n)", "log2($n)": "math.log2($n)",
    "log10($n)": "math.log10($n)", "round($n)": "round($n)", "rint($n)": "round($n)",
    "sum($n)": "sum($n)", "max($n)": "max($n)", "min($n)": "min($n)", "abs($n)": "abs($n)", "absolute($n)": "abs($n)",
    "maximum($a, $b)": "max($a, $b)", "minimum($a, $b)": "min($a, $b)", "clip($n, $a, $b)": "min(max($n, $a), $b)",
    "add($a, $b)": "$a + $b", "subtract($a, $b)": "$a - $b", "multiply($a, $b)": "$a * $b", "power($a, $b)": "$a ** $b",
    "floor_divide($a, $b)": "$a // $b", "true_divide($a, $b)": "$a / $b", "divide($a, $b)": "$a / $b",
    "mod($a, $b)": "$a % $b", "remainder($a, $b)": "$a % $b", "cumsum($n)": "np.cumsum($n)", "size($x)": "$x.size",
    "array($n)": "$n", "asarray($n)": "$n", "int32($n)": "int($n)", "item($n)": "$n",
}  # fmt: skip
_AROUND = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Attribute, ast.Subscript)
_PATTERNS = [(Pattern(source), template) for source, template in _ROWS.items()]


def shape_arithmetic(spot: Spot) -> Iterator[Change]:
    """`jnp.prod(jnp.array(x.shape))` as `math.prod(x.shape)`; where a number among the arguments is asked too, that is
    static then."""
    on_line = (c for call in spot.on_line(ast.Call) for c in spot.text.within(call, ast.Call))
    sources, whole = [*_origins(spot), *dict.fromkeys(on_line)], spot.outermost
    inputs = scope.traced_names(whole, spot.known, ()) if whole is not None else set(spot.names)
    for static in ((), tuple(n for n in spot.scalars if n not in spot.static)):
        edits, used = spot.edits(), set[str]()
        for source in sources:
            if edits and any(a in sources for a in spot.text.ancestors(source)):
                continue
            if not scope.traced_in(source, inputs - set(static)) and (new := _by_python(spot, source)):
                edits.replace(source, new)
                used |= scope.loads(source) & set(static)
        if edits and (used or not static):
            cost = "each new value compiles again" if used else ""
            kept = tuple(n for n in static if n in used)
            yield Change("compute the size with Python, not with `jnp`", edits, static=kept, cost=cost)


def _origins(spot: Spot) -> list[ast.expr]:
    """What gives the names on the line their values, and the names in that theirs."""
    found: list[ast.expr] = []
    waiting = [n.id for n in spot.on_line(ast.Name)]
    while waiting and len(found) < _FOLLOWED:
        value = spot.assigned(waiting.pop(0))
        if value is not None and value not in found:
            found.append(value)
            waiting += [n.id for n in spot.text.within(value, ast.Name)]
    return found


def _by_python(spot: Spot, source: ast.expr) -> str | None:
    """The expression with each function of jax by its row; None where it has none, or calls others too."""
    edits: Edits = spot.edits()
    for node in [*in_order(source)][::-1]:
        if not isinstance(node, ast.Call) or not _makes_array(spot, node):
            continue
        found = next(((m, t) for p, t in _PATTERNS if (m := p.match(node, spot.modules))), None)
        if found is not None:
            new = spot.write(found[1], edits, **found[0].holes)
            edits.replace(node, atom(new) if isinstance(spot.text.parents[node], _AROUND) else new)
        elif spot.full(node).startswith("jax."):
            return None
    return edits.code(source) if edits else None


def _makes_array(spot: Spot, node: ast.Call) -> bool:
    """A function of jax, a method of what one gives, or a conversion of that."""
    inner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
    if spot.full(node).startswith("jax."):
        return True
    return not spot.full(node) and isinstance(inner, ast.Call) and _makes_array(spot, inner)
