"""What a traced condition chooses is no array but a function or a key: the choice is made where that is used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from jitmagic.fixes.branches.truth import truth
from jitmagic.fixes.change import Change, Spot
from jitmagic.source.edits import Edits
from jitmagic.source.pattern import call_of, stripped

TITLE = "choose between the results, not between what gives them"


@dataclass(frozen=True)
class _Choice:
    """One of two expressions; a statement binds it to a name, else it is used where it stands."""

    node: ast.stmt | ast.expr
    test: ast.expr
    sides: tuple[ast.expr, ast.expr]


def callees(spot: Spot) -> Iterator[Change]:
    """`f if c else g` and `"a" if c else "b"` of which each use is a call or an index."""
    forms = ("jnp.where($test, $a, $b)", "lax.cond($test, lambda: $a, lambda: $b)")
    choice = _choice(spot)
    found = [e for form in forms if choice and (e := _used(spot, choice, form))]
    if len(found) == 2 and found[0].changes != found[1].changes:
        yield Change(TITLE, found[0], cost="both results are computed")
    for edits in found[-1:]:
        yield Change(TITLE, edits)


def _choice(spot: Spot) -> _Choice | None:
    for node in spot.on_line(ast.IfExp)[:1]:
        parent = spot.text.parents[node]
        return _Choice(
            parent if isinstance(parent, ast.Assign) else node, node.test, (node.body, node.orelse)
        )
    match statement := spot.here(ast.If):
        case ast.If(
            test=test,
            body=[ast.Assign(targets=[ast.Name(id=name)], value=a)],
            orelse=[ast.Assign(targets=[ast.Name(id=other)], value=b)],
        ) if name == other and not spot.text.is_elif(statement):
            return _Choice(statement, test, (a, b))
    return None


def _used(spot: Spot, choice: _Choice, form: str) -> Edits | None:
    """The uses with the choice in them; None where one is neither a call of it nor an index by it."""
    test, edits = stripped(truth(spot, choice.test)), spot.edits()
    a, b = (stripped(spot.code(side)) for side in choice.sides)
    found = uses(spot, choice.node)
    if isinstance(choice.node, ast.stmt):
        condition = spot.fresh("condition")
        edits.statements(choice.node, f"{condition} = {test}")
        test = condition
    for use in found:
        parent = spot.text.parents[use]
        if (given := arguments(spot, use)) is not None:
            edits.replace(parent, call_of(spot.write("lax.cond"), test, a, b, *given))
        elif isinstance(parent, ast.Subscript) and parent.slice is use:
            one, two = (f"{spot.code(parent.value)}[{side}]" for side in (a, b))
            edits.replace(parent, spot.write(form, test=test, a=one, b=two))
        else:
            return None
    return edits if found else None


def uses(spot: Spot, node: ast.AST) -> list[ast.AST]:
    """Where the one name occurs that a statement binds; another expression itself."""
    bound = [n for n in spot.text.within(node, ast.Name) if isinstance(n.ctx, ast.Store)]
    if not isinstance(node, ast.stmt):
        return [node]
    names = spot.text.within(spot.innermost or spot.text.tree, ast.Name)
    own = spot.text.within(node, ast.Name)
    return [n for n in names if {b.id for b in bound} == {n.id} and n not in own]


def arguments(spot: Spot, function: ast.AST) -> list[str] | None:
    """The arguments of the call of this function; None where it is no call, or not by position."""
    match spot.text.parents[function]:
        case ast.Call(func=func, args=given, keywords=[]) if func is function:
            if not any(isinstance(a, ast.Starred) for a in given):
                return [stripped(spot.code(a)) for a in given]
    return None
