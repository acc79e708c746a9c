"""Modules of Equinox that hold settings beside arrays: the settings as static fields, or its own `jit`."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import states, trial
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For a module among the arguments that jax refuses for what it holds besides arrays."""
    equinox = states.alias(prover, "equinox")
    modules = [m for s in prover.samples for m in (*s.args, *s.kwargs.values()) if _is_module(m)]
    if not equinox or not modules:
        return
    yield from _static_fields(evidence, prover, modules, equinox)
    yield from _filtered(evidence, prover, equinox)


def _is_module(value: Any) -> bool:
    return "equinox" in sys.modules and isinstance(value, sys.modules["equinox"].Module)


def _static_fields(evidence: Evidence, prover: Prover, modules: list[Any], equinox: str) -> Iterator[Fix]:
    """`kind: str = eqx.field(static=True)` for the fields of the cell's classes that hold no numbers."""
    text, names = Text(evidence.function.cell), list[str]()
    classes = {n.name: n for n in text.tree.body if isinstance(n, ast.ClassDef)}
    for cls in {type(m) for m in modules} & {prover.checker.namespace.get(n) for n in classes}:
        for field in classes[cls.__name__].body:
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name) or field.value:
                continue
            held = [getattr(m, field.target.id, 0) for m in modules if type(m) is cls]
            if all(map(_is_setting, held)):
                text.replace(field, f"{text.code(field)} = {equinox}.field(static=True)")
                names.append(field.target.id)
    if names:
        title = f"declare {' and '.join(f'`{n}`' for n in names)} static: each new value compiles again"
        yield from _proved(prover, evidence, text.result(), title, jit=True)


def _is_setting(value: Any) -> bool:
    return isinstance(value, str) or (callable(value) and not _is_module(value))


def _filtered(evidence: Evidence, prover: Prover, equinox: str) -> Iterator[Fix]:
    """`@eqx.filter_jit` in the place of `@jax.jit`, or above the function."""
    text, options = Text(evidence.function.cell), prover.checker.options
    function = text.function(evidence.function.name)
    if function is None or options.static_argnames or options.static_argnums:
        return
    states.decorate(text, function, f"{equinox}.filter_jit")
    title = f"compile with {equinox}.filter_jit, which traces the arrays and keeps the rest as it is"
    yield from _proved(prover, evidence, text.result(), title, jit=None)


def _proved(prover: Prover, evidence: Evidence, cell: str, title: str, *, jit: bool | None) -> Iterator[Fix]:
    sources = trial.history(prover)
    with contextlib.suppress(Exception):
        got = trial.play(prover, cell, sources, jit=jit).results
        if got and trial.same(trial.original(prover, sources, jit=False).results, got):
            yield Fix(
                title=title, applicability="safe", verified=True, cell=cell,
                evidence=f"traced; equal to the run without jit on {len(got)} call{'s' * (len(got) > 1)}",
            )  # fmt: skip
