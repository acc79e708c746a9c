"""Declarations of static or donated arguments that do not fit: misspelt, out of range, off by one."""

from __future__ import annotations

import ast
import contextlib
import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import programs, wholes
from jitmagic.fixes.silent.text import FunctionNode, Text
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

FIELDS = ("static_argnames", "static_argnums", "donate_argnames", "donate_argnums")
_MOST = 6
Value = str | int
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The cell with the declaration as it was probably meant, run as a whole."""
    if prover.checker.settings.compile and not _declares(evidence.function.cell):
        return  # the magic line declares them
    tried = 0
    text = Text(evidence.function.cell)
    for jit, function, names in _declarations(text, evidence.function.name):
        parameters = _parameters(function)
        for keyword in (k for k in jit.keywords if k.arg in FIELDS):
            for values in _candidates(keyword, parameters, finding.kind):
                tried += 1
                if tried > _MOST or prover.out_of_time():
                    return
                cell = _with_values(evidence.function.cell, jit, keyword, values)
                words = _proved(prover, cell, names)
                if words:
                    yield Fix(title=_title(keyword, values, parameters), applicability="safe", verified=True,
                              evidence=words, cell=cell)  # fmt: skip
                    return


def _declares(cell: str) -> bool:
    return any(f in cell for f in FIELDS)


def _declarations(text: Text, name: str) -> Iterator[tuple[ast.Call, Function, set[str]]]:
    """Calls of `jit` with such keywords: the function that each compiles, and the names that it is called by."""
    for call in (n for n in ast.walk(text.tree) if isinstance(n, ast.Call)):
        if not any(k.arg in FIELDS for k in call.keywords):
            continue
        around = text.parents[call]
        if isinstance(around, FunctionNode) and call in around.decorator_list:
            yield call, around, {around.name}
        elif wholes.is_jit(call.func) and call.args:
            function = _function(text, call.args[0])
            statement = text.statement(call)
            targets = (
                statement.targets if isinstance(statement, ast.Assign) and statement.value is call else []
            )
            names = {getattr(t, "attr", getattr(t, "id", "")) for t in targets} - {""}
            if function is not None and names:
                yield call, function, names


def _function(text: Text, node: ast.expr) -> Function | None:
    """The definition of what is compiled, where the cell has it."""
    if isinstance(node, ast.Lambda):
        return node
    name = getattr(node, "attr", getattr(node, "id", ""))
    found = [n for n in ast.walk(text.tree) if isinstance(n, FunctionNode) and n.name == name]
    return found[-1] if found else None


def _parameters(function: Function) -> list[str]:
    a = function.args
    return [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]


def _candidates(keyword: ast.keyword, parameters: Sequence[str], kind: str) -> Iterator[list[Value]]:
    """What may have been meant, the nearest first."""
    given = _given(keyword.value)
    if not given:
        return
    if all(isinstance(v, str) for v in given):
        yield from _nearest(given, parameters, donated=str(keyword.arg).startswith("donate"))
    elif kind == "bad-static-spec":
        count = len(parameters)
        yield [v - 1 if isinstance(v, int) and v > 0 else v for v in given]
        yield [v for v in given if isinstance(v, int) and -count <= v < count]
        yield [min(v, count - 1) if isinstance(v, int) else v for v in given]
    else:
        for step in (1, -1):
            yield [v + step for v in given if isinstance(v, int)]


def _given(node: ast.expr) -> list[Any]:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return []
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _nearest(given: Sequence[str], parameters: Sequence[str], *, donated: bool) -> Iterator[list[Value]]:
    """Misspelt names as the parameters that they look like; else without them; else another one static."""
    wrong = [n for n in given if n not in parameters]
    near = {n: next(iter(difflib.get_close_matches(n, parameters, 1, 0.5)), "") for n in wrong}
    if wrong and all(near.values()):
        yield list(dict.fromkeys(near.get(n, n) for n in given))
    if wrong:
        yield [n for n in given if n in parameters]
    for name in (p for p in reversed(parameters) if not donated and p not in (*given, "self")):
        yield list(dict.fromkeys(name if n in wrong or not wrong else n for n in given))


def _with_values(cell: str, jit: ast.Call, keyword: ast.keyword, values: Sequence[Value]) -> str:
    """The cell with these values for the keyword, in the form that it had; without it where none is left."""
    text = Text(cell)
    if values:
        bare = not isinstance(keyword.value, (ast.Tuple, ast.List)) and len(values) == 1
        quote = "'" if "'" in text.code(keyword.value) else '"'
        items = [f"{quote}{v}{quote}" if isinstance(v, str) else str(v) for v in values]
        if bare:
            made = items[0]
        elif isinstance(keyword.value, ast.List):
            made = f"[{', '.join(items)}]"
        else:
            made = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        return text.replace(keyword.value, made).result()
    kept = [*jit.args, *(k for k in jit.keywords if k is not keyword)]
    inner = f"{text.code(jit.func)}({', '.join(map(text.code, kept))})"
    alone = len(kept) == 1 and kept[0] in jit.args and not wholes.is_jit(jit.func)  # partial(jax.jit)
    return text.replace(jit, text.code(kept[0]) if alone else inner).result()


def _title(keyword: ast.keyword, values: Sequence[Value], parameters: Sequence[str]) -> str:
    names = [parameters[v] if isinstance(v, int) else v for v in values]
    what = "static" if str(keyword.arg).startswith("static") else "donated"
    return f"declare {' and '.join(f'`{n}`' for n in names) or 'nothing'} {what}"


def _proved(prover: Prover, cell: str, names: set[str]) -> str:
    """The whole cell gives, compiled as it says, what it gives without jit."""
    with contextlib.suppress(Exception):
        got, plain = (programs.results(prover, cell, names, jit=j) for j in (True, False))
        if got and wholes.agree(got, plain):
            number = f"{len(got)} call{'s' * (len(got) > 1)}"
            return f"the whole cell run again; equal to the run without jit on {number}"
    return ""
