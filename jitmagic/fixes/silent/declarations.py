"""Declarations of static or donated arguments that do not fit, mended and run: on the calls of later cells, or in
the whole cell."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes import specs
from jitmagic.fixes.definitions import as_made, define
from jitmagic.fixes.silent import programs, trial, wholes
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Finding, Fix
from jitmagic.source.cell import bound_names
from jitmagic.units import counted

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

_MOST = 8


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The first declaration with which the cell runs as it does without jit."""
    cell, name = evidence.function.cell, evidence.function.name
    text, wrong = Text(cell), finding.kind == "bad-static-spec"
    for tried, (declaration, spec) in enumerate(_candidates(text, fits=not wrong)):
        if tried == _MOST or prover.out_of_time():
            return
        made = specs.written(cell, declaration, spec)
        # a function that was called at all is tried with other options
        uncalled = wrong and not prover.samples and declaration.function is text.function(name)
        words = _by_later_calls(prover, made, name) if uncalled else ""
        if not words and declaration.names:
            words = _by_whole_cell(prover, made, declaration.names)
        verified = bool(words)
        if not words and uncalled and any(spec.values()) and _is_for_later(prover, made, name):
            words = "the cell can be run with it; no call was there to try it on"
        if words:
            yield Fix(title=specs.title(declaration, spec), applicability="safe", verified=verified,
                      evidence=words, cell=made)  # fmt: skip
            return


def _candidates(text: Text, *, fits: bool) -> Iterator[tuple[specs.Declaration, specs.Spec]]:
    for declaration in specs.declarations(text):
        for spec in specs.candidates(declaration, fits=fits):
            yield declaration, spec


def _by_later_calls(prover: Prover, cell: str, name: str) -> str:
    """The calls of later cells give, compiled as the cell says, what they give without jit."""
    with contextlib.suppress(Exception):
        sources = trial.history(prover)
        if any(trial.calls_in(ast.parse(s), name) for s in sources):
            got = trial.play(prover, cell, sources, jit=None, function=name).results
            plain = trial.play(prover, cell, sources, jit=False, function=name).results
            if got and trial.same(plain, got):
                return f"traced; equal to the run without jit on {_calls(got)}"
    return ""


def _by_whole_cell(prover: Prover, cell: str, names: Collection[str]) -> str:
    """The whole cell, with the calls after it, gives compiled as it says what it gives without jit."""
    program = "\n".join([cell, *trial.history(prover)])
    with contextlib.suppress(Exception):
        got, plain = (programs.results(prover, program, names, jit=j) for j in (True, False))
        if got and wholes.agree(got, plain):
            return f"the whole cell run again; equal to the run without jit on {_calls(got)}"
    return ""


def _calls(results: Sequence[Any]) -> str:
    return counted(len(results), "call")


def _is_for_later(prover: Prover, cell: str, name: str) -> bool:
    """The cell defines the function, and nothing calls it so far."""
    with contextlib.suppress(Exception):
        names = {name, *_made_of(cell, name)}
        sources = (cell, *trial.history(prover))
        if not any(trial.calls_in(ast.parse(s), n) for s in sources for n in names):
            namespace = dict(prover.checker.namespace)
            with trial.aside(prover):
                define(cell, namespace)
                return callable(as_made(namespace, name))
    return False


def _made_of(cell: str, name: str) -> set[str]:
    """What the cell makes of the function: `g` in `g = jax.jit(f)`."""
    return {
        n
        for s in ast.parse(cell).body
        if isinstance(s, ast.Assign) and any(getattr(n, "id", "") == name for n in ast.walk(s.value))
        for n in bound_names(s)
    }
