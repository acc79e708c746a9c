"""What calls pass, passed in another form: one function object, an array for a number, a copy of what is given away."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.rules.words import listed
from jitmagic.source import scope


def made_once(spot: Spot) -> Iterator[Change]:
    """A lambda or the like that is written at each call is made once, before the first of them."""
    for name in spot.names:
        made, cells = dict[str, str](), spot.cells()
        for there, argument, _ in spot.given(cells, name):
            code = there.text.code(argument)
            if not isinstance(argument, ast.Lambda | ast.Call):
                continue
            if code not in made:
                taken = {*spot.modules.names, *made.values(), *scope.stores(spot.text.tree)}
                made[code] = name if name not in taken else spot.fresh(f"the_{name}", f"{name}_{len(made)}")
                define = f"{made[code]} = {code}"
                if there is cells[0]:
                    there.before(there.text.top(argument), define)
                else:
                    cells[0].after(spot.text.tree.body[-1], define)
            there.replace(argument, made[code])
        if made:
            yield Change.of_cells(f"make `{name}` once, before the calls", cells, claim=Claim(fewer="traces"))


def numbers_as_arrays(spot: Spot) -> Iterator[Change]:
    """A number for a jit to which all but arrays is static, passed as an array."""
    told = {x.path for x in spot.every_leaf if x.static and x.kind == "scalar" and x.path in spot.names}
    for name in sorted(told - spot.static):
        yield passed_as(spot, (name,), "jnp.asarray($x)", f"pass `{name}` as an array")


def copies(spot: Spot) -> Iterator[Change]:
    """Calls pass a copy of an argument that they give away."""
    options = spot.evidence.options
    donated = spot.evidence.function.chosen(options.donate_argnames, options.donate_argnums)
    trees = {x.argument for x in spot.every_leaf if x.path != x.argument}
    form = "jax.tree.map(jnp.copy, $x)" if trees & {*donated} else "jnp.copy($x)"
    yield passed_as(spot, donated, form, f"pass a copy for {listed(donated)}")


def passed_as(spot: Spot, names: Sequence[str], form: str, title: str) -> Change:
    """The same change of what all calls pass for these parameters."""
    cells = spot.cells()
    for there, argument, _ in spot.given(cells, *names):
        there.replace(argument, spot.write(form, there, x=argument))
    return Change.of_cells(title, cells)
