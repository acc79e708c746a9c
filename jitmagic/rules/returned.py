"""What a traced function returned that jax cannot return: the value's class, and where it is returned."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from jitmagic.evidence import Evidence, Problem, Where
from jitmagic.rules.parsed_text import ParsedText, definitions, loaded_names, parse_cell
from jitmagic.source.edits import FunctionNode
from jitmagic.source.tree import walk

_BUILT_IN = frozenset("str bytes NoneType function type set frozenset range object module generator".split())


@dataclass(frozen=True)
class Returned:
    """`type` is the class of the value, `component` its path in the result (`['name']`, `[1]`, or empty)."""

    type: str
    component: str
    where: Where | None
    names: tuple[str, ...]
    users: bool
    """The class is no built-in one and none of numpy's or jax's."""


def returned(evidence: Evidence, problem: Problem) -> Returned | None:
    """What jax's message says about a returned value, with its place in the source; None for other messages."""
    told = problem.told.returned
    if told is None:
        return None
    component = told.component
    module, _, name = told.type.rpartition(".")
    users = name not in _BUILT_IN and module.split(".")[0] not in ("", "builtins", "numpy", "jax", "jaxlib")
    source = parse_cell(evidence.function)
    value = _value(source, told.function, told.line, component) if source is not None else None
    if source is None or value is None:
        return Returned(name, component, None, (), users)
    names = tuple(loaded_names(value[1])) or _key(component)
    return Returned(name, component, source.where(value[0]), names, users)


def _value(source: ParsedText, name: str, line: int, component: str) -> tuple[ast.AST, ast.AST] | None:
    """The statement that returns (of several the one whose value has such a part) and the part itself."""
    nodes = [n for n in definitions(source.tree) if n.name == name]
    nodes = [n for n in nodes if _first_line(n) + source.lines_before == line] or nodes
    inner = {
        id(r)
        for d in nodes[:1]
        for n in walk(d)
        if isinstance(n, FunctionNode) and n is not d
        for r in walk(n)
    }
    own = [n for d in nodes[:1] for n in walk(d) if id(n) not in inner]
    returns = [n for n in own if isinstance(n, ast.Return) and n.value is not None]
    parts = [(r, part) for r in returns if r.value is not None and (part := _part(r.value, component))]
    if parts:
        return parts[-1]
    return (returns[-1], returns[-1].value) if returns and returns[-1].value is not None else None


def _first_line(node: FunctionNode) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def _part(value: ast.expr, component: str) -> ast.expr | None:
    """The expression at the path, as far as the literal shows it."""
    for key in re.findall(r"\[([^\]]+)\]", component):
        if isinstance(value, ast.Tuple | ast.List) and key.isdigit() and int(key) < len(value.elts):
            value = value.elts[int(key)]
        elif isinstance(value, ast.Dict):
            found = [v for k, v in zip(value.keys, value.values, strict=True) if k and ast.unparse(k) == key]
            if not found:
                return None
            value = found[-1]
        else:
            return None
    return value


def _key(component: str) -> tuple[str, ...]:
    key = re.search(r"\['(\w+)'\]$", component)
    return (key[1],) if key else ()
