"""Functions that are compiled anew in a loop or in each call: defined and compiled once, with what varies as
arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.rules.parsed_text import bound_names
from jitmagic.source import passing, scope, signature
from jitmagic.source.edits import CannotEdit, Edits, FunctionNode
from jitmagic.source.modules import last_name

TITLE = "jit once, and pass what varies as arguments"
DERIVATIVES = frozenset("grad value_and_grad jacfwd jacrev jacobian hessian".split())
Definition = FunctionNode | ast.Lambda


@dataclass(frozen=True)
class Captured:
    """What a function reads of those around it: the name of its parameter, and whether it is a function itself."""

    name: str
    value: str
    is_function: bool = False


def compiled_once(spot: Spot) -> Iterator[Change]:
    """The `jit` on the line stands at the top of the cell, or in front of the loop."""
    for node in spot.on_line(ast.Call):
        if passing.is_jit(node, spot.modules) and node.args:
            yield from _attempts(_at_the_top(spot, node), _before_loop(spot, node))
            return
    decorated = [
        f for f in spot.text.functions
        if spot.text.top(f) is not f and not isinstance(spot.text.parents[f], ast.ClassDef)
        and len(f.decorator_list) == 1 and spot.line in (f.lineno, f.decorator_list[0].lineno)
    ]  # fmt: skip
    for function in decorated:
        yield from _attempts(_moved(spot, function), _moved(spot, function, static=True))


def _attempts(*offered: Iterator[Edits]) -> Iterator[Change]:
    for edits in offered:
        try:
            yield from (Change(TITLE, e, claim=Claim(fewer="compilations")) for e in edits)
        except (CannotEdit, LookupError):
            continue


def _before_loop(spot: Spot, jit: ast.Call) -> Iterator[Edits]:
    """What depends on no iteration, compiled in front of the loop."""
    text, edits = spot.text, spot.edits()
    loop = text.around(jit, ast.For, ast.While)
    if loop is None or text.function(jit) is not text.function(loop):
        return
    changed = {ast.unparse(n) for n in ast.walk(loop) if isinstance(getattr(n, "ctx", None), ast.Store)}
    read = {ast.unparse(n) for n in ast.walk(jit) if isinstance(n, ast.Attribute)}
    if (scope.loads(jit) | read) & changed:
        return
    statement = text.statement(jit)
    if isinstance(statement, ast.Assign) and statement.value is jit:
        yield edits.before(loop, text.code(statement)).remove(statement)
    else:
        name = spot.fresh("compiled", "jitted")
        yield edits.before(loop, f"{name} = {text.code(jit)}").replace(jit, name)


def _at_the_top(spot: Spot, jit: ast.Call) -> Iterator[Edits]:
    """`jit(lambda v: v * k)(x)` as `compiled(x, k)`, with `compiled = jit(lambda v, k: v * k)` at the top."""
    edits, statement = spot.edits(), spot.text.statement(jit)
    top = spot.text.top(jit)
    applied = _applied(spot, jit, top)
    above, captured, by_name = _closed(spot, edits, jit, top)
    code = edits.code(jit)
    if scope.loads(code) & bound_names(top) - set(scope.stores(above)):
        return  # it depends on more
    if static := [c.name for c in captured if c.is_function]:
        code = f"{code[:-1]}, static_argnames=({', '.join(map(repr, static))},))"
    name = spot.fresh("compiled", "jitted")
    for call, use in applied:
        edits.replace(use, name)
        _pass(edits, call, captured, by_name=by_name)
    if isinstance(statement, ast.Assign) and statement.value is jit:
        edits.remove(statement)
    yield _above(edits, top, f"{above}{name} = {code}")


def _moved(spot: Spot, function: FunctionNode, *, static: bool = False) -> Iterator[Edits]:
    """`@jax.jit def step(x)` inside a function as one at the top, with what it reads there as arguments."""
    text, edits = spot.text, spot.edits()
    top, (decorator,) = text.top(function), function.decorator_list
    captured = _captured(spot, function, top)
    if any(c.is_function for c in captured) or static and not captured:
        return
    code, by_name = _with_parameters(spot, function, captured)
    if static:
        names = ", ".join(f'"{c.name}"' for c in captured)
        partial = spot.write("functools.partial($d, static_argnames=($$n,))", d=decorator, n=names)
        code = code.replace(f"@{text.code(decorator)}", f"@{partial}", 1)
    for call, _ in _calls_of(spot, function.name, top):
        _pass(edits, call, captured, by_name=by_name)
    yield _above(edits.remove(function), top, code)


def _closed(spot: Spot, edits: Edits, jit: ast.Call, top: ast.stmt) -> tuple[str, list[Captured], bool]:
    """What is compiled takes what it reads of the functions around it: the source of a definition to stand above, the
    parameters, and whether calls pass them by name."""
    for node in spot.text.within(jit.args[0], ast.Lambda, ast.Name, ast.Call):
        made = _bound_to(node, top) if isinstance(node, ast.Name) else node
        if isinstance(made, ast.Call) and spot.full(made) == "functools.partial" and len(made.args) == 1:
            captured = [Captured(str(k.arg), spot.code(k.value)) for k in made.keywords]
            edits.replace(node, spot.code(made.args[0]))
            return "", captured, True
        if isinstance(made, ast.Call) and (inner := _returned(spot, made)) is not None:
            factory = spot.text.function(inner)
            assert factory is not None
            read = [p for p in scope.parameters_of(factory) if p in scope.loads(inner)]
            given = {p: signature.argument_of(made, factory, p) for p in read}
            captured = [Captured(p, spot.code(v)) for p, v in given.items() if v is not None]
            code, _ = _with_parameters(spot, inner, captured)
            edits.replace(node, inner.name).statements(factory, code)
            if made is not node:
                edits.remove(spot.text.statement(made))
            return "", captured, True
        if isinstance(made, ast.Lambda | FunctionNode):
            captured = _captured(spot, made, top)
            code, by_name = _with_parameters(spot, made, captured)
            if isinstance(made, ast.Lambda):
                edits.replace(node, code)
            _map_over_own(spot, edits, jit, node, len(scope.parameters_of(made)), len(captured))
            if made is not node:
                edits.remove(spot.text.statement(made))
            return "" if isinstance(made, ast.Lambda) else f"{code}\n\n\n", captured, by_name
    return "", [], False


def _bound_to(name: ast.Name, top: ast.stmt) -> ast.AST | None:
    """The function, or the value of the only assignment, for which a name inside of `top` stands."""
    functions = [n for n in _functions_in(top) if n.name == name.id]
    uses = [n for n in ast.walk(top) if isinstance(n, ast.Name) and n.id == name.id]
    if functions or len(uses) != 2:  # where it is bound, and here
        return functions[0] if len(functions) == 1 and not functions[0].decorator_list else None
    return scope.assigned(top, name.id)


def _returned(spot: Spot, call: ast.Call) -> FunctionNode | None:
    """The function that a factory of the cell defines and returns, where this is the only call of the factory."""
    factory = spot.text.definition(last_name(call.func))
    if factory is None or len(passing.uses_of(spot.text, spot.text.tree, factory)) != 1:
        return None
    inner, *rest = factory.body[-2:]
    plain = isinstance(inner, ast.FunctionDef) and [ast.unparse(r) for r in rest] == [f"return {inner.name}"]
    return inner if plain and isinstance(inner, ast.FunctionDef) else None


def _captured(spot: Spot, definition: Definition, top: ast.stmt) -> list[Captured]:
    """What a function reads that is bound inside of `top`: names, and attributes of the object of a method. Raises
    CannotEdit."""
    text, found = spot.text, dict[str, Captured]()
    method = text.outermost(definition)
    in_class = method is not None and isinstance(text.parents[method], ast.ClassDef)
    receiver = scope.parameters_of(method)[0] if method is not None and in_class else ""
    free = (scope.loads(definition) - {getattr(definition, "name", "")}) & bound_names(top)
    if free & {n.name for n in _functions_in(top)} or text.within(definition, ast.Nonlocal):
        raise CannotEdit("it needs the functions around it")
    for node in (n for n in text.within(definition, ast.Name) if n.id in free):
        whole: ast.AST = text.parents[node] if node.id == receiver else node
        if node.id == receiver and not isinstance(whole, ast.Attribute) or not _is_read(whole):
            raise CannotEdit("it needs the object itself")
        called = isinstance(call := text.parents[whole], ast.Call) and call.func is whole
        name = signature.name_for(code := spot.code(whole))
        before = code in found and found[code].is_function
        found[code] = Captured(name, code, called and whole is not node or before)
    names = [c.name for c in found.values()]
    own = passing.bound_by(definition)
    if len({*names, *own}) < len(names) + len(own):
        raise CannotEdit("a name stands for two things")
    return sorted(found.values(), key=lambda c: c.value.partition(".")[0] == receiver)


def _is_read(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Load)


def _functions_in(top: ast.stmt) -> list[FunctionNode]:
    return [n for n in ast.walk(top) if isinstance(n, FunctionNode) and n is not top]


def _with_parameters(spot: Spot, definition: Definition, captured: Sequence[Captured]) -> tuple[str, bool]:
    """Source of a function with these parameters besides its own, and whether they are passed by name."""
    edits, names = Edits(spot.text), [c.name for c in captured]
    for node in spot.text.within(definition, ast.Attribute):
        for c in captured:
            if c.value != c.name and spot.code(node) == c.value:
                edits.replace(node, c.name)
    if isinstance(definition, FunctionNode):
        by_name = bool(names) and signature.add_parameter(edits, definition, ", ".join(names))
        return edits.code(definition), by_name
    if scope.defaults_of(definition):
        raise CannotEdit("parameters with defaults")
    arguments = ", ".join([*scope.parameters_of(definition), *names])
    return f"lambda {arguments}: {edits.code(definition.body)}", False


def _map_over_own(spot: Spot, edits: Edits, jit: ast.Call, function: ast.AST, own: int, more: int) -> None:
    """A `vmap` in the `jit` maps over the function's own arguments, not over the new ones."""
    for node in spot.text.ancestors(function) if more else ():
        if node is jit:
            return
        if isinstance(node, ast.Call) and spot.full(node) == "jax.vmap":
            if len(node.args) > 1 or any(k.arg != "out_axes" for k in node.keywords):
                raise CannotEdit("a vmap over chosen axes")
            edits.argument(node, f"in_axes=({', '.join(['0'] * own + ['None'] * more)})")


def _applied(spot: Spot, jit: ast.Call, top: ast.stmt) -> list[tuple[ast.Call, ast.expr]]:
    """Calls of the compiled function, each with the node that stands for it. Raises CannotEdit."""
    parent = spot.text.parents[jit]
    if isinstance(parent, ast.Call) and parent.func is jit:
        return [(parent, jit)]
    if name := spot.text.bound_to(jit):
        return _calls_of(spot, name, top)
    raise CannotEdit("the compiled function goes elsewhere")


def _calls_of(spot: Spot, name: str, top: ast.AST) -> list[tuple[ast.Call, ast.expr]]:
    """Calls of a name inside of `top`, those of its gradient included. Raises CannotEdit where it goes elsewhere."""
    text, found = spot.text, list[tuple[ast.Call, ast.expr]]()
    for use in (n for n in text.within(top, ast.Name) if n.id == name and _is_read(n)):
        call: ast.AST = text.parents[use]
        if isinstance(call, ast.Call) and call.args[:1] == [use] and last_name(call.func) in DERIVATIVES:
            outer = text.parents[call]
            if isinstance(outer, ast.Assign) and isinstance(outer.targets[0], ast.Name):
                calls = _calls_of(spot, outer.targets[0].id, top)
                outer = calls[0][0] if len(calls) == 1 else outer
                call = outer
            else:
                call = outer if isinstance(outer, ast.Call) and outer.func is call else use
        elif not (isinstance(call, ast.Call) and call.func is use):
            call = use
        if not isinstance(call, ast.Call) or any(isinstance(a, ast.Starred) for a in call.args):
            raise CannotEdit("the compiled function goes elsewhere")
        found.append((call, use))
    return found


def _pass(edits: Edits, call: ast.Call, captured: Sequence[Captured], *, by_name: bool) -> None:
    if captured:
        signature.pass_to(edits, call, {c.name: c.value for c in captured}, keyword=by_name)


def _above(edits: Edits, top: ast.stmt, code: str) -> Edits:
    """Source above a statement at the top, apart from a definition."""
    apart = isinstance(top, FunctionNode | ast.ClassDef) or code.startswith(("def", "@"))
    return edits.insert(edits.text.line_start(top), code + ("\n\n\n" if apart else "\n"))
