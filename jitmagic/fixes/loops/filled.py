"""Lists that a Python loop fills: what they begin with, what each iteration adds, how far back it reads; their uses, as
uses of the arrays that `scan` and `vmap` stack in their place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
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
    name, inner = getattr(made.targets[0], "id", ""), made.value
    uses, edits = uses_after(spot, made, name), spot.edits().remove(made)
    below = {
        n for s in spot.text.own(spot.innermost, ast.stmt) if s.lineno > made.lineno for n in scope.stores(s)
    }
    if (
        uses
        and spot.assigned(name) is inner
        and not scope.loads(inner) & below
        and len(inner.generators) == 1
    ):
        for use in uses:
            _inlined(spot, edits, inner, use)
        yield Change("select where the selection is used", edits)


def _inlined(spot: Spot, edits: Edits, inner: ast.ListComp, use: ast.Name) -> None:
    """One use of a selection. Raises CannotEdit where that is more than going over the elements."""
    loop, (of,) = spot.text.parents[use], inner.generators
    if isinstance(loop, ast.Call) and loop.args == [use] and spot.code(loop.func) in FILTERED:
        edits.replace(use, spot.code(inner))
        return
    if (
        not isinstance(loop, ast.comprehension | ast.For)
        or loop.iter is not use
        or getattr(loop, "orelse", None)
    ):
        raise CannotEdit("the selection is used otherwise")
    whole = loop if isinstance(loop, ast.For) else spot.text.parents[loop]
    same, own = spot.code(loop.target) == stripped(spot.code(inner.elt)), set(scope.stores(loop.target))
    names = [n for n in spot.text.within(whole, ast.Name) if n not in spot.text.within(loop.target, ast.Name)]
    if ({n.id for n in names} - scope.loads(inner.elt) - own) & set(scope.stores(of.target)):
        raise CannotEdit("names of the selection mean something else there")
    if not same and not isinstance(loop.target, ast.Name):
        raise CannotEdit("its elements are unpacked")
    for read in names if not same else ():
        if read.id in own:
            edits.replace(read, atom(spot.code(inner.elt)))
    target, looped, *asked = (stripped(spot.code(n)) for n in (of.target, of.iter, *of.ifs))
    both = " and ".join(map(atom, asked)) if asked[1:] else asked[0]
    if isinstance(loop, ast.For):
        body = indented(indented(edits.block(loop.body)))
        edits.statements(loop, f"for {target} in {looped}:\n    if {both}:\n{body}", loop)
    else:
        edits.replace(loop.target, target).replace(use, " if ".join((looped, *asked)))


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
        elif (
            kept or all(s in added for s in below) and not (spot.kept and spot.text.within(x.value, ast.Call))
        ):
            gone.append(x.holder)  # a call in what is returned would come behind the attributes
        else:
            x.code = _singular(spot, x, "".join(f"{y.code}\n" for y in lists if y.code.isidentifier()))
            edits.statements(x.holder, f"{x.code} = {code}")
    return edits.block([s for s in loop.body if s not in gone])


def _singular(spot: Spot, x: Filled, taken: str) -> str:
    """A name for one element of the list."""
    name = _one_of(x.name)
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
    first = _one_of(x.name)
    newest = first if first not in ("", x.name) else "last"
    usual = [newest, "before_last", *(f"back_{k}" for k in range(3, 9))]
    for wanted in usual[: max(back.values(), default=0)]:
        x.lasts.append(spot.fresh(wanted, f"this_{wanted}", f"{wanted}_now"))
    for parent, steps in back.items():
        edits.replace(parent, x.lasts[steps - 1])


def _reads(spot: Spot, loop: ast.For, x: Filled) -> Iterator[ast.Name]:
    """Reads of the list in the loop, without that of the statement that adds to it."""
    adding = (s for s in spot.text.within(x.holder, ast.stmt) if not isinstance(s, ast.If))
    added = {n for s in adding for n in spot.text.within(s, ast.Name)}
    added -= set(spot.text.within(x.value, ast.Name))
    names = (n for s in loop.body for n in spot.text.within(s, ast.Name))
    yield from (n for n in names if n.id == x.name and n not in added)


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


# --- uses --------------------------------------------------------------------------------------------

STACKS = (
    Pattern("stack($xs)"),
    Pattern("stack($xs, axis=0)"),
    Pattern("array($xs)"),
    Pattern("asarray($xs)"),
)
_JOINED = (Pattern("tree.map($f, *$xs)"), Pattern("tree_util.tree_map($f, *$xs)"))


def stacks(spot: Spot, node: ast.AST) -> bool:
    """The call makes one array of a list, along a new first axis."""
    return any(p.match(node, spot.modules) for p in STACKS)


def uses_after(spot: Spot, statement: ast.stmt, name: str) -> list[ast.Name]:
    """Where a name stands in the function around a statement, below it."""
    around, end = spot.text.function(statement) or spot.text.tree, spot.text.span(statement)[1]
    return [n for n in spot.text.within(around, ast.Name) if n.id == name and spot.text.span(n)[0] > end]


def as_stacked(spot: Spot, edits: Edits, uses: Sequence[ast.Name], value: ast.expr) -> str:
    """`jnp.stack(seen)` as `seen`, where each entry is like `value`, and `list(seen)` where a list is needed. Gives a
    statement that makes a list of it again, where something is done with that list or name."""
    several, name = isinstance(value, ast.Tuple), uses[0].id if uses else ""
    listed = f"list(zip(*{name}))" if several else f"list({name})"
    if any(isinstance(spot.text.parents[n], ast.Attribute) or not isinstance(n.ctx, ast.Load) for n in uses):
        return f"{name} = {listed}\n"
    for node in uses:
        use = _use_of_several(spot, node) if several else _use_of_rows(spot, node)
        edits.replace(*(use or (node, listed)))
    return ""


def _use_of_rows(spot: Spot, node: ast.Name) -> tuple[ast.AST, str] | None:
    """What stands for a use of a list in which each entry is an array; None where it has to be a list."""
    parent, name = spot.text.parents[node], node.id
    match parent:
        case ast.Call() if stacks(spot, parent):
            return parent, name
        case ast.Call(ast.Name("sum"), [_], []):
            return parent, f"{name}.sum(0)"
        case ast.Call(func, arguments) if node in arguments:
            own = isinstance(func, ast.Name) and func.id == "len"
            return (node, name) if own or spot.full(parent).startswith("jax.numpy.") else None
        case ast.Starred() if _joins(spot, spot.text.parents[parent]):
            return spot.text.parents[parent], name
        case ast.Subscript(value) if value is not node:
            return None
        case ast.Subscript() | ast.Starred() | ast.For() | ast.comprehension():
            return node, name
    return None


def _use_of_several(spot: Spot, node: ast.Name) -> tuple[ast.AST, str] | None:
    """What stands for a use of a list in which each entry is a tuple of arrays."""
    parent, name = spot.text.parents[node], node.id
    around = spot.text.parents.get(parent)
    match parent, around:
        case ast.Starred(), ast.Call(ast.Name("zip"), [_], []) as whole:
            return whole, name
        case ast.Starred(), ast.Call() as whole if _joins(spot, whole):
            return whole, name
        case ast.comprehension(each, _, []), ast.ListComp(part, [_]) if (at := _part(each, part)) is not None:
            if stacks(spot, outer := spot.text.parents[around]):
                return outer, f"{name}[{at}]"
            return around, f"list({name}[{at}])"
        case ast.Subscript(value, index), _ if value is node:
            return parent, spot.write("jax.tree.map(lambda v: v[$at], $$n)", at=index, n=name)
        case ast.Call(), _ if stacks(spot, parent):
            return parent, spot.write("jnp.stack($$n, axis=1)", n=name)
    return None


def _part(each: ast.expr, part: ast.expr) -> int | None:
    """Which part of an entry `o[1]` is, or `b`, where the entry is `o`, or `a, b`."""
    match each, part:
        case ast.Name(entry), ast.Subscript(ast.Name(of), ast.Constant(int() as at)) if entry == of:
            return at
        case ast.Tuple(parts), ast.Name(name):
            names = [n.id if isinstance(n, ast.Name) else "" for n in parts]
            return names.index(name) if name in names else None
    return None


def _joins(spot: Spot, node: ast.AST) -> bool:
    """Trees are stacked leaf by leaf."""
    return any(p.match(node, spot.modules) for p in _JOINED)


def _one_of(plural: str) -> str:
    """The name of one of several things: `spike` of `spikes`, `loss` of `losses`; the name itself where it is none."""
    return plural.removesuffix("es") if plural.endswith("sses") else plural.removesuffix("s")
