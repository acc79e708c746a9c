"""A function that a factory of the cell makes anew each time, as one at the top that is given what the factory was."""

from __future__ import annotations

import ast
import textwrap

from jitmagic.fixes.silent.text import FunctionNode, Text, add_parameter, the


def taken_apart(source: str, line: int) -> tuple[str, int]:
    """`jit(make_loss(x, lam))` with `functools.partial(loss, x=x, lam=lam)` in it, and its line in the new source.

    Raises ValueError or LookupError where the line has no such factory, or more depends on it.
    """
    text = Text(source)
    statement = the(n for n in text.on_line(line) if isinstance(n, ast.stmt))
    factories = {n.name: n for n in text.tree.body if isinstance(n, ast.FunctionDef) and n is not statement}
    made = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and _name(n.func) in factories]
    if not made:
        return taken_apart(*_written_there(text, statement, factories))
    (call,) = made
    factory = factories[_name(call.func)]
    inner = _inner(factory)
    if len([n for n in ast.walk(text.tree) if isinstance(n, ast.Name) and n.id == factory.name]) != 1:
        raise ValueError("the factory is used elsewhere")
    order = [a.arg for a in factory.args.args]
    given = dict(zip(order, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
    read = {n.id for n in ast.walk(inner) if isinstance(n, ast.Name)}
    taken = [name for name in order if name in read]
    passed = ", ".join(f"{name}={text.code(given[name])}" for name in taken)
    if not taken or any(isinstance(n, ast.Nonlocal) for n in ast.walk(inner)):
        raise ValueError("nothing is closed over")
    at_top = _with_parameters(source, inner, taken)
    text.replace(call, f"functools.partial({inner.name}, {passed})").replace(factory, at_top)
    result = text.result()
    (number,) = [i for i, x in enumerate(result.splitlines(), 1) if f"functools.partial({inner.name}," in x]
    return result, number


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _written_there(text: Text, statement: ast.stmt, factories: dict[str, ast.FunctionDef]) -> tuple[str, int]:
    """`loss = make_loss(x)` above the line, for a name that only the line uses: written there in its place."""
    outer = text.around(statement, ast.FunctionDef) or text.tree
    for n in ast.walk(outer):
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call) and _name(n.value.func) in factories:
            same = [u for u in ast.walk(outer) if isinstance(u, ast.Name) and u.id == _name(n.targets[0])]
            here = [u for u in same if u in ast.walk(statement) and isinstance(u.ctx, ast.Load)]
            if len(same) == 2 and len(here) == 1 and n.lineno < statement.lineno:
                text.replace(here[0], text.code(n.value)).remove(n)
                return text.result(), statement.lineno - ((n.end_lineno or n.lineno) - n.lineno + 1)
    raise LookupError("no factory on that line")


def _inner(factory: ast.FunctionDef) -> FunctionNode:
    """The function that the factory defines and returns. Raises ValueError where it does more."""
    body = factory.body[1:] if ast.get_docstring(factory) else factory.body
    plain = len(body) == 2 and isinstance(body[0], ast.FunctionDef) and isinstance(body[1], ast.Return)
    inner, a = body[0], factory.args
    if not plain or not isinstance(inner, ast.FunctionDef) or ast.unparse(body[1]) != f"return {inner.name}":
        raise ValueError("it does more than define a function")
    if factory.decorator_list or inner.decorator_list or a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs:
        raise ValueError("its parameters have no names")
    return inner


def _with_parameters(source: str, inner: FunctionNode, names: list[str]) -> str:
    """Source of the function at the top, with these parameters besides its own."""
    text = Text(source)
    same = the(n for n in ast.walk(text.tree) if isinstance(n, FunctionNode) and n.lineno == inner.lineno)
    add_parameter(text, same, ", ".join(names))
    after = len(source) - text.span(same)[1]
    new = text.result()
    return textwrap.dedent(" " * same.col_offset + new[text.span(same)[0] : len(new) - after])
