"""What calls pass, passed in another form: one function object, an array for a number, a copy of what is given away."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.rules.words import listed
from jitmagic.source import passing, scope, signature
from jitmagic.source.edits import Edits, FunctionNode, Text

Form = Callable[[Edits, ast.expr], str]
"""Code for an argument in another form."""


def made_once(spot: Spot) -> Iterator[Change]:
    """A lambda or the like that is written at each call is made once, before the first of them."""
    for name in spot.names:
        made, cell = dict[str, str](), spot.edits()
        later = [Edits(Text(s)) for s in spot.later]
        for there in (cell, *later):
            for argument in _given(spot, there, (name,)):
                code = there.text.code(argument)
                if not isinstance(argument, ast.Lambda | ast.Call):
                    continue
                if code not in made:
                    taken = {*spot.modules.names, *made.values(), *scope.stores(spot.text.tree)}
                    made[code] = (
                        name if name not in taken else spot.fresh(f"the_{name}", f"{name}_{len(made)}")
                    )
                    define = f"{made[code]} = {code}"
                    if there is cell:
                        cell.before(_top(there.text, argument), define)
                    else:
                        cell.after(spot.text.tree.body[-1], define)
                there.replace(argument, made[code])
        if made:
            title = f"make `{name}` once, before the calls"
            sources = tuple(e.result() for e in later)
            yield Change(title, cell, sources, claim=Claim(fewer="traces"))


def numbers_as_arrays(spot: Spot) -> Iterator[Change]:
    """A number for a jit to which all but arrays is static, passed as an array."""
    leaves = [x for c in (spot.evidence.calls if spot.evidence is not None else ()) for x in c.leaves]
    told = {x.path for x in leaves if x.static and x.kind == "scalar" and x.path in spot.names}
    undeclared = told - {*spot.declared_static}
    array = spot.modules.written("jnp.asarray")
    for name in sorted(undeclared):
        title = f"pass `{name}` as an array"
        yield from _passing(spot, (name,), lambda e, a: f"{array}({e.text.code(a)})", title)


def copies(spot: Spot) -> Iterator[Change]:
    """Calls pass a copy of an argument that they give away."""
    if spot.evidence is None:
        return
    order, options = spot.evidence.function.parameters, spot.evidence.options
    numbered = [order[n] for n in options.donate_argnums if -len(order) <= n < len(order)]
    donated = tuple(dict.fromkeys((*options.donate_argnames, *numbered)))
    trees = {x.argument for c in spot.evidence.calls for x in c.leaves if x.path != x.argument}
    form = "jax.tree.map(jnp.copy, $x)" if trees & {*donated} else "jnp.copy($x)"
    yield from _passing(
        spot, donated, lambda e, a: spot.write(form, e, x=a), f"pass a copy for {listed(donated)}"
    )


def _passing(spot: Spot, names: Sequence[str], form: Form, title: str) -> Iterator[Change]:
    """The same change of what all calls pass for these parameters."""
    edits = spot.edits()
    later = [Edits(Text(s)) for s in spot.later]
    for there in (edits, *later):
        for argument in _given(spot, there, names):
            there.replace(argument, form(there, argument))
    yield Change(title, edits, tuple(e.result() for e in later))


def _given(spot: Spot, there: Edits, names: Sequence[str]) -> Iterator[ast.expr]:
    """What calls pass for these parameters."""
    function = passing.definition_of(spot.text, spot.function)
    for call in there.text.calls(spot.function):
        yield from _arguments(call, function, names)


def _arguments(call: ast.Call, function: FunctionNode, names: Sequence[str]) -> Iterator[ast.expr]:
    for name in names:
        bound = isinstance(call.func, ast.Attribute)
        argument = signature.argument_of(call, function, name, bound=bound)
        if argument is not None:
            yield argument


def _top(text: Text, node: ast.AST) -> ast.stmt:
    """The statement at the top of a cell that holds a node."""
    return next(n for n in text.ancestors(node) if isinstance(n, ast.stmt) and text.parents[n] is text.tree)
