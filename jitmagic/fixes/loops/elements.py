"""Python's functions over elements (`min`, `sorted`, `any`, `next`, filters in comprehensions) as array operations."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from jitmagic.fixes.branches.conditional import BUILTINS, statement_asks
from jitmagic.fixes.branches.truth import is_boolean, truth
from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.loops.heads import array_of, rows
from jitmagic.source.edits import Edits, Text
from jitmagic.source.loops import Turns
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import Pattern, atom, expression, stripped

ELEMENTWISE = frozenset(
    "abs absolute exp log log1p expm1 sqrt square sin cos tan tanh sign maximum minimum where isnan isinf isfinite "
    "logical_not logical_and logical_or floor ceil round mod power".split()
)
"""Functions of `jnp` that do with an array what they do with each of its elements."""
_INFINITE = "without any, the result is infinite"
FILTERED = {
    "sum": ("jnp.sum(jnp.where($test, $element, 0))", "add up those that count", ""),
    "len": ("jnp.sum($test)", "count those that count", ""),
    "any": ("jnp.any($test & $element)", "ask any", ""),
    "all": ("jnp.all(jnp.logical_not($test) | $element)", "ask all", ""),
    "max": ("jnp.max(jnp.where($test, $element, -jnp.inf))", "take the greatest", _INFINITE),
    "min": ("jnp.min(jnp.where($test, $element, jnp.inf))", "take the smallest", _INFINITE),
    "next": ("$element[jnp.argmax($test)]", "take the first that counts",
             "where none counts, it is the first and not an error"),
}  # fmt: skip
"""A call over elements that are filtered: over all of them, in words, and what it costs where it has no default."""
_SIMPLE = (
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Attribute, ast.operator, ast.unaryop,
    ast.cmpop, ast.expr_context,
)  # fmt: skip
Listing = ast.GeneratorExp | ast.ListComp


def elements(spot: Spot) -> Iterator[Change]:
    """A comprehension that asks for the truth of its elements, alone or under a call, over the whole array at once."""
    node = next((n for n in spot.path if isinstance(n, Listing)), None)
    calls = [c for c in spot.on_line(ast.Call) if c.args and isinstance(c.args[0], Listing)]
    call = next((c for c in calls if node is None or c.args[0] is node), None)
    given = call.args[0] if call is not None else node
    if statement_asks(spot) or not isinstance(given, Listing) or len(given.generators) > 1:
        return
    found, edits = Elements.of(spot, given), spot.edits()
    if call is None and isinstance(given, ast.ListComp) and isinstance(spot.text.parents[given], ast.Assign):
        element, test = found.over(found.element), found.over(found.test)
        if test and element:  # `kept = [x for x in xs if x > 0]`, of which what follows has to make something
            edits.replace(given, f"{atom(element)}[{test}]")
            yield Change("select with a mask, not element by element", edits)
    name = _python(spot, call, FILTERED) if call is not None else ""
    said = {k.arg: k.value for k in call.keywords} if call is not None else {}
    if call is None or not name or len(call.args) > 1 + (name == "next") or said.keys() - {"default"}:
        return
    default = "".join(map(spot.code, (*call.args[1:], *said.values()))) if found.test else ""
    _, words, cost = FILTERED[name]
    title = f"keep all elements, and {words}" if found.test else _title(spot, name, spot.write(f"jnp.{name}"))
    cost = cost if found.test and not default else ""
    for new in _forms(spot, name, found, default):
        yield Change(title, spot.edits().replace(call, new), cost=cost, sure=not cost)


def builtin_calls(spot: Spot) -> Iterator[Change]:
    """`min(a, b)` as `jnp.minimum(a, b)`, `max(x)` as `jnp.max(x)`; a list that has a name as an array."""
    for call in spot.on_line(ast.Call) if not statement_asks(spot) else ():
        name = _python(spot, call, BUILTINS)
        if name and call.args and not any(isinstance(a, ast.Starred) for a in call.args):
            cost = NAN_COUNTS if name in ("min", "max") and _may_hold_nan(spot, call) else ""
            for new in _descending(spot, call) if call.keywords else _counterparts(spot, name, call):
                title = _title(spot, name, new.partition("(")[0])
                yield Change(title, spot.edits().replace(call, new), cost=cost, sure=not cost)


NAN_COUNTS = "NaN stays NaN, which Python's may leave out"


def _may_hold_nan(spot: Spot, call: ast.Call) -> bool:
    """Not all that is compared is known to be whole numbers."""
    kinds = [s.dtype for a in call.args for s in spot.seen(a)]
    return not kinds or any("float" in kind for kind in kinds)


def _title(spot: Spot, name: str, new: str) -> str:
    if not f"{spot.modules.full(new) or new}.".startswith(("jax.numpy.", "jnp.")):
        return f"work on the array in place of Python's `{name}`"
    return f"call `{new}` in place of Python's `{name}`"


def _python(spot: Spot, call: ast.Call, names: Collection[str]) -> str:
    """The name of the one of Python's own functions that is called; nothing for others."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name if name in names and name not in spot.modules else ""


# --- comprehensions


@dataclass(frozen=True)
class Elements:
    """A comprehension: what it gives in each iteration, and whether that counts."""

    turns: str
    """`for x in xs`"""
    element: str
    test: str
    """Empty where every iteration counts."""
    whole: Mapping[str, str]
    """For each name of an iteration the array that holds it in all of them; empty where there is none."""

    @classmethod
    def of(cls, spot: Spot, node: Listing) -> Elements:
        """A comprehension of one loop."""
        (loop,) = node.generators
        tests = [stripped(truth(spot, i)) for i in loop.ifs]
        test = tests[0] if len(tests) == 1 else " & ".join(map(atom, tests))
        turns = f"for {stripped(spot.code(loop.target))} in {spot.code(loop.iter)}"
        return cls(turns, stripped(spot.code(node.elt)), test, _whole(spot, Turns.of(loop)))

    def over(self, source: str) -> str:
        """An expression about one iteration as one about all of them; nothing where that is not the same."""
        return substituted(source, self.whole) if self.whole and source else ""


def _whole(spot: Spot, turns: Turns | None) -> dict[str, str]:
    """`for x in xs` as {x: xs}, also under `enumerate` and `zip`, where these are arrays of one axis."""
    arrays = turns.arrays if turns is not None and not turns.backwards else []
    if turns is None or not arrays or not all(isinstance(a, ast.Name | ast.Attribute) for a in arrays):
        return {}
    shapes = [spot.seen(a) for a in arrays]
    flat = all(seen and all(len(s.shape) == 1 for s in seen) for seen in shapes)
    return dict(rows(spot, turns)) if flat else {}


def substituted(source: str, whole: Mapping[str, str]) -> str:
    """The expression with arrays for the names of their elements; nothing where that may mean something else."""
    text = Text(f"({source})")
    edits = Edits(text)
    for node in text.within(text.tree.body[0], ast.AST)[1:]:
        plain = isinstance(node, _SIMPLE) and not isinstance(node, ast.Not)
        if isinstance(node, ast.Compare):
            plain = len(node.ops) == 1 and not isinstance(node.ops[0], ast.In | ast.NotIn)
        if not plain or isinstance(node, ast.Call) and last_name(node.func) not in ELEMENTWISE:
            return ""
        if isinstance(node, ast.Name) and node.id in whole:
            edits.replace(node, whole[node.id])
    return edits.result()[1:-1]


def _forms(spot: Spot, name: str, e: Elements, default: str) -> Iterator[str]:
    """Source of the call on arrays; the form over the whole array first."""

    def form(element: str, test: str) -> str:
        template = FILTERED[name][0] if test else f"jnp.{name}($element)"
        if name == "next" and Pattern("arange(len($xs))").match(expression(element) or node, spot.modules):
            template = "jnp.argmax($test)"
        new = spot.write(template, element=element, test=test)
        if default:
            form = "jnp.where(jnp.any($test), $new, $default)"
            return spot.write(form, test=test, new=new, default=default)
        return spot.write("jnp.sum($test)", test=test) if name == "sum" and element == "1" and test else new

    def each(source: str) -> str:
        return spot.write("jnp.array([$$source $$turns])", source=source, turns=e.turns)

    node = ast.Constant(None)
    if not e.test and name in ("len", "next"):
        return
    if e.over(e.element) and bool(e.over(e.test)) == bool(e.test):
        yield form(e.over(e.element), e.over(e.test))
    if not e.test:
        return  # the call itself is for others
    if name in ("sum", "len"):
        value = "1" if name == "len" else e.element
        yield spot.write("sum(jnp.where($test, $value, 0) $$turns)", test=e.test, value=value, turns=e.turns)
    elif name in ("any", "all"):
        asked = form(e.element, e.test).partition("(")[2].removesuffix(")")
        yield spot.write(f"jnp.{name}($each)", each=each(asked))
    else:
        yield form(each(e.element), each(e.test))


# --- calls


def _counterparts(spot: Spot, name: str, call: ast.Call) -> Iterator[str]:
    if name == "bool" and is_boolean(spot, call.args[0]):
        yield truth(spot, call.args[0])
        return
    new = _counterpart(spot, name, call)
    yield new
    if len(call.args) == 1 and isinstance(call.args[0], ast.Name | ast.Attribute | ast.Subscript):
        yield f"{new.partition('(')[0]}({spot.write('jnp.array($xs)', xs=call.args[0])})"


def _counterpart(spot: Spot, name: str, call: ast.Call) -> str:
    """`min(a, b)` as `jnp.minimum(a, b)`, and so those inside it."""
    given = []
    for a in call.args:
        inner = _python(spot, a, ("min", "max")) if isinstance(a, ast.Call) and not a.keywords else ""
        given.append(_counterpart(spot, inner, a) if inner and isinstance(a, ast.Call) else spot.code(a))
    first, *others = given
    if name in ("min", "max") and others:
        for other in others:
            first = spot.write(f"jnp.{name}imum($$first, $other)", first=first, other=other)
        return first
    if isinstance(call.args[0], ast.GeneratorExp):
        first = spot.write("jnp.array([$$listed])", listed=first.removeprefix("(").removesuffix(")"))
    elif isinstance(call.args[0], ast.List | ast.Tuple | ast.ListComp):
        first = spot.write("jnp.array($listed)", listed=first)
    return spot.write(f"jnp.{BUILTINS[name]}($*given)", given=", ".join([first, *others]))


def _descending(spot: Spot, call: ast.Call) -> Iterator[str]:
    """`sorted(xs, reverse=True)`."""
    if (found := _DESCENDING.match(call, spot.modules)) is not None:
        for array in (array_of(spot, found.expr("xs")), spot.write("jnp.array($xs)", **found.holes)):
            yield spot.write("jnp.sort($array, descending=True)", array=array)


_DESCENDING = Pattern("sorted($xs, reverse=True)")
