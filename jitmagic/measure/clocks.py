"""Where a cell times a function by itself: what its clock holds that it should not.

A call returns before the device is done, and the first call holds the trace and the compilation. Read from
the source alone; nothing is reported where the cell waits for the result.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from jitmagic.source.modules import last_name

CLOCKS = frozenset(
    "time perf_counter monotonic process_time perf_counter_ns time_ns monotonic_ns default_timer".split()
)
_MAGIC = re.compile(r"^(\s*)[%!]")
_TIMEIT = re.compile(r"^\s*%%?(?:timeit|time)\b(.*)")
_ANY = re.compile(rf"\b(?:{'|'.join(CLOCKS)})\(")
_WAITS = "block_until_ready"
_READS = frozenset("float int bool asarray array print item tolist".split())
"""Calls that read a value and so wait for it."""


@dataclass(frozen=True)
class Clocked:
    """A stretch of a cell between two readings of a clock that calls the function."""

    line: int
    end_line: int
    first: bool
    """It holds the first call in the cell."""
    waits: bool


def clocked(source: str, name: str) -> list[Clocked]:
    """Stretches of a cell that are timed by hand and call `name`."""
    found = [*_timeits(source, name)]
    if _ANY.search(source) is None:
        return found
    try:
        tree = ast.parse(_without_magics(source))
    except SyntaxError:
        return found
    calls = sorted(getattr(n, "lineno", 0) for n in _outside_functions(tree) if _calls(n, name))
    for body in _bodies(tree):
        found += [
            Clocked(a, b, bool(calls) and a <= calls[0] <= b, waits) for a, b, waits in _stretches(body, name)
        ]
    return found


def _timeits(source: str, name: str) -> Iterator[Clocked]:
    for number, text in enumerate(source.splitlines(), 1):
        match = _TIMEIT.match(text)
        if match is not None and re.search(rf"\b{re.escape(name)}\(", match[1]):
            yield Clocked(number, number, False, _WAITS in text or any(f"{r}(" in match[1] for r in _READS))


def _without_magics(source: str) -> str:
    return "\n".join(_MAGIC.sub(r"\1pass  # ", line) for line in source.splitlines())


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Blocks of statements outside of functions."""
    yield tree.body
    for node in tree.body:
        for inner in ast.walk(node) if isinstance(node, (ast.For, ast.While, ast.With, ast.If)) else ():
            for block in ("body", "orelse"):
                found = getattr(inner, block, None)
                if isinstance(found, list) and found and isinstance(found[0], ast.stmt):
                    yield found


def _stretches(body: list[ast.stmt], name: str) -> Iterator[tuple[int, int, bool]]:
    """First and last line between two readings in one block, and whether something there waits."""
    start: int | None = None
    for index, statement in enumerate(body):
        if not _reads_clock(statement):
            continue
        if start is not None:
            inside = [n for s in body[start + 1 : index + 1] for n in ast.walk(s)]
            if any(_calls(n, name) for n in inside):
                yield body[start].lineno, statement.end_lineno or statement.lineno, any(map(_waits, inside))
        start = index


def _reads_clock(statement: ast.stmt) -> bool:
    return not isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and any(
        isinstance(n, ast.Call) and last_name(n.func) in CLOCKS for n in ast.walk(statement)
    )


def _waits(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr == _WAITS:
        return True
    # a print of the elapsed time reads no result
    return isinstance(node, ast.Call) and last_name(node.func) in _READS - {"print"}


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and (
        ast.unparse(node.func) == name or last_name(node.func) == name.rpartition(".")[2]
    )


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """What runs with the cell itself."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield child
            yield from _outside_functions(child)
