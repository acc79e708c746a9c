"""What jax's own functions refuse, with jit and without: to map, to differentiate, to branch on."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.loops.lax_calls import spelt_out
from jitmagic.source.edits import Edits
from jitmagic.source.modules import argument_at
from jitmagic.source.pattern import atom
from jitmagic.tracing.messages import Refusal, refusal

GRADIENTS = frozenset(f"jax.{f}" for f in "grad value_and_grad jacobian jacrev jacfwd hessian".split())


def refusals(spot: Spot) -> Iterator[Change]:
    """Calls that jax takes, for the reason that it gives."""
    said = refusal(spot.message)
    correct = CORRECTIONS[said] if said is not None else lambda spot, call: iter(())
    for call in spot.on_line(ast.Call):
        if not call.keywords and not any(isinstance(a, ast.Starred) for a in call.args):
            yield from correct(spot, call)


def _made(spot: Spot, call: ast.Call, *full: str) -> ast.Call | None:
    """`jax.vmap(f)` where its result is called: right there, or by the name that it was given."""
    made = spelt_out(spot, spot.outermost or spot.text.tree, call.func)
    made = spelt_out(spot, spot.text.tree, made)
    return made if isinstance(made, ast.Call) and spot.full(made) in full else None


def _mapped(spot: Spot, call: ast.Call) -> Iterator[Change]:
    """`jax.vmap(f)(params, xs)` with `in_axes` that leave one of the arguments whole."""
    made = _made(spot, call, "jax.vmap")
    if made is None or len(call.args) < 2 or argument_at(made, 1, "in_axes") is not None:
        return
    for whole in call.args:
        axes = ", ".join("None" if a is whole else "0" for a in call.args)
        edits = spot.edits().argument(made, f"in_axes=({axes})")
        yield Change(f"map over the other arguments, and pass `{spot.code(whole)}` whole", edits, sure=False)


def _as_floats(spot: Spot, call: ast.Call) -> Iterator[Change]:
    """`jax.grad(f)(n)` of whole numbers, as floats."""
    made = _made(spot, call, *GRADIENTS)
    number = argument_at(made, 1, "argnums") if made is not None else None
    written = number.value if isinstance(number, ast.Constant) else 0 if number is None else None
    position = written if isinstance(written, int) else -1
    if made is None and not isinstance(call.func, ast.Name) or position not in range(len(call.args)):
        return
    x = call.args[position]
    for new in ("jnp.asarray($x, float)", "jax.tree.map(lambda v: jnp.asarray(v, float), $x)"):
        edits = spot.edits().replace(x, spot.write(new, x=x))
        yield Change("differentiate with respect to floats", edits, sure=False)


def _of_sum(spot: Spot, call: ast.Call) -> Iterator[Change]:
    """`jax.grad(f)` of a function with many results: of their sum."""
    made = _made(spot, call, "jax.grad", "jax.value_and_grad")
    if made is not None and made.args:
        function = made.args[0]
        if isinstance(function, ast.Lambda):
            edits = spot.edits().replace(function.body, spot.write("jnp.sum($x)", x=function.body))
        else:
            edits = spot.edits().replace(function, spot.write("lambda *args: jnp.sum($f(*args))", f=function))
        yield Change("differentiate the sum of the results", edits, sure=False)


def _of_first(spot: Spot, call: ast.Call) -> Iterator[Change]:
    """`jax.grad(f)` of a function with several results: of the first, with the others beside it."""
    made = _made(spot, call, "jax.grad", "jax.value_and_grad")
    if made is None:
        return
    edits = spot.edits().argument(made, "has_aux=True")
    if spot.full(made) == "jax.value_and_grad":
        assign = spot.text.parents[call]
        target = assign.targets[0] if isinstance(assign, ast.Assign) else None
        if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
            return
        edits.replace(target.elts[0], f"({spot.code(target.elts[0])}, _)")
    else:
        edits.insert(spot.text.span(call)[1], "[0]")
    yield Change("differentiate the first result, the others beside it", edits, sure=False)


def _element_by_element(spot: Spot, call: ast.Call) -> Iterator[Change]:
    """`jax.lax.cond(mask, f, g, x)` as `jnp.where(mask, f(x), g(x))`."""
    if spot.full(call) == "jax.lax.cond" and len(call.args) >= 3:
        mask, yes, no, *operands = call.args
        values = {name: _applied(spot, branch, operands) for name, branch in (("yes", yes), ("no", no))}
        new = spot.write("jnp.where($mask, $yes, $no)", mask=mask, **values)
        yield Change("choose element by element with `jnp.where`", spot.edits().replace(call, new),
                     cost="both values are computed")  # fmt: skip


def _applied(spot: Spot, function: ast.expr, operands: list[ast.expr]) -> str:
    """What a branch gives for the operands: a lambda's body, or the call of a function."""
    simple = isinstance(function, ast.Lambda) and not spot.text.within(
        function.body, ast.Lambda, ast.comprehension
    )
    if not isinstance(function, ast.Lambda) or not simple:
        return f"{atom(spot.code(function))}({', '.join(map(spot.code, operands))})"
    known = dict(zip((a.arg for a in function.args.args), operands, strict=True))
    edits = Edits(spot.text)
    for name in spot.text.within(function.body, ast.Name):
        if name.id in known:
            edits.replace(name, spot.code(known[name.id]))
    return edits.code(function.body)


def _whole_index(spot: Spot, call: ast.Call) -> Iterator[Change]:
    """`jax.lax.switch(x, ...)` with a float `x`, as a whole number."""
    if spot.full(call) == "jax.lax.switch" and call.args:
        edits = spot.edits().replace(call.args[0], spot.write("jnp.asarray($x, int)", x=call.args[0]))
        yield Change("make the index a whole number, cut off after the point", edits, sure=False)


CORRECTIONS: Mapping[Refusal, Callable[[Spot, ast.Call], Iterator[Change]]] = {
    "mapping": _mapped,
    "gradient of integers": _as_floats,
    "gradient of several results": _of_first,
    "gradient of many numbers": _of_sum,
    "array as predicate": _element_by_element,
    "index that is no integer": _whole_index,
}
