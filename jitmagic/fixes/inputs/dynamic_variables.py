"""Variables that a function reads by name: declared dynamic (`--dyn`), inputs and outputs that no call names, or
arguments that every call passes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence

from jitmagic.evidence import Variable
from jitmagic.fixes.change import Change, Spot
from jitmagic.rules.base import root
from jitmagic.rules.words import listed
from jitmagic.source import passing, scope, signature


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
    told = [p for path, p in paths.items() if p and path in spot.names]
    yield from _declared(spot, every + beside, every, told)


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
    writes; then the whole objects, and those among the arguments that jax cannot take."""
    writes = spot.evidence.writes
    every = [w.path if w.action != "added" else _container(w.path) for w in writes]
    held = [_container(w.path) or w.path for w in writes]
    objects = [root(w.path) for w in writes]
    given = [root(n) for n in spot.names if root(n) in spot.evidence.function.parameters]
    yield from _declared(spot, [p for p in every if p], held, objects, [*objects, *given])


def _container(path: str) -> str:
    """`self.losses` of `self.losses[0]`; empty for an attribute."""
    return path[: path.rindex("[")] if path.endswith("]") else ""


def dynamic_attributes(spot: Spot) -> Iterator[Change]:
    """The numbers in an object that jax cannot take."""
    numbers = [v.path for v in spot.evidence.variables if is_number(v)]
    yield from _declared(spot, [path for path in numbers if root(path) in spot.names])


def _declared(spot: Spot, *lists: Sequence[str]) -> Iterator[Change]:
    """Each list, but for modules and for arrays that are passed, with what is dynamic without a declaration, which a
    declaration has to name too."""
    passed = {w.path for w in spot.evidence.writes if w.origin == "argument"}
    passed &= {*spot.evidence.function.parameters}
    lists = tuple(
        [p for p in x if p not in passed and spot.modules.full(p) not in sys.modules] for x in lists
    )
    own = [v.path for v in spot.evidence.variables if v.role == "dynamic" and not v.path.startswith("<")]
    kept = [] if spot.declared_dyn else own
    for paths in dict.fromkeys(tuple(dict.fromkeys((*kept, *x))) for x in lists if x):
        functions = [v.path for v in spot.evidence.variables if v.type == "function" and v.path in paths]
        cost = f"each new {listed(functions)} compiles again" if functions else ""
        yield Change(f"make {listed(paths)} dynamic", dyn=paths, cost=cost)


# --- as arguments ------------------------------------------------------------------------------------


def read_values(spot: Spot) -> Iterator[Change]:
    """What is told of becomes an argument; a static one where no array can stand for it."""
    known = _told(spot)
    paths = [p for p, v in known.items() if not v.written]
    for wanted in dict.fromkeys((tuple(paths), tuple(dict.fromkeys(map(root, paths))))):
        numbers = all(is_number(v) for v in known.values())
        if wanted and (numbers or all(v.type != "function" for v in known.values())):
            yield from _taken(spot, wanted)
        if wanted and not any(v.type == "array" for v in known.values()):
            functions = all(v.type == "function" for v in known.values())
            yield from _taken(spot, wanted, static="function" if functions else "value")


def left_out(spot: Spot) -> Iterator[Change]:
    """Calls pass an array for which the parameter's default stood: `f(x)` as `f(x, basis=BASIS)`."""
    function = passing.definition_of(spot.text, spot.function)
    for name, default in scope.defaults_of(function).items():
        if name in spot.names and isinstance(default, ast.Name | ast.Attribute):
            cells, path = spot.cells(), spot.code(default)
            for there in cells:
                for call in there.text.calls(spot.function):
                    if signature.argument_of(call, function, name) is None:
                        signature.pass_to(there, call, {name: path}, keyword=True)
            yield Change.of_cells(f"pass `{path}` at each call", cells)


def is_number(variable: Variable) -> bool:
    """A number, or an array of numbers."""
    return variable.type in ("array", "scalar") and variable.dtype not in ("str", "bytes", None)


def _told(spot: Spot) -> dict[str, Variable]:
    """The variables that the finding names, by path."""
    known = {v.path: v for v in spot.evidence.variables if v.role == "constant"}
    stale = {p: v for p, v in known.items() if v.stale and p in spot.names}
    return stale or {p: known[p] for p in spot.names if p in known}


def _taken(spot: Spot, paths: Sequence[str], static: str = "") -> Iterator[Change]:
    """The function and the helpers in between take these, all calls pass them."""
    text, edits = spot.text, spot.edits()
    main = passing.definition_of(text, spot.function)
    reads = {p: passing.reads_of(text, p, main) for p in paths}
    for path, nodes in list(reads.items()):
        around = [text.parents[n] for n in nodes]
        if nodes and all(isinstance(a, ast.Call) and spot.code(a) == f"len({path})" for a in around):
            reads = {f"len({p})" if p == path else p: around if p == path else r for p, r in reads.items()}  # type: ignore[misc]
    if not all(reads.values()):
        return  # it is read by another name
    takers = passing.chain(text, main, [n for nodes in reads.values() for n in nodes])
    taken = {name for t in takers for n in text.within(t, ast.FunctionDef) for name in scope.local_names(n)}
    new: list[passing.Passed] = []
    for path, nodes in reads.items():
        name = signature.name_for(path)
        if not name or name in taken or name != path and name in {p.name for p in new}:
            name = edits.fresh(f"the_{name}" if name else "value", taken=spot.modules.names)
        new.append(passing.Passed(name, path))
        for node in nodes if name != path else ():
            edits.replace(node, name)
    by_name = bool(static and spot.evidence.options.static_argnums)
    later = passing.pass_down(edits, spot.later, takers, new, spot.modules, by_name=by_name)
    names = [p.name for p in new]
    if static:
        title = f"take {listed(names)} as a static argument: each new {static} compiles again"
        yield Change(title, edits, later, static=tuple(names), sure=False)
    else:
        yield Change(f"take {listed(names)} as an argument", edits, later, sure=False)
