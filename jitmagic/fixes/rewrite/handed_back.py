"""An array that a function only changes: returned, and bound again where the function is called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import cells, names
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.stored import taking_in


def first_statement(place: Place, function: Any) -> Any:
    """The first statement of a function behind its docstring."""
    import libcst as cst

    body = list(function.body.body)
    first = body[0]
    if len(body) > 1 and isinstance(first, cst.SimpleStatementLine) and isinstance(first.body[0], cst.Expr):
        if isinstance(first.body[0].value, (cst.SimpleString, cst.ConcatenatedString)):
            return body[1]
    return first


def with_return(
    place: Place, function: Any, base: str, changes: dict[Any, str | None]
) -> Iterator[Candidate]:
    """A function that only changes its argument returns it instead, and the calls bind it anew."""
    import libcst as cst

    parameters = [p.name.value for p in function.params.params]
    if base not in parameters or place.cell.own(function, cst.Return) or function is not place.outermost:
        return
    last, head = function.body.body[-1], first_statement(place, function)
    for lead in ("", f"{base} = {place.jnp}.asarray({base})\n"):
        both = {s: changes.get(s) or place.cell.code(s) for s in (head, last)}
        if lead:
            both[head] = lead + both[head]
        both[last] = f"{both[last].rstrip()}\nreturn {base}\n"
        yield from _returning(place, function, base, place.cell.edit({**changes, **both}))


def _returning(place: Place, function: Any, base: str, text: str) -> Iterator[Candidate]:
    position, name = [p.name.value for p in function.params.params].index(base), function.name.value
    if (
        place.function and place.function.rpartition(".")[2] != name
    ):  # what it returns is no result of the user's
        yield Candidate(f"return `{base}` from `{name}`, and bind it again where that is called",
                        _rebound_inside(place, text, name, base, position))  # fmt: skip
        return
    yield Candidate(f"return `{base}`, and bind it again where the function is called",
                    _rebound_inside(place, text, name, base, position), "unsafe",
                    "the caller's own array stays as it is", _rebound_calls(place, base, position),
                    changes_result=True)  # fmt: skip


def _rebound_inside(place: Place, cell: str, function: str, base: str, position: int) -> str:
    """The cell with its own calls that stand alone: `f(a)` as `a = f(a)`, `f(a[i])` as `a = a.at[i].set(f(a[i]))`."""
    import ast

    from jitmagic.fixes.silent.text import Text

    text = Text(cells.masked(cell))
    for statement in (n for n in ast.walk(text.tree) if isinstance(n, ast.Expr)):
        call = statement.value
        if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != function:
            continue
        argument = _argument(call, base, position)
        if isinstance(argument, ast.Name):
            text.replace(statement, f"{argument.id} = {text.code(statement)}")
        elif isinstance(argument, ast.Subscript):
            whole, index = text.code(argument.value), text.code(argument.slice)
            text.replace(
                statement, f"{whole} = {place.jnp}.asarray({whole}).at[{index}].set({text.code(statement)})"
            )
    return cells.unmasked(text.result())


def _argument(call: Any, base: str, position: int) -> Any:
    given = {k.arg: k.value for k in call.keywords}
    return given.get(base) or (call.args[position] if position < len(call.args) else None)


def _rebound_calls(place: Place, base: str, position: int) -> tuple[str, ...] | None:
    """`f(a)` as `a = f(a)`, where the argument is a name."""
    import ast

    out = []
    for source in place.calls:
        try:
            node = ast.parse(source, mode="eval").body
        except SyntaxError:
            return None
        if not isinstance(node, ast.Call):
            return None
        argument = _argument(node, base, position)
        out.append(f"{argument.id} = {source}" if isinstance(argument, ast.Name) else source)
    return tuple(out) or None


def unreturned(place: Place) -> Iterator[Candidate]:
    """A function that binds its parameter anew and returns nothing has changed nothing."""
    import libcst as cst

    function = place.outermost
    if function is None or place.cell.own(function, cst.Return):
        return
    parameters = [p.name.value for p in function.params.params]
    stored = {
        n for n in names.stores("\n".join(place.cell.code(s) for s in function.body.body)) if n in parameters
    }
    stored |= {n for n in taking_in(place, function) if n in parameters}
    if len(stored) == 1:
        (name,) = stored
        yield from with_return(place, function, name, {})
