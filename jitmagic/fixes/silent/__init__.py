"""Fixes for what goes wrong without an error, each run with its calls before it counts as verified."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

BLOCKING = ("queue", "input", "process")

Family = Callable[[Finding, Evidence, "Prover"], Iterable[Fix]]


def families(kind: str) -> tuple[Family, ...]:
    """The families that know a fix for a kind, the best first."""
    from jitmagic.fixes.objects import fields
    from jitmagic.fixes.silent import (
        arguments,
        calls,
        carried,
        classes,
        copies,
        declarations,
        helpers,
        hoisting,
        keys,
        loops,
        numbers,
        padding,
        passed,
        reading,
        returned,
        states,
        strong,
        widths,
    )

    return {
        "stale-constant": (helpers.propose, states.propose, passed.propose, reading.propose, carried.propose),
        "captured-constant": (passed.propose,),
        "captured-scalar": (passed.propose,),
        "large-constant": (passed.propose,),
        "state-write": (
            copies.propose,
            copies.propose_for_caller,
            states.propose,
            carried.propose,
            arguments.propose,
            returned.propose,
        ),
        "in-place-update": (copies.propose_for_caller,),
        "leaked-tracer": (states.propose, carried.propose),
        "unregistered-pytree": (carried.propose,),
        "invalid-jax-type": (carried.propose,),
        "hidden-rng": (states.by_own_jit, arguments.propose),
        "frozen-side-effect": (arguments.propose,),
        "bad-static-spec": (declarations.propose,),
        "unhashable-static": (declarations.propose,),
        "key-reuse": (keys.propose,),
        "recompile-weak-type": (strong.propose,),
        "recompile-new-function": (calls.propose, hoisting.propose),
        "recompile-static": (calls.propose, states.as_variables, fields.as_arrays),
        "recompile-shape": (padding.propose,),
        "donated-reuse": (calls.propose,),
        "unrolled-loop": (loops.propose,),
        "nan": (numbers.propose,),
        "lossy-pytree": (classes.propose,),
        "array-in-aux-data": (classes.propose,),
        "jit-differs-from-eager": (widths.propose,),
        "dtype-truncation": (widths.propose,),
        "user-error": (widths.propose_for_errors,),
    }.get(kind, ())


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """Corrected cells and calls for the silent kinds. A family that cannot cope offers nothing."""
    from jitmagic.fixes.rewrite.cells import masked

    if not evidence.function.cell or (prover.checker.settings.trace_only and prover.checker.settings.compile):
        return
    if any(e.what in BLOCKING for e in (evidence.silent.effects if evidence.silent else ())):
        # To run such a function again may wait for ever, or change something outside.
        if finding.kind == "frozen-side-effect":
            from jitmagic.fixes.silent import arguments

            yield from (_with_diff(f, evidence) for f in arguments.untried(finding, evidence, prover))
        return
    plain = masked(evidence.function.cell)
    if plain != evidence.function.cell:  # lines with magics are no Python
        evidence = replace(evidence, function=replace(evidence.function, cell=plain))
    for family in families(finding.kind):
        if prover.out_of_time():
            return
        try:
            yield from (
                _in_context(_with_diff(f, evidence), evidence, prover)
                for f in family(finding, evidence, prover)
            )
        except (SyntaxError, RecursionError, LookupError, AttributeError, TypeError, ValueError):
            if _DEBUG:
                raise


def _in_context(fix: Fix, evidence: Evidence, prover: Prover) -> Fix:
    """Calls of what the cell defines besides the function (`net = Net(3)`) stand among the corrected calls."""
    import ast

    from jitmagic.fixes.silent import trial
    from jitmagic.fixes.silent.text import calls_in

    if prover.parts is not None:
        return fix  # they have their places in the cell
    history, sources = trial.history(prover), trial.call_sources(prover)
    own = {
        s.name
        for s in ast.parse(evidence.function.cell).body
        if isinstance(s, ast.FunctionDef | ast.ClassDef)
    }
    others = [s for s in history if s not in sources]
    if not fix.calls or not any(calls_in(ast.parse(s), name) for s in others for name in own):
        return fix
    distinct = list(dict.fromkeys(sources))
    if len(fix.calls) == len(sources):
        corrected = iter(fix.calls)
        return replace(fix, calls=tuple(next(corrected) if s in sources else s for s in history))
    if len(fix.calls) == len(distinct):
        known = dict(zip(distinct, fix.calls, strict=True))
        return replace(fix, calls=tuple(known.get(s, s) for s in history))
    return fix


def _with_diff(fix: Fix, evidence: Evidence) -> Fix:
    from jitmagic.fixes.rewrite.cells import unmasked
    from jitmagic.fixes.rewrites import diff

    if fix.cell is None:
        return fix
    old, new = unmasked(evidence.function.cell), unmasked(fix.cell)
    return replace(fix, cell=new, diff=diff(old, new))


_DEBUG = False
