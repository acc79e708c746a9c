"""What a traced condition chooses is no array but a function or a key: the choice is made where that is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.merging import body_of, call, parts
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import stripped, truth

TITLE = "choose between the results, not between what gives them"


def candidates(place: Place) -> Iterator[Candidate]:
    """`f if c else g` and `"a" if c else "b"` of which each use is a call or an index."""
    if place.kind not in ("tracer-bool", "tracer-hash"):
        return
    choice = _expression(place) or _statement(place)
    if choice is None:
        return
    tried = (_edits(place, choice, among) for among in (_where, _cond))
    cells = [place.cell.edit(edits) for edits in tried if edits is not None]
    if len(set(cells)) == 2:
        yield Candidate(TITLE, cells[0], cost="both results are computed")
    if cells:
        yield Candidate(TITLE, cells[-1])


@dataclass(frozen=True)
class _Choice:
    """One of two expressions; `statement` binds it to `name`, else it is used where it stands."""

    node: Any
    test: Any
    sides: tuple[str, str]
    name: str = ""
    statement: Any = None


def _expression(place: Place) -> _Choice | None:
    import libcst as cst

    node = next(iter(place.on_line(cst.IfExp)), None)
    if node is None:
        return None
    sides = stripped(place.cell.code(node.body)), stripped(place.cell.code(node.orelse))
    parent = place.cell.parents.get(node)
    if isinstance(parent, cst.Assign):
        target = parent.targets[0].target
        if len(parent.targets) != 1 or not isinstance(target, cst.Name):
            return None
        return _Choice(node, node.test, sides, target.value, place.cell.statement(node))
    return _Choice(node, node.test, sides)


def _statement(place: Place) -> _Choice | None:
    """`if c: name = a` and `else: name = b`, with nothing else in them."""
    import libcst as cst

    node = next((n for n in place.path if isinstance(n, cst.If)), None)
    if node is None or not isinstance(node.orelse, cst.Else):
        return None
    found = [_binding(place, side) for side in parts(node)]
    if None in found or found[0][0] != found[1][0]:
        return None
    return _Choice(node, node.test, (found[0][1], found[1][1]), found[0][0], node)


def _binding(place: Place, statements: Sequence[Any]) -> Any:
    """The name and the source of its value, where the statements are one assignment."""
    import libcst as cst

    line = statements[0] if len(statements) == 1 else None
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return None
    target = small.targets[0].target
    return (target.value, place.cell.code(small.value)) if isinstance(target, cst.Name) else None


def _edits(place: Place, choice: _Choice, among: Any) -> dict[Any, str | None] | None:
    """The uses with the choice in them; None where one is neither a call of it nor an index by it."""
    test = stripped(truth(place, choice.test))
    if not choice.name:
        edit = _used(place, choice.node, test, choice.sides, among)
        return None if edit is None else dict([edit])
    condition = names.fresh("condition", place.taken)
    edits: dict[Any, str | None] = {choice.statement: f"{condition} = {test}\n"}
    for use in _uses(place, choice):
        edit = _used(place, use, condition, choice.sides, among)
        if edit is None:
            return None
        edits |= dict([edit])
    return edits if len(edits) > 1 else None


def _uses(place: Place, choice: _Choice) -> list[Any]:
    """Where the name is read, in the whole function: a place that binds it too is no call and no index."""
    import libcst as cst

    own = set(place.cell.within(choice.statement, cst.Name))
    scope = body_of(place.innermost) if place.innermost is not None else []
    found = [n for s in scope for n in place.cell.within(s, cst.Name) if n not in own]
    return [n for n in found if n.value == choice.name and not _is_keyword(place, n)]


def _is_keyword(place: Place, node: Any) -> bool:
    import libcst as cst

    parent = place.cell.parents.get(node)
    return (isinstance(parent, cst.Arg) and parent.keyword is node) or (
        isinstance(parent, cst.Attribute) and parent.attr is node
    )


def _used(place: Place, use: Any, test: str, sides: tuple[str, str], among: Any) -> tuple[Any, str] | None:
    """The expression around the use that is to be replaced, and its new source."""
    import libcst as cst

    parent = place.cell.parents.get(use)
    if isinstance(parent, cst.Call) and parent.func is use:
        if any(a.star or a.keyword for a in parent.args):
            return None
        arguments = [stripped(place.cell.code(a.value)) for a in parent.args]
        return parent, call(f"{place.lax}.cond", test, *sides, *arguments)
    if not isinstance(parent, cst.Index):
        return None
    whole = place.cell.parents.get(place.cell.parents.get(parent))
    if not isinstance(whole, cst.Subscript) or len(whole.slice) != 1 or whole.slice[0].slice is not parent:
        return None
    table = place.cell.code(whole.value)
    return whole, among(place, test, *(f"{table}[{side}]" for side in sides))


def _where(place: Place, test: str, a: str, b: str) -> str:
    return call(f"{place.jnp}.where", test, a, b)


def _cond(place: Place, test: str, a: str, b: str) -> str:
    return call(f"{place.lax}.cond", test, f"lambda: {a}", f"lambda: {b}")
