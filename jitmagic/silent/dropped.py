"""Statements whose results are thrown away, and of which nothing is left in the program."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Iterator
from typing import Any

from jax.interpreters import partial_eval

from jitmagic.evidence import Dropped
from jitmagic.measure.program import open_jaxpr
from jitmagic.silent.code import Code, code_of, names_in
from jitmagic.silent.program import all_equations
from jitmagic.syntax import line_of, nodes_of, updated_array, walk
from jitmagic.tracing.locate import is_user_file
from jitmagic.tracing.names import dotted_name

Line = tuple[str, int]


def dropped(closed: Any, codes: Iterable[Code]) -> Iterator[Dropped]:
    """Calls of jax's functions, updates of arrays, and calls of the user's that return something, whose operations
    reach no result.

    What prints, calls back or writes into a `jax.Ref` is used by itself.
    """
    thrown = [(code, call) for code in codes for call in _thrown_away(code)]
    if not thrown:
        return
    body = open_jaxpr(closed)
    alive, _ = partial_eval.dce_jaxpr(body, [True] * len(body.outvars), instantiate=True)
    before, after = _lines(body), _lines(alive)
    for code, call in thrown:
        file = code.fn.__code__.co_filename
        own = {(file, line) for line in range(call.lineno, (call.end_lineno or call.lineno) + 1)}
        if own & before and not own & after:
            called = {n.id for n in walk(call.func) if isinstance(n, ast.Name)}
            called |= {n.name for n in code.nodes if isinstance(n, ast.FunctionDef)}
            names = [n for n in names_in(call) if n not in called and not callable(code.name(n))]
            yield Dropped(code.where(call), tuple(names), _is_jax(code, call), updated_array(call))


def _thrown_away(code: Code) -> Iterator[ast.Call]:
    """Calls that are statements by themselves, of functions that return something."""
    for node in nodes_of(code.node):
        call = node.value if type(node) is ast.Expr else None
        if isinstance(call, ast.Call) and (
            _is_jax(code, call) or updated_array(call) or _returns(code, call.func)
        ):
            yield call


def _is_jax(code: Code, call: ast.Call) -> bool:
    """`jax.lax.scan(...)`, `jax.vmap(f)(xs)`."""
    made = call.func.func if isinstance(call.func, ast.Call) else call.func
    return code.full_name(made).partition(".")[0] == "jax"


def _returns(code: Code, called: ast.expr) -> bool:
    """A function of the user's, inside this one or outside, that returns something."""
    value = code.value(called)
    value = getattr(value, "__wrapped__", value)
    known = (
        code_of(value)
        if isinstance(value, types.FunctionType) and is_user_file(value.__code__.co_filename)
        else None
    )
    inner = (n for n in code.nodes if isinstance(n, ast.FunctionDef) and n.name == dotted_name(called))
    function = known.node if known is not None else next(inner, None)
    if not isinstance(function, ast.FunctionDef):
        return False
    returned = (n.value for n in walk(function) if isinstance(n, ast.Return))
    return any(v is not None and not (isinstance(v, ast.Constant) and v.value is None) for v in returned)


def _lines(program: Any) -> set[Line]:
    """The lines of user code from which its equations come, those of the callers included."""
    stacks = {stack for _, stack in all_equations(program)}
    return {(code.co_filename, line_of(code, offset)) for stack in stacks for code, offset in stack}
