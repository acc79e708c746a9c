"""Indices outside of their array: the bound that fits, or what is to happen there in words, or a mask."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import OutOfBounds
from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.loops.heads import plus
from jitmagic.source import scope
from jitmagic.source.pattern import Pattern, atom

_MADE = Pattern("zeros($n, $*r)")
DROPPED = Claim(words="the write outside of the array stays dropped")
_RANGES = frozenset(("range", "jax.numpy.arange", "numpy.arange"))


def right_bounds(spot: Spot) -> Iterator[Change]:
    """`jnp.arange(n - 1)` for `jnp.arange(n)`, where `i + 1` is the index; `range(n)` for `range(n + 1)`; `x[n - 1]`
    for `x[n]`."""
    subscript, fact = _indexed(spot)
    index = _index_of(subscript, fact.axis) if subscript is not None and fact is not None else None
    if index is None or fact is None:
        return
    over = fact.index - (fact.size - fact.window)
    ends = list(dict.fromkeys(_ends(spot, index)))
    if not ends and over == 1 and fact.is_alone and not _holds_arrays(spot, index):
        ends = [index]
    for end in ends if over > 0 else ():
        new = plus(spot.code(end), -over)
        edits = spot.edits().replace(end, new)
        claim = Claim("new", "nothing is read or written outside of the array", rebinds=_results(spot))
        yield Change(f"end at `{new}`", edits, claim=claim)


def clipped_indices(spot: Spot) -> Iterator[Change]:
    """`x[i]` as `x[jnp.minimum(i, x.shape[0] - 1)]`, which is what jax reads; `x.at[i].add(y)` too: what is counted
    into bins belongs into the last one."""
    if _is_stored(spot):
        return
    subscript, fact = _indexed(spot)
    index = _index_of(subscript, fact.axis) if subscript is not None and fact is not None else None
    size = _size(spot, subscript.value, fact.axis) if subscript is not None and fact is not None else ""
    if index is None or fact is None or fact.window > 1 or not size:
        return
    form = "jnp.minimum($i, $$last)" if fact.index > 0 else "jnp.maximum($i, -$$n)"
    claim = Claim("new", "what was dropped outside of the array goes to its border", rebinds=_results(spot))
    edits = spot.edits().replace(index, spot.write(form, i=index, n=size, last=plus(size, -1)))
    same = fact.lands is not None
    title = "end the index at the border, as jax does" if same else "end the index at the border"
    yield Change(title, edits, claim=Claim() if same else claim, sure=False)


def _is_stored(spot: Spot) -> bool:
    """`x.at[i].set(y)`, of which the last one holds."""
    node = spot.here(ast.Subscript, ast.Call)
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "set"


def _size(spot: Spot, array: ast.expr, axis: int) -> str:
    """What says how long an axis is: `x.shape[0]`, `n` of `jnp.zeros(n)`; nothing where that is not at hand."""
    if isinstance(array, ast.Attribute) and array.attr == "at":
        array = array.value
    if (made := _MADE.match(array, spot.modules)) is not None:
        sizes = made.expr("n")
        known = sizes.elts if isinstance(sizes, ast.Tuple | ast.List) else [sizes]
        return atom(spot.code(known[axis])) if axis < len(known) else ""
    plain = isinstance(array, ast.Name | ast.Attribute | ast.Subscript)
    return f"{spot.code(array)}.shape[{axis}]" if plain else ""


def stated_modes(spot: Spot) -> Iterator[Change]:
    """`x[i]` as `x.at[i].get(mode="fill", fill_value=0)`, `x.at[i].set(y)` with `mode="drop"`."""
    node = spot.here(ast.Subscript, ast.Call)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "get":
            edits = spot.edits().argument(node, 'mode="fill", fill_value=0')
            yield Change("read 0 outside of the array", edits, claim=_filled(spot))
        elif isinstance(node.func.value, ast.Subscript) and _is_stored(spot):
            edits = spot.edits().argument(node, 'mode="drop"')
            yield Change("say that writes outside of the array are dropped", edits, claim=DROPPED)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        array, index = spot.code(node.value), spot.code(node.slice)
        new = f'{array}.at[{index}].get(mode="fill", fill_value=0)'
        yield Change("read 0 outside of the array", spot.edits().replace(node, new), claim=_filled(spot))


def _filled(spot: Spot) -> Claim:
    return Claim("new", "0 in place of what was read from outside of the array", rebinds=_results(spot))


def _indexed(spot: Spot) -> tuple[ast.Subscript | None, OutOfBounds | None]:
    """The subscript that the finding is about, and what was seen of its index."""
    node = spot.here(ast.Subscript, ast.Call)
    text = spot.code(node) if node is not None else ""
    fact = next((f for f in spot.evidence.silent.out_of_bounds if f.where.text == text), None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # `x.at[i].set(y)`
        return node.func.value if isinstance(node.func.value, ast.Subscript) else None, fact
    return node if isinstance(node, ast.Subscript) else None, fact


def _index_of(subscript: ast.Subscript, axis: int) -> ast.expr | None:
    """The index of this axis, where the text shows which it is."""
    parts = subscript.slice.elts if isinstance(subscript.slice, ast.Tuple) else [subscript.slice]
    plain = all(not isinstance(p, ast.Constant) or isinstance(p.value, int) for p in parts[: axis + 1])
    return parts[axis] if axis < len(parts) and plain and not isinstance(parts[axis], ast.Slice) else None


def _ends(spot: Spot, index: ast.expr) -> Iterator[ast.expr]:
    """Where the ranges end that the index counts through."""
    names = scope.loads(index)
    counted: list[ast.AST] = list(ast.walk(index))
    for name in names:
        if (value := spot.assigned(name)) is not None:
            counted += ast.walk(value)
    for loop in spot.text.ancestors(index):
        if isinstance(loop, ast.For) and set(scope.stores(loop.target)) & names:
            counted += ast.walk(loop.iter)
        if isinstance(loop, ast.ListComp | ast.GeneratorExp):
            own = (g.iter for g in loop.generators if set(scope.stores(g.target)) & names)
            counted += [n for looped in own for n in ast.walk(looped)]
        if isinstance(loop, ast.FunctionDef | ast.Lambda) and {*scope.parameters_of(loop)[:1]} & names:
            yield from _ends_of_loops(spot, loop)
    for call in counted:
        if isinstance(call, ast.Call) and (spot.full(call) or spot.code(call.func)) in _RANGES:
            yield from call.args[: 2 if len(call.args) > 1 else 1][-1:]


def _ends_of_loops(spot: Spot, body: ast.FunctionDef | ast.Lambda) -> Iterator[ast.expr]:
    """Of the loops of jax's whose body this function is."""
    for call in spot.text.within(spot.text.tree, ast.Call):
        if spot.full(call) == "jax.lax.fori_loop" and len(call.args) > 2:
            if call.args[2] is body or getattr(call.args[2], "id", "") == getattr(body, "name", None):
                yield call.args[1]


def _holds_arrays(spot: Spot, index: ast.expr) -> bool:
    """It has been an array of indices in the calls seen."""
    return any(shape.shape for shape in spot.seen(index))


def _results(spot: Spot) -> tuple[str, ...]:
    """Names of the cell that what the function returns may flow into."""
    reached, found = {spot.function.partition(".")[0]}, dict[str, None]()
    for statement in spot.text.tree.body:
        if scope.loads(statement) & reached:
            names = scope.stores(statement)
            reached |= set(names)
            found |= dict.fromkeys(names if not isinstance(statement, ast.FunctionDef | ast.ClassDef) else ())
    return tuple(found)
