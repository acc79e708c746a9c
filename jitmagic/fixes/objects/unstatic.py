"""A static object that has no hash, or is another one at each call: its numbers as what jax traces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.objects import parts, register
from jitmagic.fixes.rewrites import diff
from jitmagic.fixes.silent import calls, trial
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover
    from jitmagic.options import JitOptions


def propose(finding: Finding, evidence: Evidence, prover: Prover, name: str, value: Any) -> Iterator[Fix]:
    """The class of this cell registered, and the object an ordinary argument; else its numbers as arguments."""
    options = parts.without(prover.checker.options, name, evidence)
    source = evidence.function.cell
    if not register.stores(source, evidence, name):
        for cell in register.registered(source, value):
            if words := _proved(prover, cell, options, fewer=finding.kind == "recompile-static"):
                yield Fix(
                    title=f"register `{type(value).__name__}` with jax, and `{name}` is no longer static",
                    applicability="safe", verified=True, evidence=words, cell=cell, diff=diff(source, cell),
                    static_argnames=options.static_argnames,
                )  # fmt: skip
                return
    for fix in parts.propose(finding, evidence, prover, name, value):
        if set(fix.static_argnames or ()) <= set(options.static_argnames):  # else it compiles as often
            yield fix


def _proved(prover: Prover, cell: str, options: JitOptions, *, fewer: bool) -> str:
    """The results without jit on every call, with `fewer` traces where that is the point."""
    history = trial.history(prover)
    if not fewer:
        return parts.proved(prover, cell, history, history, options) or ""
    with contextlib.suppress(Exception):
        got = trial.play(prover, cell, history, options=options)
        before = trial.original(prover, history, jit=True)
        wanted = trial.original(prover, history, jit=False)
        if got.traces < before.traces and trial.same(wanted.results, got.results):
            return calls.fewer(got, before)
    return ""
