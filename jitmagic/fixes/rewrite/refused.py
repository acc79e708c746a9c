"""What jax's own functions refuse, with jit and without: to map, to differentiate, to branch on."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.scans import argument_of

GRADIENTS = frozenset("grad value_and_grad jacobian jacrev jacfwd hessian".split())


def candidates(place: Place) -> Iterator[Candidate]:
    """Calls that jax takes, for the reason that it gives."""
    import libcst as cst

    for said, family in FAMILIES.items() if place.kind == "user-error" else ():
        if said in place.message:
            for call in place.on_line(cst.Call):
                yield from family(place, call)


def _last_name(node: Any) -> str:
    return str(getattr(getattr(node, "attr", node), "value", ""))


def _plain(call: Any) -> list[Any]:
    """Values of the positional arguments, where there are no others."""
    return [] if any(a.keyword or a.star for a in call.args) else [a.value for a in call.args]


def _with_option(place: Place, made: Any, option: str) -> str:
    return f"{place.cell.code(made)[:-1].rstrip().rstrip(',')}, {option})"


def _mapped(place: Place, call: Any) -> Iterator[Candidate]:
    """`jax.vmap(f)(params, xs)` with `in_axes` that leave one of the arguments whole."""
    import libcst as cst

    made, given = call.func, _plain(call)
    if not isinstance(made, cst.Call) or _last_name(made.func) != "vmap" or len(given) < 2:
        return
    if argument_of(made, 1, "in_axes") is not None:
        return
    for i, argument in enumerate(given):
        axes = ", ".join("None" if j == i else "0" for j in range(len(given)))
        title = f"give `{place.cell.code(argument).strip()}` to each turn as a whole"
        yield Candidate(
            title, place.cell.edit({made: _with_option(place, made, f"in_axes=({axes})")}), "unsafe"
        )


def _as_floats(place: Place, call: Any) -> Iterator[Candidate]:
    """`jax.grad(f)(n)` of whole numbers, as floats."""
    import libcst as cst

    made, given = call.func, _plain(call)
    if not given or isinstance(made, cst.Call) and _last_name(made.func) not in GRADIENTS:
        return
    argnums = argument_of(made, 1, "argnums") if isinstance(made, cst.Call) else None
    position = place.cell.code(argnums) if argnums is not None else "0"
    if not position.isdigit() or int(position) >= len(given):
        return
    argument = given[int(position)]
    code = place.cell.code(argument)
    for new in (
        f"{place.jnp}.asarray({code}, float)",
        f"{place.jax}.tree.map(lambda v: {place.jnp}.asarray(v, float), {code})",
    ):
        yield Candidate("differentiate with respect to floats", place.cell.edit({argument: new}), "unsafe")


def _one_number(place: Place, call: Any) -> Iterator[Candidate]:
    """`jax.grad(f)` of a function with many results: of their sum; of a first result with others beside it."""
    import libcst as cst

    made = call.func
    if (
        not isinstance(made, cst.Call)
        or _last_name(made.func) not in ("grad", "value_and_grad")
        or not made.args
    ):
        return
    function, code = made.args[0].value, place.cell.code
    if "Output was (" in place.message or "<class 'tuple'>" in place.message:
        new = f"{_with_option(place, made, 'has_aux=True')}{code(call)[len(code(made)) :]}"
        changes: dict[Any, str | None] = {call: f"{new}[0]"}
        if _last_name(made.func) == "value_and_grad":
            target = _pair(place, call)
            if target is None:
                return
            changes = {call: new, target.elements[0].value: f"({code(target.elements[0].value)}, _)"}
        yield Candidate(
            "differentiate the first result, the others beside it", place.cell.edit(changes), "unsafe"
        )
    elif isinstance(function, cst.Lambda):
        body = function.body
        yield Candidate(_SUM, place.cell.edit({body: f"{place.jnp}.sum({code(body)})"}), "unsafe")
    else:
        of_sum = f"lambda *args: {place.jnp}.sum({code(function)}(*args))"
        yield Candidate(_SUM, place.cell.edit({function: of_sum}), "unsafe")


_SUM = "differentiate the sum of the results"


def _pair(place: Place, call: Any) -> Any:
    """The target of `value, gradient = ...`."""
    import libcst as cst

    assigned = place.cell.parents.get(call)
    target = assigned.targets[0].target if isinstance(assigned, cst.Assign) else None
    return target if isinstance(target, cst.Tuple) and len(target.elements) == 2 else None


def _element_by_element(place: Place, call: Any) -> Iterator[Candidate]:
    """`jax.lax.cond(mask, f, g, x)` as `jnp.where(mask, f(x), g(x))`."""
    given = _plain(call)
    if _last_name(call.func) != "cond" or len(given) < 3:
        return
    mask, *branches = given[:3]
    operands = [place.cell.code(v).strip() for v in given[3:]]
    values = [_applied(place, b, operands) for b in branches]
    new = f"{place.jnp}.where({place.cell.code(mask).strip()}, {', '.join(values)})"
    yield Candidate("choose element by element with `jnp.where`", place.cell.edit({call: new}), "safe",
                    "both values are computed")  # fmt: skip


def _applied(place: Place, function: Any, operands: list[str]) -> str:
    """What a branch gives for the operands: a lambda's body, or the call of a function."""
    code = place.cell.code(function).strip()
    tree = ast.parse(code, mode="eval").body
    if isinstance(tree, ast.Lambda) and not any(
        isinstance(n, ast.Lambda | ast.comprehension) for n in ast.walk(tree.body)
    ):
        known = dict(zip((a.arg for a in tree.args.args), operands, strict=True))
        for node in ast.walk(tree.body):
            if isinstance(node, ast.Name) and node.id in known:
                node.id = names.wrapped(known[node.id])
        return ast.unparse(tree.body)
    return f"{names.wrapped(code)}({', '.join(operands)})"


def _whole_index(place: Place, call: Any) -> Iterator[Candidate]:
    """`jax.lax.switch(x, ...)` with a float `x`, as a whole number."""
    given = _plain(call)
    if _last_name(call.func) == "switch" and given:
        new = f"{place.jnp}.asarray({place.cell.code(given[0])}, int)"
        title = "make the index a whole number, cut off after the point"
        yield Candidate(title, place.cell.edit({given[0]: new}), "unsafe")


Family = Callable[[Place, Any], Iterator[Candidate]]
FAMILIES: Mapping[str, Family] = {
    "vmap got inconsistent sizes": _mapped,
    "vmap was requested to map its argument": _mapped,
    "inputs (input dtype that is a sub-dtype of": _as_floats,
    "Gradient only defined for scalar-output functions": _one_number,
    "of type '<class 'tuple'>' is not a valid JAX type": _one_number,
    "Pred must be a scalar": _element_by_element,
    "Index type must be an integer": _whole_index,
}
"""What jax says, and who knows a correction."""
