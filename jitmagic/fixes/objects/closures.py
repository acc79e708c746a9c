"""A function among the results: given back as a `Partial`, a pytree whose leaves are the values that it has kept."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrites import diff
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import FunctionNode, Text
from jitmagic.report import Fix
from jitmagic.rules.words import listed

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """`return jax.tree_util.Partial(predict, slope)`, where `predict` takes `slope` as its first argument."""
    source = evidence.function.cell
    text = Text(source)
    function = text.function(evidence.function.name)
    if function is None:
        return
    static = prover.checker.options.static_parameters(prover.checker.fn)
    module = _module(prover)
    kept = _given_back(text, function, static, module or "jax")
    cell = text.result() if module else f"import jax\n\n{text.result()}"
    if not kept:
        return
    with contextlib.suppress(Exception):
        history = trial.call_sources(prover)
        got = trial.play(prover, cell, history).results
        wanted = trial.original(prover, history, jit=False).results
        if (
            got
            and len(got) == len(wanted)
            and all(_alike(w, g, kept) for w, g in zip(wanted, got, strict=True))
        ):
            number = f"{len(got)} call{'s' * (len(got) > 1)}"
            yield Fix(
                title=f"return a function that takes {listed(kept)} along: a `Partial`, whose values jax can return",
                applicability="unsafe", verified=True, cell=cell, diff=diff(source, cell),
                evidence=f"traced; keeps the same values as without jit on {number}",
            )  # fmt: skip


def _module(prover: Prover) -> str:
    """How the notebook calls jax; nothing where it does not."""
    import jax

    return next((n for n, v in prover.checker.namespace.items() if v is jax and not n.startswith("_")), "")


def _given_back(text: Text, function: FunctionNode, static: frozenset[str], jax: str) -> list[str]:
    """Rewrite what the function returns; the names whose values go along with it."""
    found: list[str] = []
    own = {f.name: f for f in function.body if isinstance(f, ast.FunctionDef)}
    bound = {
        *names.stores(ast.Module(function.body, [])),
        *(a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)),
    }
    bound -= static
    for leave in (n for n in ast.walk(function) if isinstance(n, ast.Return) and _of(text, n) is function):
        parts = leave.value.elts if isinstance(leave.value, ast.Tuple) else [leave.value]
        for part in filter(None, parts):
            inner = own.get(part.id) if isinstance(part, ast.Name) else part
            if not isinstance(inner, (ast.FunctionDef, ast.Lambda)):
                continue
            read = [n for n in _in_order(inner) if n in names.loads(inner) & bound and n not in own]
            if not read or isinstance(part, ast.Name) and _otherwise_used(function, part):
                return []
            _take_first(text, inner, read)
            given = ", ".join(
                [text.code(part) if isinstance(part, ast.Name) else _lambda(text, inner, read), *read]
            )
            text.replace(part, f"{jax}.tree_util.Partial({given})")
            found += read
    return list(dict.fromkeys(found))


def _of(text: Text, node: ast.AST) -> ast.AST:
    """The function around a node."""
    while not isinstance(node, (FunctionNode, ast.Lambda)):
        node = text.parents[node]
    return node


def _in_order(node: ast.AST) -> Iterator[str]:
    found = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    found.sort(key=lambda n: (n.lineno, n.col_offset))
    yield from dict.fromkeys(n.id for n in found)


def _otherwise_used(function: ast.AST, name: ast.Name) -> bool:
    return sum(isinstance(n, ast.Name) and n.id == name.id for n in ast.walk(function)) > 1


def _take_first(text: Text, inner: ast.AST, read: Sequence[str]) -> None:
    """Add the names in front of the parameters of a definition."""
    if not isinstance(inner, ast.FunctionDef):
        return
    start, _ = text.span(inner)
    begin = text.source.index("(", text.source.index(inner.name, start)) + 1
    more = ", " if any(isinstance(a, ast.arg) for a in ast.walk(inner.args)) else ""
    text.changes.append((begin, begin, ", ".join(read) + more))


def _lambda(text: Text, inner: ast.AST, read: Sequence[str]) -> str:
    assert isinstance(inner, ast.Lambda)
    parameters = ast.unparse(inner.args)
    return f"lambda {', '.join([*read, *([parameters] if parameters else [])])}: {text.code(inner.body)}"


def _alike(wanted: Any, got: Any, kept: Sequence[str]) -> bool:
    """The function that was returned had kept what goes along with the new one; all other results are the same."""
    import jax

    if isinstance(got, jax.tree_util.Partial):
        closed = inspect.getclosurevars(wanted).nonlocals if inspect.isfunction(wanted) else {}
        values = [closed[n] for n in kept if n in closed]
        return len(values) == len(got.args) and trial.same(values, list(got.args))
    if isinstance(got, tuple) and isinstance(wanted, tuple) and len(got) == len(wanted):
        return all(_alike(w, g, kept) for w, g in zip(wanted, got, strict=True))
    return trial.same(wanted, got)
