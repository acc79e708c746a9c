"""Calls that pass other things: one function object, copies of what is given away."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import Text, calls_in
from jitmagic.report import Finding, Fix
from jitmagic.rules.words import listed

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """Corrected calls for recompile-new-function, recompile-static and donated-reuse."""
    sources = trial.call_sources(prover)
    if not sources:
        return
    if finding.kind in ("recompile-new-function", "recompile-static"):
        yield from _hoisted(finding, evidence, prover, sources)
        yield from _as_array(finding, evidence, prover, sources)
    elif finding.kind == "donated-reuse":
        yield from _copied(evidence, prover, sources)


def argument_of(call: ast.Call, evidence: Evidence, name: str) -> ast.expr | None:
    """The expression that a call passes for a parameter."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    order = list(evidence.function.parameters)
    if evidence.function.is_method and isinstance(call.func, ast.Attribute):
        order = order[1:]
    index = order.index(name) if name in order else -1
    plain = not any(isinstance(a, ast.Starred) for a in call.args)
    return call.args[index] if plain and 0 <= index < len(call.args) else None


def with_changed(
    source: str, evidence: Evidence, names: Sequence[str], change: Callable[[Text, ast.expr], object]
) -> str:
    """A source after the same change to all that its calls pass for these parameters."""
    text = Text(source)
    for call in calls_in(text.tree, evidence.function.name):
        for node in (argument_of(call, evidence, name) for name in names):
            if node is not None:
                change(text, node)
    return text.result()


def with_argument(source: str, evidence: Evidence, name: str, template: str) -> str:
    """A source in whose calls the argument is wrapped: `jnp.float32({})`."""
    return with_changed(
        source, evidence, [name], lambda text, node: text.replace(node, template.format(text.code(node)))
    )


def replaced(prover: Prover, old: list[str], new: list[str]) -> list[str]:
    """The history with the calls replaced, or all of it."""
    if len(new) != len(old):
        return new
    changed = dict(zip(old, new, strict=True))
    return [changed.get(s, s) for s in trial.history(prover)]


def fewer(now: trial.Played, before: trial.Played) -> str:
    """How many traces are saved, in words."""
    times = "once" if now.traces == 1 else f"{now.traces} times"
    return f"traced {times} in place of {before.traces}; equal to the run without jit"


def _hoisted(finding: Finding, evidence: Evidence, prover: Prover, sources: list[str]) -> Iterator[Fix]:
    """A lambda or partial written at each call, defined once before."""
    for path in finding.culprits:
        texts: dict[str, str] = {}
        new: list[str] = []
        for source in sources:
            text = Text(source)
            for call in calls_in(text.tree, evidence.function.name):
                node = argument_of(call, evidence, path)
                if isinstance(node, ast.Lambda | ast.Call):
                    name = texts.setdefault(ast.unparse(node), _name(path, prover, len(texts)))
                    text.replace(node, name)
            new.append(text.result())
        if not texts:
            continue
        prelude = [f"{name} = {code}" for code, name in texts.items()]
        with contextlib.suppress(Exception):
            cell = prover.checker.cell.body
            got = trial.play(prover, cell, [*prelude, *replaced(prover, sources, new)])
            wanted = trial.original(prover, trial.history(prover), jit=False)
            before = trial.original(prover, trial.history(prover), jit=True)
            if trial.same(wanted.results, got.results) and got.traces < before.traces:
                yield Fix(
                    title=f"make `{path}` once, before the calls", applicability="safe", verified=True,
                    evidence=fewer(got, before),
                    calls=(*prelude, *new),
                )  # fmt: skip
                return


def _as_array(finding: Finding, evidence: Evidence, prover: Prover, sources: list[str]) -> Iterator[Fix]:
    """A number for a jit of Equinox, to which all but arrays is static, passed as an array."""
    from jitmagic.fixes.silent import hoisting, states

    name, numpy = next(iter(finding.culprits), ""), states.alias(prover, "jax.numpy")
    leaves = [x for c in evidence.calls for x in c.leaves if x.path == name]
    numbers = {x.python_type for x in leaves} & {"int", "float", "complex"}
    if evidence.framework != "equinox" or not numpy or not numbers:
        return
    new = [with_argument(s, evidence, name, f"{numpy}.asarray({{}})") for s in sources]
    history = trial.history(prover)
    words = hoisting.compared(prover, prover.checker.cell.body, history, replaced(prover, sources, new))
    if new != sources and words:
        yield Fix(
            title=f"pass `{name}` as an array", applicability="safe", verified=True, evidence=words, calls=tuple(new),
        )  # fmt: skip


def _name(path: str, prover: Prover, number: int) -> str:
    base = path if path.isidentifier() else "value"
    taken = prover.checker.namespace
    candidates = [base, f"the_{base}", *(f"{base}_{i}" for i in range(2, 50))]
    free = [c for c in candidates if c not in taken]
    return free[number] if number < len(free) else f"{base}_{number}"


def _copied(evidence: Evidence, prover: Prover, sources: list[str]) -> Iterator[Fix]:
    """The donated argument as a copy."""
    order, options = evidence.function.parameters, evidence.options
    numbered = [order[n] for n in options.donate_argnums if -len(order) <= n < len(order)]
    donated = list(dict.fromkeys([*options.donate_argnames, *numbered]))
    new = list(sources)
    for name in donated:
        with contextlib.suppress(SyntaxError, ValueError):
            template = "jnp.copy({})" if _is_array(evidence, name) else "jax.tree.map(jnp.copy, {})"
            new = [with_argument(s, evidence, name, template) for s in new]
    if new == list(sources):
        return
    words = ""
    with contextlib.suppress(Exception):
        wanted = trial.original(prover, trial.history(prover), jit=False)
        got = trial.play(
            prover, prover.checker.cell.body, replaced(prover, sources, new), options=prover.checker.options
        )
        if trial.same(wanted.results, got.results):
            words = "traced; equal to the run without jit"
    yield Fix(
        title=f"pass a copy for {listed(donated)}", applicability="safe", verified=bool(words),
        evidence=words or "not tried: the array is gone already", calls=tuple(new),
    )  # fmt: skip


def _is_array(evidence: Evidence, name: str) -> bool:
    """What was passed is one array, not a dict or tuple of them."""
    return all(x.path == name for c in evidence.calls for x in c.leaves if x.argument == name)
