"""State that a function writes, as an argument that it takes and returns: each call stores what comes back."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import carried, trial
from jitmagic.fixes.silent.states import alias
from jitmagic.fixes.silent.text import FunctionNode, Text, add_parameter, calls_in, pass_to
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

_METHODS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For what `--dyn` cannot take: entries that are not there yet, arrays of NumPy, attributes of a function."""
    text, history = Text(evidence.function.cell), trial.history(prover)
    function = text.function(evidence.function.name)
    writes = {w.path: w for w in evidence.writes if w.path in finding.culprits and w.origin != "argument"}
    if function is None or function not in text.tree.body or len(writes) != 1 or function.decorator_list:
        return
    ((place, write),) = writes.items()
    if prover.parts is not None or not prover.checker.settings.compile:
        return
    if not _starts_by_itself(place, prover) if write.action == "added" else prover.dynamic([place]).holds:
        return
    with contextlib.suppress(SyntaxError, ValueError):
        cell, name, by_name = _rewritten(text, function, place, alias(prover, "jax.numpy") or "jnp")
        gives = any(isinstance(n, ast.Return) and n.value for n in carried.own_nodes(function))
        changed = [
            _stored(s, evidence.function.name, place, name, by_name=by_name, gives=gives) for s in history
        ]
        calls = [line for lines in changed for line in lines]
        if _holds(prover, cell, history, calls, place, gives=gives):
            yield Fix(
                title=f"take `{place}` as an argument and return it", applicability="unsafe", verified=True,
                evidence=f"traced; results and `{place}` as without jit", cell=cell, calls=tuple(calls),
            )  # fmt: skip


def _starts_by_itself(place: str, prover: Prover) -> bool:
    """An entry of a `Counter` or `defaultdict`, which can be read before it was ever written."""
    node = ast.parse(place, mode="eval").body
    owner = node.value if isinstance(node, ast.Subscript) else None
    return isinstance(owner, ast.Name) and hasattr(prover.checker.namespace.get(owner.id), "__missing__")


def _rewritten(text: Text, function: FunctionNode, place: str, jnp: str) -> tuple[str, str, bool]:
    """The cell whose function takes and returns the state, the parameter, and whether it is passed by name."""
    if any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(function)):
        raise ValueError("it returns more than once")
    node = ast.parse(place, mode="eval").body
    key = node.slice.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else ""
    name = str(getattr(node, "attr", getattr(node, "id", key))).lstrip("_")
    taken = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} - {place}
    name = name if name.isidentifier() and name not in taken else text.fresh("state", "new_state")
    new = text
    if isinstance(node, ast.Name):  # items of an array are set in a new array
        for s in ast.walk(function):
            if isinstance(s, ast.AugAssign) and ast.unparse(getattr(s.target, "value", s)) == place:
                assert isinstance(s.target, ast.Subscript)
                to = f"{jnp}.asarray({place}).at[{text.code(s.target.slice)}]"
                new.replace(s, f"{place} = {to}.{_METHODS[type(s.op)]}({text.code(s.value)})")
        new = Text(new.result())
        function = new.function(function.name) or function
    lines = carried.inside(new, function, [carried.State(place, name, True)])
    start = new.body_start(function, docstring=not carried.documented(function))
    new.changes.append((start, new.span(function)[1], "\n".join(lines)))
    by_name = add_parameter(new, function, name)
    return new.result(), name, by_name


def _stored(source: str, function: str, place: str, name: str, *, by_name: bool, gives: bool) -> list[str]:
    """The source whose call passes the state and stores the new one. Raises ValueError where the call is not simple."""
    text = Text(source)
    calls = calls_in(text.tree, function)
    if not calls:
        return [source]
    statement = text.tree.body[0]
    if len(text.tree.body) > 1 or getattr(statement, "value", None) is not calls[0] or len(calls) > 1:
        raise ValueError("more than one call")
    pass_to(text, calls[0], name, place, keyword=by_name)
    if isinstance(statement, ast.Assign) and gives and len(statement.targets) == 1:
        target = text.code(statement.targets[0])
        target = f"({target})" if isinstance(statement.targets[0], ast.Tuple) and target[0] != "(" else target
        return [text.replace(statement.targets[0], f"{target}, {place}").result()]
    if not isinstance(statement, ast.Expr):
        raise ValueError("no place to store it")
    out = text.fresh("out", "result")
    head = text.span(calls[0])[0]
    text.changes.append((head, head, f"{out}, {place} = " if gives else f"{place} = "))
    return [text.result(), out] if gives else [text.result()]


def _holds(
    prover: Prover, cell: str, history: Sequence[str], calls: Sequence[str], place: str, *, gives: bool
) -> bool:
    """What each call gives is what it gave without jit, and the state after it."""
    watch = functools.partial(carried.look, [place])
    with contextlib.suppress(Exception):
        wanted = trial.play(prover, prover.checker.cell.body, history, jit=False, watch=watch)
        for jit in (True, False):
            got = trial.play(prover, cell, calls, jit=jit)
            pairs = [(r, [s]) for r, s in got.results] if gives else [(None, [s]) for s in got.results]
            if not pairs or not trial.same([*zip(wanted.results, wanted.states, strict=True)], pairs):
                return False
        return True
    return False
