"""The function itself, as text."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jitmagic.evidence import Function, Where
from jitmagic.options import parameters_of
from jitmagic.source.tree import first_line, source_of
from jitmagic.state.values import codes_in, is_users_function
from jitmagic.state.wrappers import unwrap


def has_parameters(fn: Callable[..., object]) -> bool:
    """`fn` takes at least one parameter."""
    return bool(parameters_of(fn))


def source_file(fn: Callable[..., object]) -> str:
    """File of the code that a call of `fn` runs first; empty where it has none."""
    return str(getattr(getattr(_with_code(fn), "__code__", None), "co_filename", ""))


def _with_code(fn: Any) -> object:
    """The function, or for an object that can be called its class's `__call__` where the user wrote that."""
    inner = inspect.unwrap(fn)
    called = None if hasattr(inner, "__code__") else unwrap(inner)[1]
    return called if is_users_function(called) else inner


def misfit(fn: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """Why Python refuses such a call of the function; empty where it does not, or nothing is known of what it takes."""
    try:
        if type(fn).__name__ == "PjitFunction":
            fn = fn.__wrapped__  # type: ignore[attr-defined]
        signature = inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        return str(exc)
    return ""


def function_facts(fn: Callable[..., object], name: str, cell: str = "") -> Function:
    """Name, source and parameters of a function; empty fields where it has no source."""
    inner = _with_code(fn)
    code = getattr(getattr(inner, "__func__", inner), "__code__", None)
    parameters = parameters_of(fn) or ()
    lines, first = _source(inner)
    where = _definition(lines, first, code, name) if code is not None else None
    return Function(
        name=name,
        file=code.co_filename if code is not None else "",
        source=textwrap.dedent("".join(lines)),
        line=where.line if where is not None else getattr(code, "co_firstlineno", 0),
        where=where,
        parameters=tuple(p.name for p in parameters),
        defaults=tuple(p.name for p in parameters if p.default is not p.empty),
        cell=cell,
        own_names=_own_names(getattr(inner, "__func__", inner)),
    )


def _own_names(fn: object) -> tuple[str, ...]:
    """Names of builtins that the function reads from its module or from around it, where the user bound them."""
    code, namespace = getattr(fn, "__code__", None), getattr(fn, "__globals__", {})
    read = {name for c in codes_in(code) for name in c.co_names}
    bound = read & vars(builtins).keys() & namespace.keys()
    own = {n for n in bound if _module(namespace[n]) == namespace.get("__name__")}
    return tuple(sorted(own.union(vars(builtins).keys() & getattr(code, "co_freevars", ()))))


def _module(value: object) -> object:
    return getattr(value, "__module__", None) or type(value).__module__


def _source(fn: Any) -> tuple[list[str], int]:
    """Source lines of the definition, decorators included, and the number of the first."""
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    source = source_of(code.co_filename) if code is not None else None
    node = source.function(code) if source is not None and code is not None else None
    if source is not None and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        first = first_line(node)
        return source.lines[first - 1 : node.end_lineno], first
    try:
        return inspect.getsourcelines(fn)
    except (OSError, TypeError, IndentationError, SyntaxError):
        return [], 0


def _definition(lines: list[str], first: int, code: types.CodeType, name: str) -> Where | None:
    """The `def` line, or the line of a lambda."""
    for i, line in enumerate(lines):
        text = line.strip()
        if text.startswith(("def ", "async def ", "async ")) or (
            name.rpartition(".")[2] in text and "lambda" in text
        ):
            start = len(line) - len(line.lstrip())
            end = len(line.rstrip())
            return Where(code.co_filename, first + i, start, first + i, end, text, text, name)
    return None
