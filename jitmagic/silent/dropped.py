"""Statements whose results are thrown away, and of which nothing is left in the program."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Iterable, Iterator

import jax
from jax.interpreters import partial_eval

from jitmagic.evidence import Dropped
from jitmagic.silent.code import Code, code_of, names_in
from jitmagic.silent.in_program import all_equations
from jitmagic.source.modules import dotted
from jitmagic.source.tree import line_of, nodes_of, updated_array, walk
from jitmagic.tracing.compat import jaxpr_of
from jitmagic.tracing.libraries import RESULTS_ALONE
from jitmagic.tracing.locate import is_user_file

Line = tuple[str, int]


def dropped(closed: object, codes: Iterable[Code]) -> Iterator[Dropped]:
    """Calls of jax's functions, updates and replacements, and calls of the user's that return something, whose
    operations reach no result.

    What prints, calls back or writes into a `jax.Ref` is used by itself.
    """
    thrown = [(code, call) for code in codes for call in _thrown_away(code)]
    if not thrown:
        return
    body = jaxpr_of(closed)
    alive, _ = partial_eval.dce_jaxpr(body, [True] * len(body.outvars), instantiate=True)
    before, after = _lines(body), _lines(alive)
    for code, call in thrown:
        if _only_replaces(code, call):
            yield Dropped(code.where(call), _names(code, call), by_jax=True)
            continue
        file = code.fn.__code__.co_filename
        own = {(file, line) for line in range(call.lineno, (call.end_lineno or call.lineno) + 1)}
        if own & before and not own & after:
            yield Dropped(code.where(call), _names(code, call), _is_jax(code, call), updated_array(call))


def _names(code: Code, call: ast.Call) -> tuple[str, ...]:
    """What the call takes, parameters first: no modules, and no functions."""
    functions = {n.name for n in code.nodes if isinstance(n, ast.FunctionDef)}
    functions |= {call.func.id} if isinstance(call.func, ast.Name) else set()
    found = [n for n in names_in(call) if n not in functions]
    found = [n for n in found if not callable(v := code.name(n)) and not isinstance(v, types.ModuleType)]
    return tuple(sorted(found, key=lambda n: n not in code.parameters))


def _thrown_away(code: Code) -> Iterator[ast.Call]:
    """Calls that are statements by themselves, of functions that return something."""
    for node in nodes_of(code.node):
        call = node.value if type(node) is ast.Expr else None
        if isinstance(call, ast.Call) and (
            _is_jax(code, call)
            or updated_array(call)
            or _only_replaces(code, call)
            or _is_method_of_arrays(code, call)
            or _returns(code, call.func)
        ):
            yield call


def _is_jax(code: Code, call: ast.Call) -> bool:
    """`jax.lax.scan(...)`, `jax.vmap(f)(xs)`, `optax.apply_updates(...)`."""
    made = call.func.func if isinstance(call.func, ast.Call) else call.func
    return code.full_name(made).partition(".")[0] in RESULTS_ALONE


def _only_replaces(code: Code, call: ast.Call) -> bool:
    """`dataclasses.replace(s, w=w)`, `s._replace(w=w)`, `s.replace(w=w)`: what they do is to return something new."""
    if code.full_name(call.func) == "dataclasses.replace":
        return True
    named = bool(call.keywords) and not call.args and all(k.arg != "inplace" for k in call.keywords)
    return named and isinstance(call.func, ast.Attribute) and call.func.attr in ("_replace", "replace")


@functools.cache
def _methods_of_arrays() -> frozenset[str]:
    """Methods of arrays that change nothing, and that lists, dicts and sets have not."""
    others = {n for kind in (list, dict, set) for n in dir(kind)}
    return frozenset(n for n in dir(jax.Array) if not n.startswith("_")) - others - {"delete", "at"}


def _is_method_of_arrays(code: Code, call: ast.Call) -> bool:
    """`x.astype(...)` of a local name."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in _methods_of_arrays()
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in code.local
    )


def _returns(code: Code, called: ast.expr) -> bool:
    """A function of the user's, inside this one or outside, that returns something."""
    value = code.value(called)
    value = getattr(value, "__wrapped__", value)
    known = (
        code_of(value)
        if isinstance(value, types.FunctionType) and is_user_file(value.__code__.co_filename)
        else None
    )
    inner = (n for n in code.nodes if isinstance(n, ast.FunctionDef) and n.name == dotted(called))
    function = known.node if known is not None else next(inner, None)
    if not isinstance(function, ast.FunctionDef):
        return False
    returned = (n.value for n in walk(function) if isinstance(n, ast.Return))
    return any(v is not None and not (isinstance(v, ast.Constant) and v.value is None) for v in returned)


def _lines(program: object) -> set[Line]:
    """The lines of user code from which its equations come, those of the callers included."""
    stacks = {stack for _, stack in all_equations(program)}
    return {(code.co_filename, line_of(code, offset)) for stack in stacks for code, offset in stack}
