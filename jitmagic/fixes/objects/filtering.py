"""Modules of Equinox that hold settings beside arrays: compiled by its own `jit`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import states, trial
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Fix
from jitmagic.units import counted

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """`@eqx.filter_jit` in the place of `@jax.jit`, or above the function, where a module is among the arguments."""
    equinox = states.alias(prover, "equinox")
    text, options = Text(evidence.function.cell), prover.checker.options
    function = text.function(evidence.function.name)
    if not equinox or function is None or options.static_argnames or options.static_argnums:
        return
    if not any(_is_module(m) for s in prover.samples for m in (*s.args, *s.kwargs.values())):
        return
    states.decorate(text, function, f"{equinox}.filter_jit")
    sources = trial.history(prover)
    with contextlib.suppress(Exception):
        got = trial.play(prover, text.result(), sources, jit=None).results
        if got and trial.same(trial.original(prover, sources, jit=False).results, got):
            yield Fix(
                title=f"compile with `{equinox}.filter_jit`, which traces the arrays and keeps the rest as it is",
                applicability="safe", verified=True, cell=text.result(),
                evidence=f"traced; equal to the run without jit on {counted(len(got), 'call')}",
            )  # fmt: skip


def _is_module(value: Any) -> bool:
    return "equinox" in sys.modules and isinstance(value, sys.modules["equinox"].Module)
