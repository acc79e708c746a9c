"""A function that the notebook redefines: taken as a static argument, or the caller compiled anew."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import Text, add_argument, add_parameter, calls_in
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For a stale function: it as a static argument where the cell names it, else `f.clear_cache()` in the calls."""
    stale = [
        v.path for v in evidence.variables if v.stale and v.type == "function" and v.path in finding.culprits
    ]
    sources, history = trial.call_sources(prover), trial.history(prover)
    if not stale or not sources:
        return
    found = _as_argument(evidence, prover, stale, sources, history) or _cleared(
        evidence, prover, stale, history
    )
    if found is not None:
        yield found


def _wanted(prover: Prover, history: Sequence[str]) -> trial.Played:
    return trial.original(prover, history, jit=False)


def _as_argument(
    evidence: Evidence, prover: Prover, stale: Sequence[str], sources: Sequence[str], history: Sequence[str]
) -> Fix | None:
    """`f(x, act)` with `act` static: each new function is one compilation, and none is missed."""
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    if function is None or not all(n.isidentifier() and _is_read(text, evidence, n) for n in stale):
        return None
    if function.decorator_list:
        return None  # numbers in the options of a decorator would be wrong
    cell, calls = evidence.function.cell, {s: s for s in sources}
    for name in stale:
        text = Text(cell)
        node = text.function(evidence.function.name)
        assert node is not None
        keyword = add_parameter(text, node, name)
        cell = text.result()
        calls = {
            s: add_argument(c, evidence.function.name, name, name if keyword else "")
            for s, c in calls.items()
        }
    options = prover.checker.options
    made = replace(options, static_argnames=tuple(dict.fromkeys((*options.static_argnames, *stale))))
    with contextlib.suppress(Exception):
        got = trial.play(prover, cell, [calls.get(s, s) for s in history], options=made)
        wanted = _wanted(prover, history)
        if got.traces > 1 and trial.same(wanted.results, got.results):
            names = " and ".join(f"`{n}`" for n in stale)
            return Fix(
                title=f"take {names} as a static argument: each new function compiles again",
                applicability="unsafe", verified=True,
                evidence=f"the results without jit, also after it is redefined, with {_traces(got.traces)}",
                cell=cell, calls=tuple(calls[s] for s in sources), static_argnames=made.static_argnames,
            )  # fmt: skip
    return None


def _traces(number: int) -> str:
    return "1 trace" if number == 1 else f"{number} traces"


def _is_read(text: Text, evidence: Evidence, name: str) -> bool:
    """The function itself reads the name, and does not bind it."""
    import ast

    function = text.function(evidence.function.name)
    uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name] if function else []
    arguments = {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)} if function else set()
    return bool(uses) and name not in arguments and all(isinstance(n.ctx, ast.Load) for n in uses)


def _cleared(evidence: Evidence, prover: Prover, stale: Sequence[str], history: Sequence[str]) -> Fix | None:
    """`f.clear_cache()` after each cell that redefines the helper."""
    import ast

    if not prover.checker.settings.compile:
        return None
    heads = {n.partition(".")[0] for n in stale}
    clear = f"{evidence.function.name}.clear_cache()"
    new: list[str] = []
    for source in history:
        new.append(source)
        if heads & trial.bound_by(source) and not calls_in(ast.parse(source), evidence.function.name):
            new.append(clear)
    if len(new) == len(history):
        return None
    with contextlib.suppress(Exception):
        got, wanted = trial.play(prover, evidence.function.cell, new), _wanted(prover, history)
        if got.traces > 1 and trial.same(wanted.results, got.results):
            names = " or ".join(f"`{n}`" for n in stale)
            return Fix(
                title=f"compile `{evidence.function.name}` again after {names} is redefined", applicability="unsafe",
                verified=True, evidence=f"the results without jit, with {_traces(got.traces)}", calls=tuple(new),
            )  # fmt: skip
    return None
