"""What Python draws while jax traces, as an argument: each call draws for itself and passes that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.randomness.host_draws import draws_in, is_in_loop
from jitmagic.source import scope, signature
from jitmagic.source.edits import CannotEdit, Edits, FunctionNode, Text
from jitmagic.source.modules import dotted, last_name

_NAMES = {
    "normal": "noise", "randn": "noise", "standard_normal": "noise", "gauss": "noise", "uniform": "u", "rand": "u",
    "random": "u", "choice": "chosen", "permutation": "order", "randint": "number", "integers": "number",
}  # fmt: skip
"""What a parameter is called that takes the result of a draw."""


def drawn_arguments(spot: Spot) -> Iterator[Change]:
    """The draw, or the largest expression around it that the caller can make too, is an argument; a static one where
    its value has to be known."""
    function = spot.text.definition(spot.function)
    if function is None or _origins(spot) & {"fixed", "captured"} or len(draws_in(spot, function)) > 1:
        return
    for node in _expressions(spot, function):
        for static in (False, True):
            name, edits, later = _passed(spot, function, node)
            title = f"pass `{spot.code(node)}` as an argument at each call"
            more, claim = ((name, spot.code(node)),), Claim("other random")
            yield Change(title, edits, later, (name,) if static else (), passed=more, claim=claim)


def objects_made_once(spot: Spot) -> Iterator[Change]:
    """An object that a function makes anew from a fixed seed at each call, to call it, is made once beside the
    function and passed: its random state goes on."""
    function = spot.text.definition(spot.function)
    for made in spot.on_line(ast.Assign) if function is not None and "fixed" in _origins(spot) else ():
        target, value = made.targets[0], made.value
        assert function is not None
        called = [dotted(c.func).partition(".")[0] for c in spot.text.within(function, ast.Call)]
        if isinstance(target, ast.Name) and target.id in called and value in _expressions(spot, function):
            name, edits, later = _passed(spot, function, value, once=True)
            title = f"make `{name}` once and pass it as an argument"
            yield Change(title, edits, later, claim=Claim("other random"))


def _origins(spot: Spot) -> set[str]:
    """Where the random numbers of the line come from."""
    silent = spot.evidence.silent if spot.evidence is not None else None
    line = spot.text.lines[spot.line - 1].strip()
    return {f.origin for f in silent.random if f.where.source == line} if silent is not None else set()


def _expressions(spot: Spot, function: FunctionNode) -> list[ast.expr]:
    """Expressions with the draw in them that read nothing local but parameters: the largest without a parameter, which
    can be made anywhere, first."""
    text, names = spot.text, {name.partition("(")[0] for name in spot.names}
    asked = [n for n in text.within(function, ast.Call, ast.Subscript) if n.lineno == spot.line]
    told = [n for n in asked if any(_names(part, names) for part in ast.walk(n))]
    draws = told or asked or _calls_towards(spot, function)
    draw = min(draws, key=lambda n: len(spot.code(n)), default=None)
    if draw is None or is_in_loop(spot, draw):
        return []
    parameters = set(scope.parameters_of(function))
    found: list[ast.expr] = [draw]
    for node in text.ancestors(draw):
        if isinstance(node, ast.expr):
            found.append(node)
        elif not isinstance(node, ast.keyword):
            break
    outer = [n for n in found if not isinstance(text.parents[n], ast.Expr)]
    known = [n for n in outer if not scope.loads(n) & (scope.local_names(function) - parameters)]
    free = [n for n in known if not scope.loads(n) & parameters]
    return [*reversed(free), *(n for n in known if n not in free)]


def _names(node: ast.AST, names: set[str]) -> bool:
    found = dotted(node)
    return bool(found) and any(found == n or found.startswith(f"{n}.") for n in names if n)


def _calls_towards(spot: Spot, function: FunctionNode) -> list[ast.Call | ast.Subscript]:
    """Calls in the function that lead to the helper that draws."""
    reached: set[str] = {spot.outermost.name} if spot.outermost is not None else set()
    helpers = [n for n in spot.text.within(spot.text.tree, ast.FunctionDef) if n is not function]
    while True:
        calls = [c for c in spot.text.within(function, ast.Call) if last_name(c.func) in reached]
        callers = {
            h.name
            for h in helpers
            if any(last_name(c.func) in reached for c in spot.text.within(h, ast.Call))
        }
        if calls or callers <= reached:
            return list(calls)
        reached |= callers


def _passed(
    spot: Spot, function: FunctionNode, node: ast.expr, *, once: bool = False
) -> tuple[str, Edits, tuple[str, ...]]:
    """A parameter in the place of an expression: its name, and the changes of the cell and of later cells. `once`: the
    expression is made below the function."""
    program = spot.cells()
    edits, statement = program[0], spot.text.statement(node)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is node else None
    if isinstance(target, ast.Name) and target.id not in scope.parameters_of(function):
        name = target.id
        edits.remove(statement)
    else:
        called = [last_name(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)]
        words = [_NAMES[name] for name in called if name in _NAMES]
        name = spot.fresh(*words, "value")
        edits.replace(node, name)
    keyword = signature.add_parameter(edits, function, name)
    if once:
        around = [function, *spot.text.ancestors(function)]
        top = next(n for n in around if isinstance(n, ast.stmt) and n in spot.text.tree.body)
        edits.after(top, f"{name} = {spot.code(node)}")
    for place in program:
        for call in place.text.calls(spot.function):
            value = name if once else _at_call(spot, place, call, function, node)
            signature.pass_to(place, call, name, value, keyword=keyword)
    return name, edits, tuple(place.result() for place in program[1:])


def _at_call(spot: Spot, place: Edits, call: ast.Call, function: FunctionNode, node: ast.expr) -> str:
    """The expression with what a call passes in the place of parameters. Raises CannotEdit where that would run twice,
    or is not known."""
    inner, parameters = Edits(Text(spot.code(node))), scope.parameters_of(function)
    for name in (n for n in inner.text.within(inner.text.tree, ast.Name) if n.id in parameters):
        bound = isinstance(spot.text.parents[function], ast.ClassDef) and isinstance(call.func, ast.Attribute)
        if bound and name.id == parameters[0] and isinstance(call.func, ast.Attribute):
            inner.replace(name, place.text.code(call.func.value))
            continue
        given = signature.argument_of(call, function, name.id, bound=bound)
        value = given if given is not None else scope.defaults_of(function).get(name.id)
        calls = [n for n in ast.walk(value) if isinstance(n, ast.Call)] if value is not None else []
        if value is None or not all(_gives_the_same(spot, c) for c in calls):
            raise CannotEdit("the argument would be computed twice")
        inner.replace(name, place.text.code(value) if given is not None else spot.code(value))
    return inner.result()


def _gives_the_same(spot: Spot, call: ast.Call) -> bool:
    """`jnp.ones(3)`, `len(x)`: to write it twice gives the same twice."""
    module = spot.full(call).partition(".")[0]
    return module in ("jax", "numpy") or last_name(call.func) in ("float", "int", "len")
