"""Values that a function reads by name: arguments that every call passes, of the helpers in between too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from jitmagic.evidence import Variable
from jitmagic.fixes.change import Change, Spot
from jitmagic.rules.base import root
from jitmagic.rules.words import listed
from jitmagic.source import passing, scope, signature


def read_values(spot: Spot) -> Iterator[Change]:
    """What is told of becomes an argument; a static one where no array can stand for it."""
    known = _told(spot)
    paths = [p for p, v in known.items() if not v.written]
    for wanted in dict.fromkeys((tuple(paths), tuple(dict.fromkeys(map(root, paths))))):
        numbers = all(is_number(v) for v in known.values())
        if wanted and (numbers or all(v.type != "function" for v in known.values())):
            yield from _taken(spot, wanted)
        if wanted and not any(v.type == "array" for v in known.values()):
            yield from _taken(spot, wanted, static=_word(known))


def left_out(spot: Spot) -> Iterator[Change]:
    """Calls pass an array for which the parameter's default stood: `f(x)` as `f(x, basis=BASIS)`."""
    function = passing.definition_of(spot.text, spot.function)
    for name, default in scope.defaults_of(function).items():
        if name in spot.names and isinstance(default, ast.Name | ast.Attribute):
            cells, path = spot.cells(), spot.code(default)
            for there in cells:
                for call in there.text.calls(spot.function):
                    if signature.argument_of(call, function, name) is None:
                        signature.pass_to(there, call, name, path, keyword=True)
            yield Change.of_cells(f"pass `{path}` at each call", cells)


def is_number(variable: Variable) -> bool:
    """A number, or an array of numbers."""
    return variable.type in ("array", "scalar") and variable.dtype not in ("str", "bytes", None)


def _word(known: Mapping[str, Variable]) -> str:
    return "function" if all(v.type == "function" for v in known.values()) else "value"


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
