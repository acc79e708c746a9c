"""Variables declared dynamic (`--dyn`): inputs and outputs of the compiled function that no call names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.inputs.read_values import is_number
from jitmagic.rules.base import root
from jitmagic.rules.words import listed


def dynamic_constants(spot: Spot) -> Iterator[Change]:
    """What is told of and whatever else changes, functions beside numbers too; then what is told of alone, or the
    variables that hold it. Functions alone are passed as arguments, where the cell itself calls them."""
    constants = [v for v in spot.evidence.variables if v.role == "constant"]
    known = {v.path: v for v in constants if is_number(v) or v.type == "function" and v.stale}
    changed = [v for v in constants if v.path in known and (v.path in spot.names or v.stale or v.rebound)]
    read = {n.id for n in spot.text.within(spot.text.tree, ast.Name)}
    if not any(is_number(v) or root(v.path) not in read for v in changed):
        return
    told = [n for n in spot.names if n in known]
    changing = [p for p, v in known.items() if p not in told and (v.stale or v.rebound)]
    arrays = [p for p, v in known.items() if p not in told + changing and v.type == "array"]
    alone = spot.evidence.dynamic_inputs == 0
    every = told + changing
    yield from _declared(spot, every + arrays if alone else every, every, told, [root(p) for p in every])


def dynamic_by_itself(spot: Spot) -> Iterator[Change]:
    """Each constant that is told of by itself, as the list or dict that holds it."""
    numbers = {v.path for v in spot.evidence.variables if v.role == "constant" and is_number(v)}
    yield from _declared(spot, *([n.partition("[")[0]] for n in spot.names if n in numbers))


def dynamic_state(spot: Spot) -> Iterator[Change]:
    """All that the function writes, with the numbers that it reads beside it in the same objects, which later calls
    may find changed; then what it writes alone, and what is told of alone."""
    # What the function adds is not there before its first call, when the declaration is read; the list is.
    added = _container if spot.declared_dyn else (lambda path: "")
    paths = {w.path: w.path if w.action != "added" else added(w.path) for w in spot.evidence.writes}
    every = [p for p in paths.values() if p]
    beside = [p for p in _read_beside(spot, every) if p not in every]
    yield from _declared(
        spot, every + beside, every, [p for path, p in paths.items() if p and path in spot.names]
    )


def _read_beside(spot: Spot, written: Sequence[str]) -> list[str]:
    """Attributes that the function takes from the objects that it writes to, but for methods; and the numbers in them
    that are known."""
    objects = {p.rpartition(".")[0] for p in written if "." in p}
    known = {v.path: is_number(v) for v in spot.evidence.variables}
    found = [p for p, number in known.items() if number and p.rpartition(".")[0] in objects]
    function = spot.text.definition(spot.function)
    nodes = list(ast.walk(function)) if function is not None else []
    called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and spot.code(node.value) in objects and id(node) not in called:
            found += [spot.code(node)] if known.get(spot.code(node), True) else []
    holders = {p for p in found for w in written if w.startswith((f"{p}.", f"{p}["))}
    return [p for p in dict.fromkeys(found) if p not in holders]


def dynamic_containers(spot: Spot) -> Iterator[Change]:
    """The lists and dicts that the function adds to, with all else that it writes; then those that hold what it
    writes; then the whole objects."""
    writes = spot.evidence.writes
    every = [w.path if w.action != "added" else _container(w.path) for w in writes]
    held = [_container(w.path) or w.path for w in writes]
    yield from _declared(spot, [p for p in every if p], held, [root(w.path) for w in writes])


def _container(path: str) -> str:
    """`self.losses` of `self.losses[0]`; empty for an attribute."""
    return path[: path.rindex("[")] if path.endswith("]") else ""


def dynamic_attributes(spot: Spot) -> Iterator[Change]:
    """The numbers in an object that jax cannot take."""
    yield from _declared(
        spot, [v.path for v in spot.evidence.variables if is_number(v) and root(v.path) in spot.names]
    )


def _declared(spot: Spot, *lists: Sequence[str]) -> Iterator[Change]:
    """Each list with what is dynamic without a declaration, which a declaration has to name too."""
    own = [v.path for v in spot.evidence.variables if v.role == "dynamic" and not v.path.startswith("<")]
    kept = [] if spot.declared_dyn else own
    for paths in dict.fromkeys(tuple(dict.fromkeys((*kept, *x))) for x in lists if x):
        functions = [v.path for v in spot.evidence.variables if v.type == "function" and v.path in paths]
        cost = f"each new {listed(functions)} compiles again" if functions else ""
        yield Change(f"make {listed(paths)} dynamic", dyn=paths, cost=cost)
