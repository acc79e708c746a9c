"""A function that the cell itself compiles and that reads or writes state: a compiled one that takes the state and
returns what is new of it, and a plain one around that, under the old name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jitmagic.fixes.change import Change, Spot
from jitmagic.rules.base import root
from jitmagic.rules.words import listed
from jitmagic.source import passing, scope, signature
from jitmagic.source.edits import CannotEdit, Edits, FunctionNode, indented


def split_functions(spot: Spot) -> Iterator[Change]:
    """What a compiled function writes by name, or on its object, is taken and returned by another that is compiled."""
    text, edits, made = spot.text, spot.edits(), None
    function = text.definition(spot.function) or spot.outermost
    if function is not None and not function.decorator_list:
        function = spot.outermost
        made = _made_of(spot, function)
    if function is None or made is None and not _is_compiled(spot, function):
        return
    receiver = scope.parameters_of(function)[0] if isinstance(text.parents[function], ast.ClassDef) else ""
    kept = receiver if any(_is_static(d, receiver) for d in function.decorator_list) else ""
    read, written = _state(spot, function, receiver, all_of_it=bool(receiver and not kept))
    places = [*dict.fromkeys((*read, *written))]
    if not places:
        return
    uses = [n for n in text.within(function, ast.Attribute) if spot.code(n.value) == receiver]
    kept = kept if any(spot.code(n) not in places for n in uses) else ""
    if made is not None:
        edits.replace(made, spot.code(made.args[0]))
        decorators = [spot.code(made.func)]
    else:
        written_so = _without_receiver if receiver and not kept else Spot.code
        decorators = [written_so(spot, d) for d in function.decorator_list]
    _split(spot, edits, function, places, written, decorators, (receiver, kept))
    after = f"takes and returns {listed(written)}, and store it after the call"
    what = after if written else f"takes {listed(places)}"
    yield Change(f"compile a function that {what}", edits, sure=False)


def _is_compiled(spot: Spot, function: FunctionNode) -> bool:
    """All of its decorators compile: `jax.jit`, `partial(jax.jit, ...)`."""
    inner = [d.args[0] if isinstance(d, ast.Call) and d.args else d for d in function.decorator_list]
    made = [ast.Call(n.func if isinstance(n, ast.Call) else n, [], []) for n in inner]
    return bool(made) and all(passing.is_jit(n, spot.modules) for n in made)


def _made_of(spot: Spot, method: FunctionNode | None) -> ast.Call | None:
    """`jax.jit(model.step)`, the only form of that method that is compiled."""
    found = [
        n for n in spot.text.within(spot.text.tree, ast.Call)
        if passing.is_jit(n, spot.modules) and len(n.args) == 1 and not n.keywords
        and method is not None and getattr(n.args[0], "attr", "") == method.name
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _is_static(decorator: ast.expr, receiver: str) -> bool:
    """The decorator declares the receiver static."""
    given = [k.value for k in getattr(decorator, "keywords", ()) if str(k.arg).startswith("static_arg")]
    said = [n.value for v in given for n in ast.walk(v) if isinstance(n, ast.Constant)]
    return bool(receiver) and (0 in said or receiver in said)


def _without_receiver(spot: Spot, decorator: ast.expr) -> str:
    """The decorator for a function that has no receiver. Raises CannotEdit where its numbers would be wrong."""
    if not isinstance(decorator, ast.Call):
        return spot.code(decorator)
    numbers = [k for k in decorator.keywords if k.arg in ("static_argnums", "donate_argnums")]
    if [ast.unparse(k.value) for k in numbers] not in ([], ["0"], ["(0,)"]):
        raise CannotEdit("arguments by number")
    given = [*decorator.args, *(k for k in decorator.keywords if k not in numbers)]
    if len(given) == 1 and given[0] in decorator.args:
        return spot.code(given[0])
    return f"{spot.code(decorator.func)}({', '.join(map(spot.code, given))})"


def _state(
    spot: Spot, function: FunctionNode, receiver: str, *, all_of_it: bool
) -> tuple[list[str], list[str]]:
    """What the function reads of its object and what it writes, there and by name; all that it reads where jax would
    have to trace the object. Raises CannotEdit where it needs the object itself."""
    text = spot.text
    bound = {n.id for n in text.own(function, ast.Name) if isinstance(n.ctx, ast.Store)}
    written = [n for s in text.own(function, ast.Global) for n in s.names if n in bound]
    names = [n for n in text.within(function, ast.Name) if receiver and n.id == receiver]
    uses = [p for n in names if isinstance(p := text.parents[n], ast.Attribute)]
    called = [c.func for c in text.within(function, ast.Call)]
    if len(uses) < len(names) or all_of_it and any(u in called for u in uses):
        raise CannotEdit("it needs the object itself")
    stored = [u for u in uses if _is_stored(text.parents[u], u)]
    written += dict.fromkeys(map(spot.code, stored))
    told = {f"{receiver}.{n.rpartition('.')[2]}" for n in spot.names if root(n) != n} if receiver else set()
    read = [c for u in uses if (c := spot.code(u)) in told or all_of_it]
    return read, written


def _is_stored(parent: ast.AST, use: ast.Attribute) -> bool:
    into = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store) and parent.value is use
    return into or isinstance(use.ctx, ast.Store)


def _split(
    spot: Spot, edits: Edits, function: FunctionNode, places: Sequence[str], written: Sequence[str],
    decorators: Sequence[str], receivers: tuple[str, str],
) -> None:  # fmt: skip
    """The compiled function above, the old one around it."""
    text, a = spot.text, function.args
    if a.vararg or a.kwarg:
        raise CannotEdit("its parameters have no names")
    bare, (receiver, kept) = function.name.lstrip("_"), receivers
    inner = spot.fresh(*[f"_{bare}"] * (bare == function.name), f"_{bare}_compiled")
    local = scope.local_names(function)
    names = {p: n if (n := signature.name_for(p)) not in local else f"{n}_" for p in places}
    new = [names[p] for p in written]
    body = Edits(text)
    for use in text.within(function, ast.Attribute, ast.Name):
        if names.get(code := spot.code(use), code) != code:
            body.replace(use, names[code])
    for shared in text.own(function, ast.Global):
        left = [n for n in shared.names if n not in names]
        body.replace(shared, f"global {', '.join(left)}" if left else "pass")
    alone = not new or signature.give_back(body, function, new)
    positional = [x.arg for x in (*a.posonlyargs, *a.args) if x.arg != receiver]
    named = [x.arg for x in a.kwonlyargs]
    first = [kept] if kept else []
    head = ", ".join([*first, *positional, *names.values(), *(["*"] if named else []), *named])
    begin = signature.first_statement(function)
    statements = [s for s in function.body[function.body.index(begin) :] if body.code(s) != "pass"]
    code = body.block(statements)
    made = "".join(f"@{d}\n" for d in decorators) + f"def {inner}({head}):\n{indented(code)}\n"
    top = text.parents[function] if receiver else function
    assert isinstance(top, ast.stmt)
    call = f"{inner}({', '.join([*first, *positional, *places, *(f'{n}={n}' for n in named)])})"
    out, given = spot.fresh("out", "result"), ", ".join(written)
    by_name = [p for p in written if p.isidentifier()]
    lines = [f"global {', '.join(by_name)}"] if by_name else []
    if not new:
        lines.append(f"return {call}")
    else:
        lines += [f"{given} = {call}"] if alone else [f"{out}, {given} = {call}", f"return {out}"]
    edits.before(top, made + "\n")
    for decorator in function.decorator_list:
        edits.undecorate(decorator)
    edits.statements(begin, "\n".join(lines), function.body[-1])
