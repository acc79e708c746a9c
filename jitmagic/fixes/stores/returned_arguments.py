"""What a function changes for its caller, given back: an argument or state that it writes is one more result, and the
calls bind it again."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.stores.rebinding import stores_of
from jitmagic.rules.base import root
from jitmagic.rules.parsed_text import only_stored, stores_into
from jitmagic.rules.words import listed
from jitmagic.source import scope, signature
from jitmagic.source.edits import Edits, FunctionNode, Text

COST = "the caller's own array stays as it is"


def returned_arguments(spot: Spot) -> Iterator[Change]:
    """A function that returns nothing returns the arguments that it changes."""
    function = spot.innermost
    if function is not None and all(r.value is None for r in spot.text.own(function, ast.Return)):
        own = {*scope.stores(scope.body_of(function.body)), *_changed(spot, function)}
        if names := [p for p in _arguments(spot, function) if p in own]:
            yield given_back(spot, function, names)


def given_back(spot: Spot, function: FunctionNode, names: Sequence[str]) -> Change:
    """The function returns these parameters, beside its result where it has one; calls bind them again."""
    edits, own = spot.edits(), not spot.function or spot.text.definition(spot.function) is function
    alone = signature.give_back(edits, function, names)
    _bound_again(spot, edits, function, names, alone=alone)
    beside = "" if alone else " beside the result"
    it, comes = ("it", "comes") if len(names) == 1 else ("them", "come")
    title = f"return {listed(names)} from `{function.name}`{beside}, and bind {it} again where that is called"
    if not own:
        return Change(title, edits)
    cells = [edits, *spot.cells()[1:]]
    for cell in cells[1:]:
        _bound_again(spot, cell, function, names, alone=alone)
    words = f"{listed(names)} {comes} back from the call"
    claim = Claim("new", words, rebinds=tuple(_variables_passed(spot, function, names)))
    return Change.of_cells(title, cells, claim=claim, cost=COST)


def _variables_passed(spot: Spot, function: FunctionNode, names: Sequence[str]) -> set[str]:
    """Variables of the notebook that are passed for these parameters."""
    texts = [spot.text, *map(Text, spot.later)]
    calls = [call for text in texts for call in _calls_of(text, spot, function)]
    given = [signature.argument_of(call, function, name) for call in calls for name in names]
    return {root(ast.unparse(node)) for node in given if node is not None}


def given_back_arguments(spot: Spot) -> Iterator[Change]:
    """An argument of the caller's that jax copies (a list, dict or registered object), into which the function only
    stores: it is returned, beside the result if there is one, and bound again."""
    function = spot.text.definition(spot.function)
    name = root(next(iter(spot.names), ""))
    if function is None or name not in scope.parameters_of(function):
        return
    if not only_stored(function, name) and not any(w.path.startswith(f"{name}.") for w in spot.writes):
        return
    returned = [n.value for n in spot.text.own(function, ast.Return) if n.value is not None]
    if not any(isinstance(v, ast.Name) and v.id == name for v in returned):  # it is not given back already
        yield given_back(spot, function, [name])


def copied_arguments(spot: Spot) -> Iterator[Change]:
    """A function works on a copy of the dict or list that it writes into; of what that holds too, where it must."""
    names = {root(w.path) for w in spot.writes if w.origin == "argument"}
    function = spot.text.definition(spot.function)
    if function is not None and len(names) == 1:
        (name,) = names
        kept = tuple(_variables_passed(spot, function, [name]))
        claim = Claim("same", f"what the caller passes as `{name}` stays as it is", rebinds=kept)
        for copy in ("$name.copy()", "jax.tree.map(lambda leaf: leaf, $name)"):
            head = spot.write(f"$$name = {copy}", name=name)
            edits = spot.edits().before(signature.first_statement(function), head)
            yield Change(f"work on a copy of `{name}`", edits, claim=claim)


# --- what is changed, and where it is bound -----------------------------------------------------------


def _arguments(spot: Spot, function: FunctionNode) -> list[str]:
    """Parameters without the receiver of a method."""
    return scope.parameters_of(function)[isinstance(spot.text.parents[function], ast.ClassDef) :]


def _changed(spot: Spot, function: FunctionNode) -> set[str]:
    """Names into whose items or attributes the function stores."""
    places = spot.text.own(function, ast.Subscript, ast.Attribute)
    found = {spot.code(p) for p in places if isinstance(getattr(p, "ctx", None), ast.Store)}
    for statement in spot.text.own(function, ast.Expr):
        stores = stores_of(spot, statement)
        found |= {stores_into(statement), *(stores.values if stores is not None else ())}
    return {root(place) for place in found}


def _calls_of(text: Text, spot: Spot, function: FunctionNode) -> list[ast.Call]:
    """The calls of a function of the cell in a text, in the order in which they run."""
    kind = spot.text.parents[function]
    name = f"{kind.name}.{function.name}" if isinstance(kind, ast.ClassDef) else function.name
    return sorted(text.calls(name), key=lambda c: text.span(c)[1])


def _bound_again(
    spot: Spot, edits: Edits, function: FunctionNode, names: Sequence[str], *, alone: bool
) -> None:
    """A source that calls the function, with what it gives bound to the places that it was passed."""
    for call in _calls_of(edits.text, spot, function):
        nodes = [signature.argument_of(call, function, name) for name in names]
        kept = (ast.Name, ast.Attribute, ast.Subscript)
        places = [edits.text.code(n) if isinstance(n, kept) else "_" for n in nodes]
        if places != ["_"] or not alone:
            signature.bind_again(edits, call, places, alone=alone)
