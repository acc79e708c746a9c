"""Where a leaked tracer was put away: jax names the place where it was made, the syntax tells the rest."""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jitmagic.evidence import Where
from jitmagic.source.modules import dotted
from jitmagic.source.tree import Source, first_line, source_of, span_of, walk
from jitmagic.tracing.messages import leaked_value
from jitmagic.tracing.sites import where_at

_MUTATORS = frozenset(
    ("append", "add", "extend", "insert", "update", "setdefault", "appendleft", "push", "put", "__setitem__")
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class LeakSite:
    """The statement that stored the tracer and the names of what it stored it in."""

    where: Where
    names: tuple[str, ...]
    construct: str


def leak_site(text: str) -> LeakSite | None:
    """The place that put a tracer into something outliving its trace, from the text of an
    UnexpectedTracerError; None where no write to an outer name stands near the value's origin."""
    created, traced = leaked_value(text)
    for place in (created, traced):
        if place is None:
            continue
        file, line = place
        source = source_of(file)
        function = _function_at(source, line)
        if function is None:
            continue
        stores = [(node, node, name, function) for node, name in _stores(function)] or list(
            _stores_in_calls(source, function)
        )
        if stores:
            _, node, name, where = min(stores, key=lambda s: _rank(s[0], line, created == place))
            return _site(file, source, node, name, where)
    return None


def _stores_in_calls(
    source: Source, function: _Function
) -> Iterator[tuple[ast.AST, ast.AST, str, _Function]]:
    """Calls of functions and methods of the same text that store something: each with the store, what it goes into as
    the caller names it (`log.values` for `self.values`), and that function."""
    defined = [n for n in walk(source.tree) if isinstance(n, _Function)] if source.tree else []
    for call in (n for n in walk(function) if isinstance(n, ast.Call)):
        caller, _, called = dotted(call.func).rpartition(".")
        named = [f for f in defined if getattr(f, "name", "<lambda>") == called and f is not function]
        for inner in named if len(named) == 1 else ():
            for node, name in _stores(inner):
                root, dot, rest = name.partition(".")
                own = caller and dot and [a.arg for a in inner.args.args[:1]] == [root]
                yield call, node, f"{caller}.{rest}" if own else name, inner


def inner_store(code: types.CodeType, names: Sequence[str] = ()) -> LeakSite | None:
    """The first store of an inner function into a name of the function around it, one of `names` where given: jax
    does not tell where a value comes from that was made while it differentiates or vectorises."""
    source = source_of(code.co_filename)
    outer = _function_at(source, code.co_firstlineno)
    if outer is None:
        return None
    shared = {n for s in ast.walk(outer) if isinstance(s, ast.Global) for n in s.names}
    theirs = {
        n.id for n in ast.walk(outer) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    } - shared
    for inner in (n for n in ast.walk(outer) if isinstance(n, _Function) and n is not outer):
        for node, name in _stores(inner):
            root = name.split(".")[0].split("[")[0]
            if root in theirs and (not names or root in names):
                return _site(code.co_filename, source, node, name, inner)
    return None


def method_store(names: Sequence[str], namespace: Mapping[str, object]) -> LeakSite | None:
    """The method that put a value into an attribute of an object the notebook holds (`cell.v`), for leaks
    whose value was made inside a library."""
    for name in names:
        root, _, attribute = name.rpartition(".")
        if not root.isidentifier() or root not in namespace:
            continue
        for fn in _methods(type(namespace[root])):
            file = fn.__code__.co_filename
            source = source_of(file)
            function = _function_at(source, fn.__code__.co_firstlineno)
            stores = _stores(function) if function is not None else ()
            for node, stored in stores:
                if stored.rpartition(".")[2] == attribute and isinstance(function, _Function):
                    return _site(file, source, node, name, function)
    return None


def _methods(cls: type) -> list[types.FunctionType]:
    """Methods written in Python, of the class itself first, the constructor last."""
    own = [v for c in cls.__mro__ for v in vars(c).values() if isinstance(v, types.FunctionType)]
    return sorted(
        (f for f in own if f.__code__.co_filename in linecache.cache), key=lambda f: f.__name__ == "__init__"
    )


def _function_at(source: Source, line: int) -> _Function | None:
    inside = source.functions(line)
    return min(inside, key=lambda n: (n.end_lineno or 0) - first_line(n), default=None)


def _rank(node: ast.AST, line: int, exact: bool) -> tuple[bool, bool, int]:
    """The statement that made the value first, then the nearest one after it."""
    first, last = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
    if not exact:
        return False, False, first
    return not first <= line <= last, first < line, abs(first - line)


def _stores(function: _Function) -> Iterator[tuple[ast.AST, str]]:
    """(statement or call, name) of each write to a name that is not the function's own."""
    # parameters outlive the function
    outer = {n for s in walk(function) if isinstance(s, (ast.Global, ast.Nonlocal)) for n in s.names}
    own = {n.id for n in walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - outer
    for node in walk(function):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                name = _stored_in(target, own, outer)
                if name:
                    yield node, name
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _MUTATORS
        ):
            name = dotted(node.func.value) or _stored_in(node.func.value, own, outer)
            if name and name.split(".")[0] not in own:
                yield node, name


def _stored_in(target: ast.AST, own: set[str], outer: set[str]) -> str:
    if isinstance(target, ast.Name):
        return target.id if target.id in outer else ""
    if isinstance(target, (ast.Tuple, ast.List)):
        return next((n for n in (_stored_in(t, own, outer) for t in target.elts) if n), "")
    if isinstance(target, ast.Starred):
        return _stored_in(target.value, own, outer)
    node = target
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        inner = dotted(node)
        if inner:
            return inner if inner.split(".")[0] not in own else ""
        node = node.value
    return node.id if isinstance(node, ast.Name) and node.id not in own and node is not target else ""


def _site(file: str, source: Source, node: ast.AST, name: str, function: _Function) -> LeakSite | None:
    span = span_of(node)
    if span is None:
        return None
    construct = "call" if isinstance(node, ast.Call) else (
        "augassign" if isinstance(node, ast.AugAssign) else "assign")  # fmt: skip
    where = where_at(file, span, source, getattr(function, "name", "<lambda>"))
    return LeakSite(where, (name,), construct)
