"""Values that an inner function stores outside of itself while jax traces it: returned beside its result.

`jax.grad` and `jax.value_and_grad` take them as `has_aux=True`, `jax.vmap` and `jax.jit` as a second result, and a
`fori_loop` becomes a `scan`, which stacks them. The other branches of a `cond` return what the variable was before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.rules.words import listed

AUXILIARY = frozenset(("grad", "value_and_grad"))
BESIDE = frozenset(("vmap", "jit", "checkpoint", "remat"))


@dataclass(frozen=True)
class Escape:
    """One store: its line, the outer name, the source of the value, and how it is stored."""

    line: Any
    name: str
    value: str
    how: str
    """`append`, `nonlocal`, or the source of the entry that is stored into."""


Changes = dict[Any, "str | None"]


def candidates(place: Place) -> Iterator[Candidate]:
    """What escapes from the inner functions of the outermost one, one candidate for each such function."""
    import libcst as cst

    if place.kind not in ("leaked-tracer", "state-write") or place.outermost is None:
        return
    around = place.outermost
    inside = [
        (around, f)
        for f in place.cell.within(around.body, cst.FunctionDef)
        if place.cell.function(f) is around
    ]
    helped = [
        (f, around) for f in place.cell.functions() if f is not around and place.cell.function(f) is None
    ]
    for outer, inner in (*inside, *helped):
        escapes = list(escapes_of(place, outer, inner))
        returns = place.cell.own(inner, cst.Return)
        if outer is not around and not {e.name for e in escapes} <= set(
            names.loads(place.cell.code(outer.body))
        ):
            continue  # kept for others to read
        if escapes and len(returns) == 1 and returns[0].value is not None:
            yield from _returned(place, outer, inner, returns[0], escapes)
        elif len(escapes) == 1 and not returns:
            yield from _stacked_by_loop(place, outer, inner, escapes[0])


def _stacked_by_loop(place: Place, outer: Any, inner: Any, escape: Escape) -> Iterator[Candidate]:
    """`bm.for_loop(body, xs)` with `seen.append(y)` last in its body as `seen = bm.for_loop(body, xs)`, which stacks
    what the body returns."""
    import libcst as cst

    edit: Changes = {escape.line: f"return {escape.value}\n"}
    for line in place.cell.own(outer, cst.SimpleStatementLine):
        call = line.body[0].value if len(line.body) == 1 and isinstance(line.body[0], cst.Expr) else None
        if not isinstance(call, cst.Call) or _last(call.func) != "for_loop" or not call.args:
            continue
        last = escape.how == "append" and inner.body.body[-1] is escape.line
        if last and getattr(call.args[0].value, "value", None) == inner.name.value:
            edit[line] = f"{escape.name} = {place.cell.code(call)}\n"
            _begun_empty(place, outer, edit, [escape])
            _stacked_already(place, outer, edit, [escape])
            title = f"return what is put into {listed([escape.name])}: the loop stacks it"
            yield Candidate(title, place.cell.edit(edit))


def escapes_of(place: Place, outer: Any, inner: Any) -> Iterator[Escape]:
    """Stores of an inner function into what the outer one holds."""
    import libcst as cst

    code = place.cell.code
    outside = {n.name.value for s in place.cell.own(inner, cst.Nonlocal, cst.Global) for n in s.names}
    bound = set(names.stores("\n".join(code(s) for s in inner.body.body))) - outside
    theirs = set(names.stores("\n".join(code(s) for s in outer.body.body)))
    for line in inner.body.body:
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
        if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call) and len(small.value.args) == 1:
            function = small.value.func
            if isinstance(function, cst.Attribute) and function.attr.value == "append":
                if code(function.value) in theirs - bound:
                    yield Escape(line, code(function.value), code(small.value.args[0].value), "append")
        elif isinstance(small, cst.Assign) and len(small.targets) == 1:
            target = small.targets[0].target
            if isinstance(target, cst.Name) and target.value in outside:
                yield Escape(line, target.value, code(small.value), "nonlocal")
            elif isinstance(target, cst.Subscript) and code(target.value) in theirs - bound:
                yield Escape(line, code(target.value), code(small.value), code(target))


def _returned(place: Place, outer: Any, inner: Any, leave: Any, escapes: list[Escape]) -> Iterator[Candidate]:
    """The inner function with its stores returned, and its one use in the outer function."""
    import libcst as cst

    use = _use(place, outer, inner.name.value)
    if use is None:
        return
    kind, call, made = use
    edit: Changes = {}
    for statement in place.cell.own(inner, cst.SimpleStatementLine):
        if len(statement.body) == 1 and isinstance(statement.body[0], (cst.Nonlocal, cst.Global)):
            edit[statement] = None
    if kind == "cond":
        escapes = _branches(place, outer, edit, call, inner, escapes)
        if any(e.how != "nonlocal" for e in escapes):
            return
    values = [_kept(place, edit, e) for e in escapes]
    edit[leave.value] = _beside(place.cell.code(leave.value), values)
    if kind != "cond":
        _begun_empty(place, outer, edit, escapes)
    if _bound_again(place, outer, edit, kind, call, made, inner, escapes):
        words = listed(dict.fromkeys(e.name for e in escapes))
        text = place.cell.edit(edit)
        yield Candidate(f"return {words} from `{inner.name.value}` beside its result", text)


def _branches(
    place: Place, outer: Any, edit: Changes, call: Any, inner: Any, escapes: list[Escape]
) -> list[Escape]:
    """The other branch of a `cond` returns the same variables; all stores, those of this branch that it lacks as
    what the variable was before."""
    import libcst as cst

    functions = {f.name.value: f for f in place.cell.own(outer, cst.FunctionDef)}
    (node,) = (a.value for a in call.args[1:3] if getattr(a.value, "value", None) != inner.name.value)
    other = functions.get(getattr(node, "value", ""))
    theirs = list(escapes_of(place, outer, other)) if other is not None else []
    names_of = list(dict.fromkeys(e.name for e in (*escapes, *theirs)))

    def whole(own: list[Escape]) -> list[Escape]:
        stored = {e.name: e for e in own}
        return [stored.get(n) or Escape(None, n, n, "nonlocal") for n in names_of]

    if other is not None and theirs:
        returns = place.cell.own(other, cst.Return)
        values = [_kept(place, edit, e) for e in whole(theirs)]
        if len(returns) == 1 and returns[0].value is not None:
            edit[returns[0].value] = _beside(place.cell.code(returns[0].value), values)
        for statement in place.cell.own(other, cst.SimpleStatementLine):
            if len(statement.body) == 1 and isinstance(statement.body[0], cst.Nonlocal):
                edit[statement] = None
    elif isinstance(node, cst.Lambda):
        head = place.cell.code(node).removesuffix(place.cell.code(node.body))
        edit[node] = f"{head}({_beside(place.cell.code(node.body), names_of)})"
    else:
        code = names.wrapped(place.cell.code(node))
        edit[node] = f"lambda *args: ({_beside(f'{code}(*args)', names_of)})"
    return whole(escapes)


def _beside(result: str, values: list[str]) -> str:
    beside = values[0] if len(values) == 1 else f"({', '.join(values)})"
    return f"{names.wrapped(result) if ',' in result else result}, {beside}"


def _kept(place: Place, edit: Changes, escape: Escape) -> str:
    """What the inner function returns for a store, and what becomes of the line."""
    if escape.how == "nonlocal" and escape.line is not None and escape.name in names.loads(escape.value):
        own = names.fresh(f"new_{escape.name}", place.taken)  # it reads the variable of the function around
        edit[escape.line] = f"{own} = {escape.value}\n"
        return own
    if escape.how == "nonlocal":
        return escape.name
    if escape.value.isidentifier():
        edit[escape.line] = None
        return escape.value
    own = names.fresh(escape.name.removesuffix("s") if escape.how == "append" else "value", place.taken)
    edit[escape.line] = f"{own} = {escape.value}\n"
    return own


def _begun_empty(place: Place, outer: Any, edit: Changes, escapes: list[Escape]) -> None:
    """`seen = []` and `last = None` of the outer function, which nothing needs any more."""
    import libcst as cst

    gone = {e.name for e in escapes if e.how in ("append", "nonlocal")}
    for line in place.cell.own(outer, cst.SimpleStatementLine):
        small = line.body[0]
        if len(line.body) == 1 and isinstance(small, cst.Assign) and len(small.targets) == 1:
            empty = place.cell.code(small.value) in ("[]", "None", "list()")
            if empty and place.cell.code(small.targets[0].target) in gone:
                edit[line] = None


def _use(place: Place, outer: Any, name: str) -> tuple[str, Any, Any] | None:
    """The one call in which jax runs the function: which transformation, that call, and the transformed function."""
    import libcst as cst

    found = []
    for call in place.cell.own(outer, cst.Call):
        last = _last(call.func)
        first = call.args[0].value if call.args else None
        if last in AUXILIARY | BESIDE and getattr(first, "value", None) == name:
            if any(a.keyword is not None and a.keyword.value == "has_aux" for a in call.args):
                return None
            parent = place.cell.parents[call]
            if isinstance(parent, cst.Call) and parent.func is call:
                found.append((last, parent, call))
            else:
                found += [(last, c, call) for c in _called_later(place, outer, parent)]
        elif (
            last == "fori_loop" and len(call.args) == 4 and getattr(call.args[2].value, "value", None) == name
        ):
            found.append((last, call, call))
        elif last == "cond" and name in [getattr(a.value, "value", None) for a in call.args[1:3]]:
            found.append((last, call, call))
        elif last == "scan" and len(call.args) >= 2 and getattr(first, "value", None) == name:
            found.append((last, call, call))
    return found[0] if len(found) == 1 else None


def _last(function: Any) -> str:
    import libcst as cst

    return function.attr.value if isinstance(function, cst.Attribute) else str(getattr(function, "value", ""))


def _called_later(place: Place, outer: Any, parent: Any) -> Iterator[Any]:
    """Calls of `g` for `g = jax.grad(f)`."""
    import libcst as cst

    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        target = place.cell.code(parent.targets[0].target)
        yield from (c for c in place.cell.own(outer, cst.Call) if place.cell.code(c.func) == target)


def _bound_again(
    place: Place,
    outer: Any,
    edit: Changes,
    kind: str,
    call: Any,
    made: Any,
    inner: Any,
    escapes: list[Escape],
) -> bool:
    """Bind the values where the outer function gets the result. False where it does so in another form."""
    import libcst as cst

    if kind == "scan":
        return False  # what a scan returns has two parts already: see `scans`
    targets = [e.name if e.how in ("append", "nonlocal") else e.how for e in escapes]
    own = targets[0] if len(targets) == 1 else f"({', '.join(targets)})"
    statement = place.cell.statement(call)
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if small is None or len(statement.body) != 1:
        return False
    given = (edit.get(a.value) or place.cell.code(a).rstrip(", ") for a in call.args)
    new = f"{place.cell.code(call.func)}({', '.join(given)})"
    if kind in AUXILIARY:
        transformed = place.cell.code(made)
        with_aux = f"{transformed[:-1].rstrip().rstrip(',')}, has_aux=True)"
        if made is not call.func:
            edit[made] = with_aux
        new = new.replace(transformed, with_aux, 1)
    elif kind == "fori_loop":
        if not _as_scan_body(place, edit, inner):
            return False
        low, high, body, start = (place.cell.code(a.value) for a in call.args)
        span = high if low == "0" else f"{low}, {high}"
        new = f"{place.lax}.scan({body}, {start}, {place.jnp}.arange({span}))"
    after = "".join(
        f"{e.name} = {e.name}[-1]\n" for e in escapes if kind == "fori_loop" and e.how == "nonlocal"
    )
    if kind in ("fori_loop", "vmap"):
        _stacked_already(place, outer, edit, escapes)
    if kind != "fori_loop" and not _single(place, outer, inner, edit, escapes):
        return False
    if isinstance(small, cst.Assign) and small.value is call and len(small.targets) == 1:
        target = small.targets[0].target
        if kind == "value_and_grad":
            if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
                return False
            value, slope = (place.cell.code(e.value) for e in target.elements)
            bound = f"({value}, {own}), {slope}"
        else:
            into = place.cell.code(target)
            bound = f"{names.wrapped(into) if isinstance(target, cst.Tuple) else into}, {own}"
        edit[statement] = f"{bound} = {new}\n{after}"
        return True
    if kind == "value_and_grad":
        return False
    result = names.fresh("gradient" if kind == "grad" else "result", place.taken)
    if isinstance(small, cst.Expr) and small.value is call:
        edit[statement] = f"_, {own} = {new}\n{after}"
        return True
    whole = place.cell.code(small).replace(place.cell.code(call), result, 1)
    edit[statement] = f"{result}, {own} = {new}\n{after}{whole}\n"
    return True


def _single(place: Place, outer: Any, inner: Any, edit: Changes, escapes: list[Escape]) -> bool:
    """`seen[0]` as `seen`, where the list had one entry only. False where the list is used otherwise."""
    import libcst as cst

    inside = set(map(id, place.cell.within(inner, cst.Name)))
    for escape in (e for e in escapes if e.how == "append"):
        for node in place.cell.within(outer, cst.Name):
            if node.value != escape.name or id(node) in inside:
                continue
            parent = place.cell.parents[node]
            if isinstance(parent, cst.AssignTarget) or place.cell.parents[parent] in edit:
                continue
            if isinstance(parent, cst.Subscript) and place.cell.code(parent.slice[0]).strip() in ("0", "-1"):
                edit[parent] = escape.name
            else:
                return False
    return True


def _stacked_already(place: Place, outer: Any, edit: Changes, escapes: list[Escape]) -> None:
    """`jnp.stack(seen)` as `seen`, which a scan or `vmap` has stacked."""
    import libcst as cst

    lists = {e.name for e in escapes if e.how == "append"}
    for call in place.cell.own(outer, cst.Call):
        if _last(call.func) in ("stack", "array", "asarray") and len(call.args) == 1:
            if getattr(call.args[0].value, "value", None) in lists:
                edit[call] = place.cell.code(call.args[0].value)


def _as_scan_body(place: Place, edit: Changes, inner: Any) -> bool:
    """`def body(i, x)` as `def body(x, i)`."""
    parameters = list(inner.params.params)
    if len(parameters) != 2 or any(p.default is not None or p.annotation is not None for p in parameters):
        return False
    first, second = (p.name.value for p in parameters)
    edit[parameters[0].name] = second
    edit[parameters[1].name] = first
    return True
