"""Stores into arrays that cannot be changed: every one in the function, as an update that gives a new array; results
that are thrown away."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.loops.lax_calls import LaxLoop
from jitmagic.fixes.stores.rebinding import AFTER, masked, put, stores_of
from jitmagic.rules.base import root
from jitmagic.rules.words import listed
from jitmagic.source import scope
from jitmagic.source.edits import Edits, FunctionNode
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import Pattern
from jitmagic.source.signature import first_statement
from jitmagic.source.tree import updated_array
from jitmagic.tracing import messages

TITLE = "update with `.at[...]`, which gives a new array"


def updates(spot: Spot) -> Iterator[Change]:
    """`x[i] = v` as `x = x.at[i].set(v)`, for every store into the array in its function; a NumPy array that is passed
    becomes one of jax first, a buffer is made by jax."""
    function, statement = spot.innermost, spot.here(ast.stmt)
    here = stores_of(spot, statement) if statement is not None else None
    if function is None or here is None:
        return
    names = list(here.values)
    made = spot.edits()
    buffers = [n for n in names if made_by_jax(spot, function, n)]
    for name in buffers:
        made.add(made_by_jax(spot, function, name))
    others = [n for n in names if n not in buffers]
    forms: list[Sequence[str]] = [(), others] if others else [()]
    if any(_is_numpy(spot, n) for n in others):
        forms.reverse()
    title = TITLE if ".at[" in here.code else f"bind the new array to {listed(names)} again"
    for wrapped in forms:
        yield Change(title, updated(spot, function, names, wrapped).add(made))
    for name in names:
        yield from _replaced_field(spot, function, name, title)
    outside = [n for n in names if root(n) == "self" or _declaration(spot, function, root(n)) == "global"]
    if dyn := tuple(map(spot.from_outside, outside)):
        edits = updated(spot, function, names, ()).add(made)
        yield Change(f"{title}, and {listed(dyn)} dynamic", edits, dyn=dyn, sure=False)


def discarded_updates(spot: Spot) -> Iterator[Change]:
    """`x.at[i].set(v)` as a statement of its own changes nothing: the result is bound."""
    function, statement = spot.innermost, spot.here(ast.Expr)
    if function is None or statement is None or not updated_array(statement.value):
        return
    edits = spot.edits()
    found = [s for s in spot.text.own(function, ast.Expr) if updated_array(s.value)]
    for update in found:
        _bound(spot, edits, update, function)
    title = f"bind the new array to {listed(dict.fromkeys(updated_array(s.value) for s in found))} again"
    yield Change(title, edits, claim=Claim("new", "the update is part of the result"))


def _bound(spot: Spot, edits: Edits, update: ast.Expr, function: FunctionNode) -> None:
    """`x = ...`, and `p = {**p, 'w': ...}` for an entry of an argument: the caller's dict stays as it is."""
    first, last = spot.text.span(update)
    match update.value:
        case ast.Call(
            ast.Attribute(
                ast.Subscript(ast.Attribute(ast.Subscript(ast.Name(whole), ast.Constant(str(key)))))
            )
        ) if whole in scope.parameters_of(function):
            edits.insert(first, f"{whole} = {{**{whole}, {key!r}: ").insert(last, "}")
        case ast.Call(ast.Attribute(ast.Subscript(ast.Attribute(array)))):
            edits.insert(first, f"{spot.code(array)} = ")


def masked_updates(spot: Spot) -> Iterator[Change]:
    """`x.at[mask].set(y[mask])` as `jnp.where(mask, y, x)`."""
    for call in spot.on_line(ast.Call):
        match call:
            case ast.Call(
                ast.Attribute(ast.Subscript(ast.Attribute(x, "at"), index), method), [value], []
            ) if method in AFTER and (mask := masked(spot, x, index, ask=True)) is not None:
                new = mask.updated(spot, spot.code(x), method, spot.code(value), value)
                title = "choose with `jnp.where` in place of an update by mask"
                yield Change(title, spot.edits().replace(call, new))


def list_indices(spot: Spot) -> Iterator[Change]:
    """`x[[i, j]]`, which jax does not take as an index, with an array of the list."""
    edits = spot.edits()
    if spot.outermost is not None and messages.is_index_by_list(spot.message):
        for subscript in spot.text.within(spot.outermost, ast.Subscript):
            if isinstance(subscript.slice, ast.List):
                edits.replace(subscript.slice, spot.write("jnp.array($i)", i=subscript.slice))
    if edits:
        yield Change("index with an array in place of a list", edits)


def arrays_without_at(spot: Spot) -> Iterator[Change]:
    """A NumPy array that has no `.at` is made by jax, or turned into an array of jax there."""
    if spot.innermost is None or not messages.has_no_at(spot.message):
        return
    for node in spot.on_line(ast.Attribute):
        if node.attr == "at":
            name = spot.code(node.value)
            if made := made_by_jax(spot, spot.innermost, name):
                yield Change(TITLE, made)
            yield Change(TITLE, spot.edits().replace(node.value, spot.write("jnp.asarray($x)", x=name)))


def updated(spot: Spot, function: FunctionNode, names: Collection[str], wrapped: Collection[str]) -> Edits:
    """The stores into these arrays as rebindings; those that are `wrapped` become arrays of jax with the first."""
    every = ((s, stores_of(spot, s)) for s in spot.text.own(function, ast.stmt))
    stores = [(s, found) for s, found in every if found is not None and found.values.keys() & {*names}]
    edits, left = spot.edits(), set(wrapped)
    free = [n for n in names if n.isidentifier() and n not in scope.outer_names(function)]
    head = [f"{word} {name}" for name in free if (word := _declaration(spot, function, name))]
    for name in [p for p in scope.parameters_of(function) if p in left]:
        first = next(s for s, found in stores if name in found.values)
        if first not in function.body:
            head.append(spot.write("$$x = jnp.asarray($$x)", x=name))
            left.remove(name)
    for statement, found in stores:
        code = (stores_of(spot, statement, left) or found).code
        left -= {n for n in found.values if n.isidentifier() and statement in function.body}
        put(edits, statement, code)
    return edits.before(first_statement(function), "\n".join(head)) if head else edits


def _replaced_field(spot: Spot, function: FunctionNode, name: str, title: str) -> Iterator[Change]:
    """`ring.buf[i] = v` in a NamedTuple or frozen dataclass that was passed, whose fields cannot be bound anew."""
    whole, _, field = name.partition(".")
    method = isinstance(spot.text.parents[function], ast.ClassDef)
    if not field.isidentifier() or whole not in scope.parameters_of(function)[method:]:
        return
    for call in ("$$whole._replace($$field=$new)", "dataclasses.replace($$whole, $$field=$new)"):
        edits, template = spot.edits(), f"$$whole = {call}"
        for statement in spot.text.own(function, ast.stmt):
            found = stores_of(spot, statement, {name})
            if found is not None and name in found.values:
                new = found.values[name]
                put(edits, statement, found.head + spot.write(template, whole=whole, field=field, new=new))
        yield Change(f"{title}, in a new `{whole}`", edits)


def _is_numpy(spot: Spot, name: str) -> bool:
    """A call passed a NumPy array as this, or as an entry of this dict or list."""
    path = name.replace('"', "'")
    entry = f"{path.rpartition('[')[0]}[" if path.endswith("]") else path
    return any(p == path or entry != path and p.startswith(entry) for p in spot.numpy_arguments)


def _declaration(spot: Spot, function: FunctionNode, name: str) -> str:
    """How a function declares a variable that is not its own: `nonlocal`, or `global` for one of the notebook."""
    for around in (function, *(n for n in spot.text.ancestors(function) if isinstance(n, FunctionNode))):
        if name in scope.local_names(around):
            return "" if around is function else "nonlocal"
    return "global"


NEW = Claim(results="new")


def discarded(spot: Spot) -> Iterator[Change]:
    """`x = jax.lax.fori_loop(0, n, body, x)` for the call alone; `return f(x)` at the end of a function."""
    line, function = next(iter(spot.on_line(ast.Expr)), None), spot.innermost
    if line is None or not isinstance(line.value, ast.Call) or updated_array(line.value):
        return
    call, code = line.value, spot.code(line)
    if names := _names(spot, call):
        target = ", ".join(names)
        bound = target
        if spot.full(call) == "jax.lax.scan":
            bound = f"({target}), _" if len(names) > 1 else f"{target}, _"
        edits = spot.edits().replace(line, f"{bound} = {code}")
        yield Change(f"bind the result to `{target}`", edits, claim=NEW)
    if function is not None and line is function.body[-1] and not spot.text.own(function, ast.Return):
        yield Change("return the result", spot.edits().replace(line, f"return {code}"), claim=NEW)


def _names(spot: Spot, call: ast.Call) -> list[str]:
    """Names of what a loop starts with, or of the only argument that is traced."""
    loop = LaxLoop.of(spot, call)
    if loop is not None:
        parts = loop.start.elts if isinstance(loop.start, ast.Tuple) else [loop.start]
        found = [p.id for p in parts if isinstance(p, ast.Name)]
        return found if len(found) == len(parts) else []
    on = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(on, ast.Name) and on.id in spot.traced:
        return [on.id]  # `x.astype(...)`, `s._replace(...)`
    given = [a.id for a in call.args if isinstance(a, ast.Name) and a.id in spot.traced]
    return given if len(given) == 1 else []


_MAKERS = frozenset(
    "zeros ones empty full zeros_like ones_like empty_like full_like array asarray arange linspace eye copy "
    "identity tile repeat concatenate stack".split()
)
_COPY = Pattern("$x.copy()")


def made_by_jax(spot: Spot, function: FunctionNode, name: str) -> Edits:
    """`name = np.zeros(...)` as `jnp.zeros(...)`, `x.copy()` as `jnp.array(x)`, a list as an array of it; `self.x` in
    any method of its class."""
    edits = spot.edits()
    for assign in spot.text.within(_scope(spot, function, name), ast.Assign):
        if any(spot.code(t) == name for t in assign.targets):
            _made(spot, edits, assign.value)
    return edits


def _made(spot: Spot, edits: Edits, value: ast.expr) -> None:
    called = spot.modules.called(value)
    if isinstance(value, ast.Call) and called.startswith("numpy.") and last_name(value.func) in _MAKERS:
        edits.replace(value.func, spot.write(f"jnp.{called.removeprefix('numpy.')}"))
    elif (copied := _COPY.match(value, spot.modules)) is not None and not called:
        edits.replace(value, spot.write("jnp.array($x)", **copied.holes))
    elif isinstance(value, ast.BinOp | ast.List | ast.ListComp) and not spot.calls_jax(value):
        listed = isinstance(value, ast.List | ast.ListComp) or isinstance(value.left, ast.List)
        if listed or any(spot.modules.called(n).startswith("numpy.") for n in ast.walk(value)):
            edits.replace(value, spot.write("jnp.array($value)", value=value))


def _scope(spot: Spot, function: FunctionNode, name: str) -> ast.AST:
    """The class of a method that stores into an attribute of its receiver; else the outermost function."""
    receiver, _, attribute = name.partition(".")
    first = [*function.args.posonlyargs, *function.args.args][:1]
    kind = spot.text.parents[function]
    if attribute and first and first[0].arg == receiver and isinstance(kind, ast.ClassDef):
        return kind
    return spot.text.outermost(function) or function
