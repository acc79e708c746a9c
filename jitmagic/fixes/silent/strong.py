"""Numbers of weak type as arrays of fixed dtype: in the calls, or where they are written into a tuple or object."""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence, Leaf
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.calls import argument_of, fewer, replaced, with_argument
from jitmagic.fixes.silent.states import alias
from jitmagic.fixes.silent.text import Text, calls_in
from jitmagic.report import Finding, Fix
from jitmagic.rules.words import listed
from jitmagic.source.expressions import dotted_name, last_name

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """Corrected calls for recompile-weak-type."""
    sources = trial.call_sources(prover)
    if not sources:
        return
    arguments = _arrays_later(finding, evidence)
    new, jnp = list(sources), alias(prover, "jax.numpy") or "jnp"
    inside = {p: leaf for p, leaf in arguments.items() if p != leaf.argument}
    if inside:
        yield from itertools.islice(_strong_inside(evidence, prover, sources, inside, jnp), 1)
        return
    for path, leaf in arguments.items():
        template = (
            f"{jnp}.{leaf.dtype}({{}})" if leaf.shape == () else f"{jnp}.asarray({{}}, {jnp}.{leaf.dtype})"
        )
        with contextlib.suppress(SyntaxError, ValueError):
            new = [
                s if _is_cast(s, evidence, path, leaf.dtype) else with_argument(s, evidence, path, template)
                for s in new
            ]
    names = listed(arguments)
    for calls in (_begun_strong(evidence, prover, sources, arguments, jnp), new):
        if calls == sources:
            continue
        with contextlib.suppress(Exception):
            got = trial.play(prover, prover.checker.cell.body, replaced(prover, sources, calls))
            wanted = trial.original(prover, trial.history(prover), jit=False)
            before = trial.original(prover, trial.history(prover), jit=True)
            if trial.same(wanted.results, got.results) and got.traces < before.traces:
                yield Fix(
                    title=f"pass {names} as an array of fixed dtype", applicability="safe", verified=True,
                    evidence=fewer(got, before), calls=tuple(calls),
                )  # fmt: skip
                return


def _arrays_later(finding: Finding, evidence: Evidence) -> dict[str, Leaf]:
    """Strong forms of the culprits, and the other numbers that come back as arrays: jax keeps an entry for each."""
    leaves = [x for c in evidence.calls for x in c.leaves if not x.static]
    numbers = {x.path for x in leaves if x.kind == "scalar"}
    return {
        x.path: x for x in leaves
        if (x.path in finding.culprits and not x.weak_type) or (x.path in numbers and x.kind == "array")
    }  # fmt: skip


def _begun_strong(
    evidence: Evidence, prover: Prover, sources: list[str], arguments: Mapping[str, Leaf], jnp: str
) -> list[str]:
    """In a cell with its calls: `t = 0.0`, which a call passes later, as `t = jnp.float32(0.0)`."""
    if prover.parts is None:
        return sources
    passed = {
        node.id: leaf.dtype
        for path, leaf in arguments.items() if path == leaf.argument and leaf.shape == ()
        for s in sources for call in calls_in(ast.parse(s), prover.checker.name)
        for node in (argument_of(call, evidence, path),) if isinstance(node, ast.Name)
    }  # fmt: skip
    new: list[str] = []
    for source in trial.history(prover):
        text = Text(source)
        for node in ast.walk(text.tree):
            if not isinstance(node, ast.Assign) or not _is_number(node.value):
                continue
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id in passed:
                text.replace(node.value, f"{jnp}.{passed[target.id]}({text.code(node.value)})")
        new.append(text.result())
    return new


def _is_cast(source: str, evidence: Evidence, path: str, dtype: str) -> bool:
    """All calls in the source pass `jnp.float32(...)` there already."""
    calls = calls_in(ast.parse(source), evidence.function.name)
    given = [argument_of(call, evidence, path) for call in calls]
    return bool(given) and all(
        isinstance(node, ast.Call) and last_name(node.func) == dtype and len(node.args) == 1 for node in given
    )


def _is_number(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _strong_inside(
    evidence: Evidence, prover: Prover, sources: list[str], leaves: Mapping[str, Leaf], jnp: str
) -> Iterator[Fix]:
    """Numbers in a tuple, dict or object as arrays where that is written, else the whole converted at each call."""
    history = trial.history(prover)
    written = [_written(s, evidence, prover, leaves, jnp, sources) for s in history]
    tree = f"jax.tree.map(lambda v: {jnp}.asarray(v, {jnp}.result_type(v)), {{}})"
    wrapped = list(sources)
    for name in dict.fromkeys(leaf.argument for leaf in leaves.values()):
        with contextlib.suppress(SyntaxError, ValueError):
            wrapped = [with_argument(s, evidence, name, tree) for s in wrapped]
    names = listed(leaves)
    for played, calls in ((written, written), (replaced(prover, sources, wrapped), wrapped)):
        if played == history:
            continue
        with contextlib.suppress(Exception):
            got = trial.play(prover, prover.checker.cell.body, played)
            wanted = trial.original(prover, history, jit=False)
            before = trial.original(prover, history, jit=True)
            if trial.same(wanted.results, got.results) and got.traces < before.traces:
                yield Fix(
                    title=f"pass {names} as arrays of fixed dtype", applicability="safe", verified=True,
                    evidence=fewer(got, before), calls=tuple(calls),
                )  # fmt: skip


def _written(
    source: str,
    evidence: Evidence,
    prover: Prover,
    leaves: Mapping[str, Leaf],
    jnp: str,
    sources: Sequence[str],
) -> str:
    """A source with `jnp.float32(...)` around the numbers that it writes into what is passed as the argument."""
    text = Text(source)
    for path, leaf in leaves.items():
        tail = path.removeprefix(leaf.argument)
        given = [
            argument_of(c, evidence, leaf.argument)
            for s in sources
            for c in calls_in(ast.parse(s), evidence.function.name)
        ]
        names = {n.id for n in given if isinstance(n, ast.Name)}
        bound = [
            s.value
            for s in text.tree.body
            if isinstance(s, ast.Assign) and any(isinstance(t, ast.Name) and t.id in names for t in s.targets)
        ]
        direct = [
            argument_of(c, evidence, leaf.argument) for c in calls_in(text.tree, evidence.function.name)
        ]
        for node in (*bound, *direct):
            number = _inside(node, tail, prover)
            if number is not None:
                text.replace(number, f"{jnp}.{leaf.dtype}({text.code(number)})")
    with contextlib.suppress(SyntaxError):
        return text.result()
    return source


def _inside(node: ast.AST | None, tail: str, prover: Prover) -> ast.expr | None:
    """The number that a display holds at `[0]`, `['n']` or `.n`; None where no plain number is written there."""
    for step in re.findall(r"\[[^\]]*\]|\.\w+", tail):
        key = step[1:] if step[0] == "." else ast.literal_eval(step[1:-1])
        if isinstance(node, ast.Tuple | ast.List) and isinstance(key, int) and key < len(node.elts):
            node = node.elts[key]
        elif isinstance(node, ast.Dict):
            keys = [getattr(k, "value", None) for k in node.keys]
            node = node.values[keys.index(key)] if key in keys else None
        elif isinstance(node, ast.Call):
            node = _field(node, key, prover)
        else:
            return None
    signed = node.operand if isinstance(node, ast.UnaryOp) else node
    plain = isinstance(signed, ast.Constant) and isinstance(signed.value, int | float | complex)
    return node if plain and isinstance(node, ast.expr) else None


def _field(call: ast.Call, name: object, prover: Prover) -> ast.expr | None:
    """What the call of a NamedTuple, dataclass or `dict` passes for a field."""
    found = next((k.value for k in call.keywords if k.arg == name), None)
    kind = prover.checker.namespace.get(dotted_name(call.func))
    order: list[str] = [*(getattr(kind, "_fields", ()) or getattr(kind, "__dataclass_fields__", ()))]
    index = (
        order.index(name) if name in order else name if isinstance(name, int) and order else len(call.args)
    )
    return found or (call.args[index] if isinstance(index, int) and index < len(call.args) else None)
