"""A key that a helper of the cell makes from a fixed seed, handed down to it from the function that is called."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jitmagic.fixes.silent.text import FunctionNode, Text, add_parameter, pass_to
from jitmagic.source.expressions import last_name

_DERIVATIVES = frozenset("grad value_and_grad jacfwd jacrev jacobian hessian".split())
_REPEATED = (ast.For, ast.While, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class HandedDown:
    """The corrected cell, and whether calls have to pass the key by name."""

    cell: str
    keyword: bool


def handed_down(
    source: str, function: str, seed_line: int, seed_column: int, name: str, namespace: Mapping[str, Any]
) -> HandedDown:
    """The helper takes the key `name`, and so does every function from `function` down to it.

    Raises ValueError or LookupError where it is called in a loop, or where its calls cannot be told.
    """
    text = Text(source)
    main = text.function(function)
    seed = next(
        n for n in ast.walk(text.tree)
        if isinstance(n, ast.Call) and (n.lineno, n.col_offset) == (seed_line, seed_column)
    )  # fmt: skip
    helper = text.around(seed, ast.FunctionDef)
    if main is None or not isinstance(helper, ast.FunctionDef) or helper.name == "__init__":
        raise LookupError("the helper makes no key of its own")
    takers = _between(text, main, helper, namespace)
    keyword = {}
    for taker in takers:
        if any(a.arg == name for a in ast.walk(taker.args) if isinstance(a, ast.arg)):
            raise ValueError("it has such a parameter")
        keyword[taker] = add_parameter(text, taker, name)
    for taker in takers:
        calls = [(c, t) for t in takers for c in _calls(text, taker, t, namespace)]
        for call, callee in calls:
            around = text.around(call, *_REPEATED)
            if around is not None and around in ast.walk(taker):
                raise ValueError("each turn would need a key of its own")
            sub = name if len(calls) == 1 else text.fresh(f"sub_{calls.index((call, callee)) + 1}")
            if len(calls) > 1:
                text.before(text.statement(call), [f"{name}, {sub} = jax.random.split({name})"])
            if (
                last_name(getattr(call.func, "func", call.func)) == "vmap"
            ):  # `jax.vmap(helper)(rows)`: a key for each row
                sub = f"jax.random.split({sub}, len({text.code(call.args[0])}))"
            pass_to(text, call, name, sub, keyword=keyword[callee])
    statement = text.statement(seed)
    bound = isinstance(statement, ast.Assign) and statement.value is seed
    if bound and ast.unparse(statement.targets[0]) == name:  # type: ignore[attr-defined]
        text.remove(statement)
    else:
        text.replace(seed, name)
    return HandedDown(text.result(), keyword[main])


def _between(
    text: Text, main: FunctionNode, helper: FunctionNode, namespace: Mapping[str, Any]
) -> list[FunctionNode]:
    """The functions on the ways from `main` to the helper, both included."""
    every = [n for n in ast.walk(text.tree) if isinstance(n, FunctionNode)]
    below, above = [main], [helper]
    for found, towards in ((below, False), (above, True)):
        for one in found:
            pairs = [(other, one) if towards else (one, other) for other in every]
            new = [c if towards else t for c, t in pairs if _calls(text, c, t, namespace)]
            found += [n for n in dict.fromkeys(new) if n not in found]
    on_the_way = [n for n in every if n in below and n in above]
    if main not in on_the_way or helper not in on_the_way:
        raise LookupError("the helper is not called by name")
    return on_the_way


def _calls(
    text: Text, caller: FunctionNode, callee: FunctionNode, namespace: Mapping[str, Any]
) -> list[ast.Call]:
    """Calls of one function in another; of `__call__`, those of objects of its class."""
    kind = text.parents[callee]
    names = {callee.name}
    if isinstance(kind, ast.ClassDef) and callee.name == "__call__":
        names = _objects(text, kind.name, namespace)
    return [
        n for n in ast.walk(caller)
        if isinstance(n, ast.Call) and last_name(_mapped(n) or n.func) in names and caller is not callee
    ]  # fmt: skip


def _mapped(call: ast.Call) -> ast.expr | None:
    """`helper` of `jax.vmap(helper)(rows)`, mapped over the first axis of everything, and of `jax.grad(helper)(w)`."""
    made = call.func
    if not isinstance(made, ast.Call) or len(made.args) != 1 or not call.args:
        return None
    plain = last_name(made.func) in _DERIVATIVES or (last_name(made.func) == "vmap" and not made.keywords)
    return made.args[0] if plain else None


def _objects(text: Text, kind: str, namespace: Mapping[str, Any]) -> set[str]:
    """Names and attributes that the cell binds to objects of a class, and the notebook's names for them."""
    made = [
        t for n in ast.walk(text.tree)
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call) and last_name(n.value.func) == kind
        for t in n.targets
    ]  # fmt: skip
    return {last_name(t) for t in made} | {k for k, v in namespace.items() if type(v).__name__ == kind}
