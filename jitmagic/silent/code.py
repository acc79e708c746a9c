"""Source of the functions reached, with the objects that its names stand for."""

from __future__ import annotations

import ast
import builtins
import functools
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jitmagic.evidence import Where
from jitmagic.source.modules import dotted, last_name
from jitmagic.source.tree import (
    Function,
    Source,
    characters,
    children,
    nodes_of,
    parameters_of,
    source_of,
    walk,
)
from jitmagic.state.values import MISSING, cell_contents, codes_in

CALLBACKS = frozenset("callback pure_callback io_callback debug_callback host_callback call id_tap".split())
_LOOKED_AT = (
    ast.Call, ast.Subscript, ast.Compare, ast.For, ast.Try, ast.With, ast.Match,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda,
)  # fmt: skip


def is_repeating(node: ast.AST) -> bool:
    """A call of Python's that calls a function over and over: `functools.reduce(f, xs)`, `map(f, xs)`."""
    called = dotted(node.func) if isinstance(node, ast.Call) and len(node.args) > 1 else ""
    return called in ("functools.reduce", "reduce", "map")


@dataclass(frozen=True, eq=False)
class Code:
    """One user function: its node in the file's tree, and what its names mean."""

    fn: types.FunctionType
    node: Function
    source: Source

    @property
    def lines(self) -> list[str]:
        """Lines of its file."""
        return self.source.lines

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that holds this one."""
        return self.source.parent(node)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters, in order."""
        return tuple(parameters_of(self.node))

    @functools.cached_property
    def local(self) -> frozenset[str]:
        """Names that belong to the function or to functions inside it."""
        code = self.fn.__code__
        inside = (n for c in codes_in(code) for n in (*c.co_varnames, *c.co_cellvars))
        return frozenset(inside) - frozenset(code.co_freevars)

    def where(self, node: ast.AST, *, head: bool = False) -> Where:
        """The place of a node as the user sees it; `head`: only its first line."""
        line, end = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
        first = self.lines[line - 1] if line <= len(self.lines) else ""
        column = characters(first, node.col_offset)  # type: ignore[attr-defined]
        if head and end != line:
            end, last = line, len(first.rstrip())
        else:
            last = characters(self.lines[end - 1], node.end_col_offset or 0)  # type: ignore[attr-defined]
        qualname = self.fn.__qualname__.replace("<locals>.", "")
        return Where(
            self.fn.__code__.co_filename, line, column, end, last, first.strip(), ast.unparse(node), qualname
        )

    def value(self, node: ast.AST) -> Any:
        """What a name or a chain of attributes stands for; MISSING for local names and other expressions."""
        path = dotted(node)
        if not path:
            return MISSING
        if path not in self._values:
            root, *rest = path.split(".")
            value = self.name(root)
            for attribute in rest:
                value = _attribute(value, attribute)
            self._values[path] = value
        return self._values[path]

    @functools.cached_property
    def _values(self) -> dict[str, Any]:
        return {}

    def name(self, name: str) -> Any:
        """What a name means outside the function; MISSING for its local names."""
        if name in self.local:
            return MISSING
        if name in self.fn.__code__.co_freevars:
            cell = (self.fn.__closure__ or ())[self.fn.__code__.co_freevars.index(name)]
            return next(iter(cell_contents(cell)), MISSING)
        found = self.fn.__globals__.get(name, MISSING)
        return getattr(builtins, name, MISSING) if found is MISSING else found

    def is_builtin(self, name: str) -> bool:
        """The name is one of Python's own here, whatever stands behind it: kernels put an `input` of theirs there."""
        places = (self.local, self.fn.__code__.co_freevars, self.fn.__globals__)
        return hasattr(builtins, name) and not any(name in p for p in places)

    def full_name(self, node: ast.AST) -> str:
        """`numpy.random.normal` for `np.random.normal`; empty where the name means nothing from outside."""
        path = dotted(node)
        if path not in self._full_names:
            self._full_names[path] = self._full_name(path, node)
        return self._full_names[path]

    @functools.cached_property
    def _full_names(self) -> dict[str, str]:
        return {"": ""}

    def _full_name(self, path: str, node: ast.AST) -> str:
        value = self.value(node)
        if value is MISSING:
            return ""
        if "." in path:
            owner = self.value(node.value)  # type: ignore[attr-defined]
            if isinstance(owner, types.ModuleType):
                return f"{owner.__name__}.{node.attr}"  # type: ignore[attr-defined]
        return qualified(value)

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        """Calls, items, comparisons, loops, `try` and functions in its body, in the order of the text; those of
        functions inside included."""
        body = set(map(id, self.node.body if isinstance(self.node.body, list) else [self.node.body]))
        head = set(map(id, walk(*(n for n in children(self.node) if id(n) not in body))))
        found = [n for n in nodes_of(self.node)[1:] if isinstance(n, _LOOKED_AT) and id(n) not in head]
        return sorted(found, key=lambda n: (n.lineno, n.col_offset))  # type: ignore[attr-defined]

    @functools.cached_property
    def calls(self) -> list[tuple[str, ast.Call]]:
        """Every call in its body with its full name."""
        return [(self.full_name(n.func), n) for n in self.nodes if isinstance(n, ast.Call)]

    @functools.cached_property
    def called_back(self) -> set[int]:
        """Nodes of functions that jax calls back while the program runs: there, Python may do what it likes."""
        inner = {n.name: n for n in self.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        found: set[int] = set()
        for _, call in self.calls:
            named = last_name(call.func) in CALLBACKS and dotted(call.func)
            if not named or not (call.args or call.keywords):
                continue
            given = call.args[:1] + [k.value for k in call.keywords if k.arg in ("callback", "fn")]
            for passed in given:
                body = inner.get(passed.id) if isinstance(passed, ast.Name) else passed
                found |= {id(n) for n in walk(body)} if body is not None else set()
        return found


def codes(functions: Iterable[types.FunctionType]) -> list[Code]:
    """The functions whose source is known; those inside another of the list only once, with it."""
    found: list[Code] = []
    inside: set[ast.AST] = set()
    for fn in functions:
        code = code_of(fn)
        if code is not None and code.node not in inside:
            found.append(code)
            inside |= {code.node, *(n for n in code.nodes if isinstance(n, Function))}
    return found


def code_of(fn: types.FunctionType) -> Code | None:
    """Source and tree of a function, or None where there is none."""
    source = source_of(fn.__code__.co_filename)
    node = source.function(fn.__code__)
    if node is None:
        return None
    return Code(fn, node, source)


def qualified(value: object) -> str:
    """Module and name of a function, method or class: `random.Random.gauss`, `time.perf_counter`."""
    owner = getattr(value, "__self__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "")
    if isinstance(owner, types.ModuleType):
        return f"{owner.__name__}.{getattr(value, '__name__', name)}"
    if isinstance(owner, type):
        return f"{owner.__module__}.{owner.__qualname__}.{getattr(value, '__name__', name)}"
    if owner is not None and not isinstance(value, types.FunctionType):
        kind = type(owner)
        return f"{kind.__module__}.{kind.__qualname__}.{getattr(value, '__name__', name)}"
    module = getattr(value, "__module__", None) or ""
    if module.startswith("jax._src.random"):
        module = "jax.random"
    return f"{module}.{name}" if name else ""


def whole_line(file: str, node: ast.AST, function: str = "") -> Where:
    """The line of a file on which a node begins, without its margins."""
    line = node.lineno  # type: ignore[attr-defined]
    text = source_of(file).lines[line - 1].rstrip()
    start = len(text) - len(text.lstrip())
    return Where(file, line, start, line, len(text), text.strip(), text.strip(), function)


def names_in(node: ast.AST) -> list[str]:
    """Names that an expression reads, in the order of the text."""
    found = [n for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return list(dict.fromkeys(n.id for n in sorted(found, key=lambda n: (n.lineno, n.col_offset))))


def _attribute(value: object, name: str) -> object:
    """An attribute by look-ups that run no code of the user's."""
    if value is MISSING:
        return MISSING
    module = type(value).__module__ or ""
    if (
        isinstance(value, types.ModuleType | type)
        or module in _SAFE
        or module.startswith(("numpy.random", "pathlib"))
    ):
        return getattr(value, name, MISSING)
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict) and name in held:
        return held[name]
    for kind in type(value).__mro__:
        if name in vars(kind):
            found = vars(kind)[name]
            return types.MethodType(found, value) if isinstance(found, types.FunctionType) else found
    return MISSING


_SAFE = frozenset(
    "random os datetime time queue logging _io io collections _collections builtins itertools".split()
)
