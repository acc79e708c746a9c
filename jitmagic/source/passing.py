"""Values passed down a chain of functions: each takes them as parameters, every call passes them on."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from jitmagic.source import scope, signature
from jitmagic.source.edits import CannotEdit, Edits, FunctionNode, Text
from jitmagic.source.modules import Modules, last_name

PLAIN = frozenset("float int len bool abs tuple".split())
"""What gives the same again when it is called a second time, as functions of jax and NumPy do."""


@dataclass(frozen=True)
class Passed:
    """A parameter more, and the expression that calls from outside pass for it, in the function's own names."""

    name: str
    value: str


def definition_of(text: Text, name: str) -> FunctionNode:
    """The definition of `f` or `Class.method`, or the only function of that name inside of another. Raises
    CannotEdit."""
    found = text.definition(name)
    inner = [n for n in text.functions if n.name == name]
    if found is None and len(inner) != 1:
        raise CannotEdit(f"the cell does not define {name}")
    return found or inner[0]


def reads_of(text: Text, path: str, main: FunctionNode) -> list[ast.expr]:
    """Where functions of the cell read what a path leads to from around them; of a parameter of `main`, where that
    does."""
    wanted = ast.dump(ast.parse(path, mode="eval").body)
    root = next(n.id for n in ast.walk(ast.parse(path)) if isinstance(n, ast.Name))
    own = root in scope.parameters_of(main)
    found: list[ast.expr] = []
    for node in text.within(main if own else text.tree, ast.expr):
        functions = [n for n in text.ancestors(node) if isinstance(n, FunctionNode | ast.Lambda)]
        inside = functions[: functions.index(main) + (not own)] if main in functions else functions
        if functions and not any(root in bound_by(n) for n in inside) and ast.dump(node) == wanted:
            found.append(node)
    return found


def bound_by(function: FunctionNode | ast.Lambda) -> set[str]:
    """Names that a function binds for itself."""
    if isinstance(function, ast.Lambda):
        return set(scope.parameters_of(function))
    return scope.local_names(function)


def chain(text: Text, main: FunctionNode, nodes: Iterable[ast.AST]) -> list[FunctionNode]:
    """The functions on the ways from `main` to those that hold these nodes, `main` first."""
    above = (main, *text.ancestors(main))
    others = [n for n in text.functions if text.function(n) is None and n not in above]
    known = [main, *others]
    inner = [next((k for k in known if k is n or k in text.ancestors(n)), None) for n in nodes]
    callers, called = [k for k in known if k in inner], [main]
    for one in called:
        called += [k for k in known if k not in called and uses_of(text, one, k)]
    for one in callers:
        callers += [k for k in known if k not in callers and uses_of(text, k, one)]
    on_the_way = [k for k in known if k in callers and k in called]
    if main not in on_the_way:
        raise LookupError("what is read is not read for this function")
    return on_the_way


def uses_of(text: Text, where: ast.AST, function: FunctionNode, home: Text | None = None) -> list[ast.expr]:
    """Where a function is named: as `f` or by a partial of it, as an attribute where it is a method, `__call__` by the
    objects of its class; `home`: the text that defines it."""
    home = home or text
    around = home.parents[function]
    names, kind = {function.name}, ast.Name
    if isinstance(around, ast.ClassDef) and function.name == "__call__":
        names = {name for name, of in objects_of(home).items() if of == around.name}
    elif isinstance(around, ast.ClassDef):
        kind = ast.Attribute  # type: ignore[assignment]
    else:
        names |= {
            name for name, call in _partials(home).items() if getattr(call.args[0], "id", "") == function.name
        }
    inner = {call.args[0] for call in _partials(text).values()}
    found = (n for n in text.within(where, kind) if last_name(n) in names and n not in inner)
    return [n for n in found if isinstance(getattr(n, "ctx", None), ast.Load)]


def objects_of(text: Text) -> dict[str, str]:
    """Names at the cell's top level that stand for an object, and its class: `meter = Meter()`."""
    return {name: last_name(call.func) for name, call in _made(text).items()}


def _partials(text: Text) -> dict[str, ast.Call]:
    """Those that stand for a function with a few of its arguments: `step = partial(f, 0.1)`."""
    made = _made(text).items()
    return {name: call for name, call in made if last_name(call.func) == "partial" and call.args}


def _made(text: Text) -> dict[str, ast.Call]:
    bound = [(s.targets, s.value) for s in text.tree.body if isinstance(s, ast.Assign)]
    calls = [(t, value) for targets, value in bound if isinstance(value, ast.Call) for t in targets]
    return {t.id: call for t, call in calls if isinstance(t, ast.Name)}


def pass_down(
    edits: Edits, later: Sequence[str], takers: Sequence[FunctionNode], new: Sequence[Passed],
    modules: Modules, *, by_name: bool = False,
) -> tuple[str, ...]:  # fmt: skip
    """Functions take these, those that call them hand them on, and calls from outside pass the values; the first of
    the functions is called by later cells, which are given back. Raises CannotEdit."""
    text, main, names = edits.text, takers[0], [p.name for p in new]
    keyword = {t: signature.add_parameter(edits, t, ", ".join(names)) or by_name for t in takers}
    compiled = _compiled_forms(text, main, modules)
    for taker in takers:
        for use in uses_of(text, text.tree, taker):
            inside = any(n in takers for n in text.ancestors(use))
            if text.function(taker) is not None and not isinstance(text.parents[use], ast.Call):
                continue  # the function around it hands it out
            values = [Passed(n, n) for n in names] if inside else new
            _pass(edits, use, taker, values, modules, keyword=keyword[taker])
    for use in _named(text, compiled):
        _pass(edits, use, main, new, modules, keyword=keyword[main])
    found = []
    for source in later:
        there = Edits(Text(source))
        called = [*uses_of(there.text, there.text.tree, main, text), *_named(there.text, compiled)]
        for use in called:
            _pass(there, use, main, new, modules, keyword=keyword[main])
        found.append(there.result())
    return tuple(found)


def _pass(
    edits: Edits, use: ast.expr, function: FunctionNode, new: Sequence[Passed], modules: Modules, *,
    keyword: bool,
) -> None:  # fmt: skip
    """A use of a function passes these: the call in which it stands, or a partial function in its place."""
    text = edits.text
    around = text.parents[use]
    compiles = is_jit(around, modules) and around.args[:1] == [use]
    call = text.parents[around] if compiles else around
    if isinstance(call, ast.Call) and call.func is (around if compiles else use):
        values = {p.name: value_at(edits, call, function, p.value, modules) for p in new}
        signature.pass_to(edits, call, values, keyword=keyword)
    elif not compiles:
        bound = ", ".join(f"{p.name}={p.value}" for p in new)
        edits.replace(use, f"{modules.written('functools.partial')}({text.code(use)}, {bound})")


def is_jit(node: ast.AST, modules: Modules) -> TypeGuard[ast.Call]:
    """A call that compiles a function: `jax.jit(f)`, `eqx.filter_jit(f)`."""
    named = isinstance(node, ast.Call) and (modules.full(node.func) or last_name(node.func))
    return bool(named) and str(named).rpartition(".")[2] in ("jit", "pjit", "filter_jit")


def _compiled_forms(text: Text, main: FunctionNode, modules: Modules) -> list[str]:
    """Names that the cell gives to the compiled function: `step` of `step = jax.jit(f)`."""
    calls = (text.parents[u] for u in uses_of(text, text.tree, main))
    made = (text.parents[c] for c in calls if is_jit(c, modules))
    return [t.id for s in made if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)]


def _named(text: Text, names: Collection[str]) -> list[ast.expr]:
    """Where variables of these names are read."""
    return [n for n in text.within(text.tree, ast.Name) if n.id in names and isinstance(n.ctx, ast.Load)]


def value_at(edits: Edits, call: ast.Call, function: FunctionNode, value: str, modules: Modules) -> str:
    """An expression in a function's parameters, in what a call passes for them. Raises CannotEdit where that would be
    computed twice, or is not known."""
    inner, parameters = Edits(Text(value)), scope.parameters_of(function)
    bound = isinstance(edits.text.parents.get(function), ast.ClassDef) or isinstance(call.func, ast.Attribute)
    if last_name(call.func) in _partials(edits.text) and parameters and {*parameters} & scope.loads(value):
        raise CannotEdit("a partial function is given some of them")
    for name in (n for n in inner.text.within(inner.text.tree, ast.Name) if n.id in parameters):
        receiver = bound and name.id == parameters[0] and isinstance(call.func, ast.Attribute)
        given = call.func.value if receiver else signature.argument_of(call, function, name.id, bound=bound)  # type: ignore[attr-defined]
        given = given or scope.defaults_of(function).get(name.id)
        if given is None or not all(_gives_the_same(n, modules) for n in ast.walk(given)):
            raise CannotEdit("what is passed would be computed twice")
        inner.replace(name, edits.text.code(given) if given in edits.text.parents else ast.unparse(given))
    return inner.result()


def _gives_the_same(node: ast.AST, modules: Modules) -> bool:
    """It is no call of something that may give another value at the second time."""
    plain = not isinstance(node, ast.Call) or last_name(node.func) in PLAIN
    return plain or modules.full(node.func).partition(".")[0] in ("jax", "numpy")  # type: ignore[attr-defined]
