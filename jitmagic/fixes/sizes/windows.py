"""Windows of a width that is known, at a start that may be traced; pieces of an array put together in another order."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from itertools import product

from jitmagic.fixes.change import Change, Spot
from jitmagic.source.pattern import Pattern, atom, stripped

MOVED = "a window that would reach beyond the end is moved back"
_TAKE = "take a window of fixed width with `jax.lax.dynamic_slice_in_dim`"
_STORE = "store a window of fixed width with `jax.lax.dynamic_update_slice_in_dim`"
_JOINED = {
    "concatenate([$x[$i:], $x[:$i]])": ("turn the array round with `jnp.roll`", "jnp.roll($x, -$i, axis=0)"),
    "concatenate([$x[:$i], $x[$i + 1:]])": (
        "leave out an element with `jnp.delete`", "jnp.delete($x, jnp.array([$i]), axis=0, assume_unique_indices=True)",
    ),
    "concatenate([$x[:$i], $v, $x[$i:]])": ("put in elements with `jnp.insert`", "jnp.insert($x, $i, $v, axis=0)"),
}  # fmt: skip
_JOINS = [(Pattern(source), *rest) for source, rest in _JOINED.items()]
Terms = dict[tuple[str, ...], int]


def windows(spot: Spot) -> Iterator[Change]:
    """`jnp.arange(i, i + n)` as `i + jnp.arange(n)`, `x[i:i + n]` and stores there as dynamic slices."""
    yield from _counted(spot)
    yield from _joined(spot)
    for node in spot.on_line(ast.Subscript):
        store = _store(spot, node)
        if store is not None:
            yield from _stored(spot, node, *store)
        elif isinstance(node.ctx, ast.Load) and (new := dynamic_slice(spot, node)) is not None:
            yield Change(_TAKE, spot.edits().replace(node, new), cost=MOVED)


def _counted(spot: Spot) -> Iterator[Change]:
    for call in spot.on_line(ast.Call):
        if spot.full(call) != "jax.numpy.arange" or len(call.args) != 2 or call.keywords:
            continue
        low, width = call.args[0], difference(spot, call.args[1], call.args[0])
        if width is not None and not spot.is_traced(ast.parse(width)):
            start = stripped(spot.code(low)) if isinstance(low, ast.BinOp) else atom(spot.code(low))
            new = spot.write("$$start + jnp.arange($width)", start=start, width=width)
            alone = ast.Assign | ast.Return | ast.Call | ast.keyword | ast.Subscript
            new = new if isinstance(spot.text.parents[call], alone) else f"({new})"
            title = "count a fixed number of steps from a start that may be traced"
            yield Change(title, spot.edits().replace(call, new))


def _joined(spot: Spot) -> Iterator[Change]:
    """`concatenate([x[:i], x[i + 1:]])`: the length does not depend on where the array is cut."""
    for node, (pattern, title, template) in product(spot.on_line(ast.Call), _JOINS):
        match = pattern.match(node, spot.modules)
        if match is not None:
            yield Change(title, spot.edits().replace(node, spot.write(template, **match.holes)))


# -- slices


def is_traced(spot: Spot, piece: ast.Slice) -> bool:
    """A bound of the slice has no value while jax traces."""
    return any(b is not None and spot.is_traced(b) for b in (piece.lower, piece.upper, piece.step))


def window(spot: Spot, piece: ast.expr) -> tuple[str, str] | None:
    """Start and width of a slice whose width is known while jax traces; None where it has none."""
    match piece:
        case ast.Slice(lower=ast.expr() as lower, upper=ast.expr() as upper, step=None):
            width = difference(spot, upper, lower)
            if width is not None and not spot.is_traced(ast.parse(width)):
                return stripped(spot.code(lower)), width
    return None


def dynamic_slice(spot: Spot, node: ast.Subscript) -> str | None:
    """`x[a:a + n]` as `dynamic_slice_in_dim`, axis by axis; other indices follow behind."""
    text, rest = spot.code(node.value), list[str]()
    for axis, piece in enumerate(node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]):
        if isinstance(piece, ast.Constant) and piece.value in (None, ...):
            return None
        if not (isinstance(piece, ast.Slice) and is_traced(spot, piece)):
            rest.append(spot.code(piece))
            continue
        found = window(spot, piece)
        if found is None:
            return None
        start, width = found
        at = f"axis={axis}" if axis else ""
        text = spot.write("lax.dynamic_slice_in_dim($x, $i, $n, $*at)", x=text, i=start, n=width, at=at)
        rest.append(":")
    if text == spot.code(node.value):
        return None
    while rest and rest[-1] == ":":
        rest.pop()
    return f"{text}[{', '.join(rest)}]" if rest else text


def _store(spot: Spot, node: ast.Subscript) -> tuple[ast.stmt | ast.Call, ast.expr, ast.expr] | None:
    """What stores into the item, the array and the value: `x[a:b] = v` or `x.at[a:b].set(v)`."""
    match spot.text.parents[node]:
        case ast.Assign(targets=[target], value=value) as statement if target is node:
            return statement, node.value, value
        case ast.Attribute(attr="set") as method if (
            isinstance(node.value, ast.Attribute) and node.value.attr == "at"
        ):
            call = spot.text.parents[method]
            if isinstance(call, ast.Call) and call.func is method and len(call.args) == 1:
                return call, node.value.value, call.args[0]
    return None


def _stored(
    spot: Spot, node: ast.Subscript, store: ast.stmt | ast.Call, array: ast.expr, value: ast.expr
) -> Iterator[Change]:
    found = window(spot, node.slice)
    if found is None:
        return
    start, width = found
    shape = spot.write("($width, *$x.shape[1:])", width=width, x=array)
    spread = spot.write("jnp.broadcast_to($v, $shape)", v=value, shape=shape)
    for form in (spot.code(value), spread):
        new = spot.write("lax.dynamic_update_slice_in_dim($x, $v, $i, axis=0)", x=array, v=form, i=start)
        code = spot.write("$x = $new", x=array, new=new) if isinstance(store, ast.stmt) else new
        yield Change(_STORE, spot.edits().replace(store, code), cost=MOVED)


# -- what is left of a difference


def difference(spot: Spot, upper: ast.expr, lower: ast.expr) -> str | None:
    """`upper - lower` where what is traced cancels: `(i + 1) * b` less `i * b` is `b`."""
    parts = []
    total = _sum(_terms(spot, upper), _terms(spot, lower), -1)
    for key, number in sorted(total.items(), key=lambda kv: (kv[0] == (), kv[1] < 0)):
        size = [str(abs(number))] if abs(number) != 1 or not key else []
        parts.append(("- " if number < 0 else "+ ") + " * ".join([*size, *map(atom, key)]))
    whole = " ".join(parts)
    return None if not parts else whole[2:] if whole.startswith("+ ") else f"-{whole[2:]}"


def _sum(a: Terms, b: Terms, sign: int = 1) -> Terms:
    return {k: v for k in {**a, **b} if (v := a.get(k, 0) + sign * b.get(k, 0))}


def _terms(spot: Spot, node: ast.expr, depth: int = 0) -> Terms:
    """A sum of products as numbers by their factors; anything that is no sum or product is a factor."""
    match node:
        case ast.Constant(value=int(number)):
            return {(): number}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _sum({}, _terms(spot, operand, depth), -1)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() as op, left=left, right=right):
            a, b = _terms(spot, left, depth), _terms(spot, right, depth)
            if not isinstance(op, ast.Mult):
                return _sum(a, b, 1 if isinstance(op, ast.Add) else -1)
            pairs = ((k, m, v * w) for k, v in a.items() for m, w in b.items())
            return functools.reduce(_sum, ({tuple(sorted((*k, *m))): v} for k, m, v in pairs), Terms())
        case ast.Name(id=name) if depth < 8 and isinstance(value := spot.assigned(name), ast.BinOp):
            return _terms(spot, value, depth + 1)  # `end = start + 4`
    return {(ast.unparse(node),): 1}
