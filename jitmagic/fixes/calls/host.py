"""Library functions that want numbers and have no counterpart in jax: called on the host."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import jax

from jitmagic.fixes.calls.counterparts import NO_COUNTERPART, has_counterpart
from jitmagic.fixes.change import Change, Spot, Tag
from jitmagic.source import scope
from jitmagic.source.edits import shifted
from jitmagic.source.pattern import call_of

COST = "it runs in Python at each call and has no gradient"


def pure_callbacks(spot: Spot) -> Iterator[Change]:
    """The call of the place through `jax.pure_callback`, which hands it the values while the program runs."""
    call = spot.here(ast.Call)
    if call is None or not _is_foreign(spot, call):
        return
    taken: set[str] = set(spot.modules.names)
    inside, operands = spot.edits(), dict[str, ast.expr]()
    for value in (*call.args, *(k.value for k in call.keywords)):
        if spot.is_traced(value):
            own = value.id if isinstance(value, ast.Name) else spot.text.fresh("v", taken=taken)
            taken.add(own)
            operands[own] = value
            inside.replace(value, own)
    result = _seen(spot, call)
    if len({dtype for _, dtype in result}) != 1:
        return
    (shape, dtype), *others = result
    like = next((v for v in operands.values() if _seen(spot, v) == result), None)
    size = spot.write("jnp.shape($x)", x=like) if like is not None else repr(shape)
    if others and like is None:
        return
    number = spot.write(f"jnp.{dtype}")
    function = spot.write("lambda $$names: np.asarray($call, $number)", names=", ".join(operands),
                          call=inside.code(call), number=number)  # fmt: skip
    form = spot.write("jax.ShapeDtypeStruct($size, $number)", size=size, number=number)
    new = call_of(spot.write("jax.pure_callback"), function, form, *map(spot.code, operands.values()))
    new = shifted(new, "", " " * spot.text.statement(call).col_offset)
    as_seen = like is None and shape != ()
    yield Change(
        f"call `{spot.code(call.func)}` on the host through `jax.pure_callback`", spot.edits().replace(call, new),
        cost=f"{COST}; its shape is as in the calls seen" if as_seen else COST, sure=False,
        tags=frozenset({Tag.CALLBACK, *([Tag.AS_SEEN] if as_seen else [])}),
    )  # fmt: skip


def _is_foreign(spot: Spot, call: ast.Call) -> bool:
    """A function from outside the cell and jax, which gives a value that is used."""
    full, root = spot.full(call), spot.code(call.func).partition(".")[0]
    if not spot.code(call.func).replace(".", "").isidentifier() or full.startswith("jax."):
        return False
    if full.startswith("numpy.") and full.split(".")[1] in NO_COUNTERPART or has_counterpart(spot, call):
        return False
    own = not full and root in {*spot.traced, *scope.stores(spot.text.tree)}
    used = not isinstance(spot.text.parents.get(call), ast.Expr)
    return used and not own and not any(isinstance(a, ast.Starred) for a in call.args)


def _seen(spot: Spot, node: ast.AST) -> set[tuple[tuple[int, ...], str]]:
    """Shapes and dtypes of an expression in a run without jit, as jax has them."""
    try:
        return {(s.shape, str(jax.dtypes.canonicalize_dtype(s.dtype))) for s in spot.seen(node) if s.dtype}
    except TypeError:  # an object that is no array
        return set()
