"""Lists that a Python loop fills: what they begin with, what each iteration adds, and how far back it reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.loops.elements import FILTERED
from jitmagic.fixes.loops.heads import fresh, plus
from jitmagic.source import scope
from jitmagic.source.edits import CannotEdit, Edits, indented
from jitmagic.source.loops import Turns
from jitmagic.source.pattern import Pattern, atom, stripped


@dataclass
class Filled:
    """A list that a loop fills, by one statement of its body."""

    name: str
    value: ast.expr
    holder: ast.stmt
    """The statement of the body that adds the value, or an `if` around that."""
    front: bool
    """It is filled from its front, by `insert(0, …)`."""
    made: ast.Assign
    start: list[ast.expr]
    code: str = ""
    """Name or expression of what an iteration adds."""
    lasts: list[str] = field(default_factory=list)
    """Names of the newest elements, as far back as the loop reads them."""

    @property
    def plain(self) -> bool:
        """Every iteration adds to its end, and none reads it."""
        return not (self.lasts or self.front or isinstance(self.holder, ast.If))


class Addition(NamedTuple):
    """What a statement adds to a list; `front`: not at its end."""

    statement: ast.stmt
    name: str
    value: ast.expr
    front: bool = False


def addition(spot: Spot, statement: ast.stmt, counter: str = "") -> Addition | None:
    """`xs.append(v)`, `xs.insert(0, v)`, `xs += [v]`, or `xs[i] = v` with a counter."""
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [value])):
            return Addition(statement, name, value)
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "insert"), [ast.Constant(0), value])):
            return Addition(statement, name, value, front=True)
        case ast.AugAssign(ast.Name(name), ast.Add(), ast.List([value])):
            return Addition(statement, name, value)
        case ast.Assign([ast.Subscript(ast.Name(name), index)], value) if spot.code(index) == counter:
            return Addition(statement, name, value)
    return None


def filled_lists(spot: Spot, loop: ast.For) -> list[Filled]:
    """The lists that one statement of the loop fills, each made above it."""
    found: list[Filled] = []
    turns, made = Turns.of(loop), _made_above(spot, loop)
    numbers = turns.counting if turns is not None and not turns.backwards else None
    counter = spot.code(loop.target) if numbers is not None and numbers.plain else ""
    for holder in loop.body:
        only = holder.body[0] if isinstance(holder, ast.If) and len(holder.body) == 1 else holder
        added = addition(spot, only, counter) if not getattr(holder, "orelse", None) else None
        if added is None or added.name not in made:
            continue
        statement, value = made[added.name]
        stored, listed = isinstance(only, ast.Assign), isinstance(value, ast.List)
        if _MADE.match(value, spot.modules) if stored else listed or spot.code(value) == "list()":
            start = value.elts if isinstance(value, ast.List) else []
            found.append(Filled(added.name, added.value, holder, added.front, statement, start))
    names = [x.name for x in found]
    return [x for x in found if names.count(x.name) == 1]


_MADE = Pattern("[$x] * $n")


def _made_above(spot: Spot, loop: ast.For) -> dict[str, tuple[ast.Assign, ast.expr]]:
    """The last assignment to each name above a loop, `xs, ys = [], []` as two."""
    found: dict[str, tuple[ast.Assign, ast.expr]] = {}
    for statement in spot.text.own(spot.text.function(loop) or spot.text.tree, ast.Assign):
        target, value = statement.targets[0], statement.value
        together = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs = zip(target.elts, value.elts, strict=False) if together else [(target, value)]  # type: ignore[attr-defined]
        if statement.lineno < loop.lineno:
            found |= {t.id: (statement, v) for t, v in pairs if isinstance(t, ast.Name)}
    return found


def selected_lists(spot: Spot) -> Iterator[Change]:
    """`kept = []` and `for x in xs:` with `if c: kept.append(e)` alone, as `kept = [e for x in xs if c]`."""
    test = spot.here(ast.If)
    loop = spot.text.parents.get(test) if test is not None else None
    if not isinstance(loop, ast.For) or test is None or loop.orelse or len(loop.body) != 1:
        return
    for x in filled_lists(spot, loop):
        if x.start or x.front or not isinstance(x.made.targets[0], ast.Name):
            continue
        element, target, asked = (stripped(spot.code(n)) for n in (x.value, loop.target, test.test))
        new = f"{x.name} = [{element} for {target} in {spot.code(loop.iter)} if {asked}]"
        edits = spot.edits().remove(x.made).statements(loop, new)
        yield Change("select what counts in one expression", edits)


def inlined_selections(spot: Spot) -> Iterator[Change]:
    """`kept = [e for x in xs if c]`, of which what follows goes over the elements: the selection where that is done."""
    made = spot.here(ast.Assign)
    if made is None or spot.innermost is None or not isinstance(made.value, ast.ListComp):
        return
    inner, names = made.value, [t.id for t in made.targets if isinstance(t, ast.Name)]
    if len(names) != 1 or len(inner.generators) != 1 or spot.assigned(names[0]) is not inner:
        return
    below = [n for n in spot.text.own(spot.innermost, ast.stmt) if n.lineno > made.lineno]
    uses = [
        n for n in spot.text.own(spot.innermost, ast.Name) if n.id == names[0] and n is not made.targets[0]
    ]
    edits = spot.edits().remove(made)
    if uses and not scope.loads(inner) & {n for s in below for n in scope.stores(s)}:
        for use in uses:
            _inlined(spot, edits, inner, use)
        yield Change("select where the selection is used", edits)


def _inlined(spot: Spot, edits: Edits, inner: ast.ListComp, use: ast.Name) -> None:
    """One use of a selection. Raises CannotEdit where that is more than going over the elements."""
    loop = spot.text.parents[use]
    if isinstance(loop, ast.Call) and loop.args == [use] and spot.code(loop.func) in FILTERED:
        edits.replace(use, spot.code(inner))
        return
    if not isinstance(loop, ast.comprehension | ast.For) or loop.iter is not use:
        raise CannotEdit("the selection is used otherwise")
    whole = loop if isinstance(loop, ast.For) else spot.text.parents[loop]
    (of,) = inner.generators
    if not isinstance(loop.target, ast.Name) and spot.code(loop.target) != spot.code(inner.elt):
        raise CannotEdit("its elements are unpacked")
    taken = scope.all_names(whole) - scope.loads(inner.elt) - set(scope.stores(loop.target))
    if taken & set(scope.stores(of.target)) or isinstance(loop, ast.For) and loop.orelse:
        raise CannotEdit("names of the selection mean something else there")
    if isinstance(loop.target, ast.Name):
        for read in (
            n for n in spot.text.within(whole, ast.Name) if n.id == loop.target.id and n is not loop.target
        ):
            edits.replace(read, atom(spot.code(inner.elt)))
    head = f"for {stripped(spot.code(of.target))} in {spot.code(of.iter)}"
    tests = [spot.code(t) for t in of.ifs]
    if isinstance(loop, ast.For):
        asked = " and ".join(map(atom, tests)) if len(tests) > 1 else tests[0]
        edits.statements(
            loop, f"{head}:\n    if {asked}:\n" + indented(indented(edits.block(loop.body))), loop
        )
    else:
        more = [*tests, *map(edits.code, loop.ifs)]
        opened = spot.code(whole)[0]
        code = f"{edits.code(whole.elt)} {head} {' '.join(f'if {t}' for t in more)}"  # type: ignore[attr-defined]
        edits.replace(whole, opened + code + {"(": ")", "[": "]", "{": "}"}[opened])


def without_lists(spot: Spot, loop: ast.For, turns: Turns, lists: list[Filled], edits: Edits) -> str:
    """The body without what it does with its lists: elements that it reads go by names of their own, what it adds by
    the `code` of each. Raises CannotEdit where it does something else with one."""
    for x in lists:
        _read_back(spot, loop, turns, x, edits)
    added, gone = [x.holder for x in lists], []
    for x in lists:
        code = edits.code(x.value)
        open_ended = "\n" in code and not isinstance(x.value, ast.Call | ast.Tuple | ast.List | ast.Dict)
        code = x.code = f"({code})" if open_ended else code
        below = loop.body[loop.body.index(x.holder) + 1 :]
        kept = isinstance(x.value, ast.Name) and x.value.id not in scope.stores(scope.body_of(below))
        if x.lasts:
            x.code = x.lasts[0]
            edits.statements(x.holder, f"{', '.join(x.lasts)} = {', '.join([code, *x.lasts[:-1]])}")
        elif kept or all(s in added for s in below):
            gone.append(x.holder)
        else:
            x.code = _singular(spot, x, "".join(f"{y.code}\n" for y in lists if y.code.isidentifier()))
            edits.statements(x.holder, f"{x.code} = {code}")
    return edits.block([s for s in loop.body if s not in gone])


def _singular(spot: Spot, x: Filled, taken: str) -> str:
    """A name for one element of the list."""
    name = x.name.removesuffix("s")
    wanted = [name, f"this_{name}"] if len(name) > 1 and name != x.name else []
    return fresh(spot, taken, *wanted, f"{x.name}_now")


def _read_back(spot: Spot, loop: ast.For, turns: Turns, x: Filled, edits: Edits) -> None:
    back: dict[ast.Subscript, int] = {}
    for node in _reads(spot, loop, x):
        parent = spot.text.parents[node]
        steps = _steps_back(spot, turns, x, parent) if isinstance(parent, ast.Subscript) else 0
        if not isinstance(parent, ast.Subscript) or x.front or not 0 < steps <= len(x.start):
            raise CannotEdit(f"the loop reads {x.name}")
        back[parent] = steps
    first = x.name.removesuffix("s")
    usual = [
        first if first not in ("", x.name) else "last",
        "before_last",
        *(f"back_{k}" for k in range(3, 9)),
    ]
    for wanted in usual[: max(back.values(), default=0)]:
        x.lasts.append(spot.fresh(wanted, f"this_{wanted}", f"{wanted}_now"))
    for parent, steps in back.items():
        edits.replace(parent, x.lasts[steps - 1])


def _reads(spot: Spot, loop: ast.For, x: Filled) -> Iterator[ast.Name]:
    """Reads of the list in the loop, without that of the statement that adds to it."""
    adding = (s for s in spot.text.within(x.holder, ast.stmt) if not isinstance(s, ast.If))
    added = {n for s in adding for n in spot.text.within(s, ast.Name)}
    added -= set(spot.text.within(x.value, ast.Name))
    yield from (
        n for s in loop.body for n in spot.text.within(s, ast.Name) if n.id == x.name and n not in added
    )


def _steps_back(spot: Spot, turns: Turns, x: Filled, node: ast.Subscript) -> int:
    """How far from the end of the list an element stands: 1 for `xs[-1]`, and for `xs[i]` of the newest."""
    index, numbers, counter = spot.code(node.slice), turns.counting, turns.columns[0].target
    if index.startswith("-") and index[1:].isdigit():
        return int(index[1:])
    first = "0" if numbers is None or numbers.start is None else spot.code(numbers.start)
    if numbers is None or numbers.step is not None or turns.backwards or not first.isdigit():
        return 0
    ahead = next((k for k in range(-9, 9) if plus(spot.code(counter), k) == index), None)
    after = spot.text.span(node)[0] > spot.text.span(x.holder)[1]
    return 0 if ahead is None else len(x.start) + after - int(first) - ahead
