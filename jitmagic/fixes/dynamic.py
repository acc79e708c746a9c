"""Fixes that declare captured values as dynamic variables."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable

from jitmagic.evidence import Evidence, Variable
from jitmagic.fixes.prove import Prover
from jitmagic.report import Finding, Fix
from jitmagic.rules.base import covers, root
from jitmagic.rules.words import listed
from jitmagic.source.tree import tolerant_tree, walk

CAPTURED = ("captured-constant", "captured-scalar", "stale-constant", "large-constant")
STATE = ("state-write", "leaked-tracer", "unregistered-pytree", "in-place-update", "hidden-rng")


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterable[Fix]:
    """The captured values that change, or the state that is written, as hidden inputs and outputs."""
    if finding.kind in CAPTURED:
        sets = _captured(finding, evidence)
    elif finding.kind in STATE:
        sets = _state(finding, evidence, prover)
    else:
        return
    for paths in sets:
        proof = prover.dynamic(paths) if paths else None
        if proof is not None and proof.holds:
            yield Fix(
                title=f"make {listed(paths)} dynamic",
                applicability="safe",
                verified=True,
                evidence=proof.words,
                dyn=tuple(paths),
            )
            return


def _numeric(v: Variable) -> bool:
    return v.type in ("array", "scalar") and v.dtype not in ("str", "bool", None)


def _captured(finding: Finding, evidence: Evidence) -> list[list[str]]:
    """What the finding names and whatever else changes; then what it names alone."""
    numeric = {v.path: v for v in evidence.variables if _numeric(v) and v.role == "constant"}
    named = [c for c in finding.culprits if c in numeric]
    others = [p for p, v in numeric.items() if p not in named and (v.stale or v.rebound)]
    siblings = [p for p, v in numeric.items() if p not in named + others and v.type == "array"]
    sets = [named + others, named]
    if evidence.dynamic_inputs == 0:
        sets.insert(0, named + others + siblings)
    # Entries of a tuple cannot be set one by one: the whole can be, where it is a variable.
    sets.append(list(dict.fromkeys(root(p) for p in named + others)))
    kept = _dynamic_already(evidence)
    sets = [[*(p for p in kept if p not in s), *s] for s in sets if s]
    return [s for i, s in enumerate(sets) if s and s not in sets[:i]]


def _dynamic_already(evidence: Evidence) -> list[str]:
    """What was declared, or is dynamic by itself: a longer declaration has to name it too."""
    if evidence.options.dyn is not None:
        return list(evidence.options.dyn)
    return [v.path for v in evidence.variables if v.role == "dynamic" and not v.path.startswith("<")]


def _is_number(value: object) -> bool:
    from jitmagic.state.values import is_number

    return is_number(value)


def bound_to_others(evidence: Evidence, prover: Prover) -> list[str]:
    """Names that the function binds to another dict, list or object. Who declares such a name may mean the one that
    is there now, which then never changes: to take it as an argument and return the new one leaves no doubt."""
    from jitmagic.state.adapters import adapter_for
    from jitmagic.state.values import is_leaf

    bound = {w.path for w in evidence.writes if w.action == "changed"}
    tree = tolerant_tree(textwrap.dedent(evidence.function.source))
    stored = (n for n in walk(tree) if isinstance(n, ast.Attribute)) if tree is not None else ()
    bound |= {ast.unparse(n) for n in stored if isinstance(n.ctx, ast.Store)}
    if not bound or not prover.samples:
        return []
    sample = prover.samples[-1]
    held = prover.checker.reach(sample.args, sample.kwargs).values()
    return [
        r.path for r in held
        if r.path in bound
        and not (isinstance(r.value, tuple) or is_leaf(r.value) or adapter_for(r.value) is not None)
    ]  # fmt: skip


def _state(finding: Finding, evidence: Evidence, prover: Prover) -> list[list[str]]:
    """The written paths; for an object that jax can't take, the numbers in it that are read."""
    # What the function adds is not there before its first call, when the declaration is read.
    written = [w.path for w in evidence.writes if w.action != "added"]
    declared = _dynamic_already(evidence)
    sets = [[*declared, *(p for p in written if p in finding.culprits)], [*declared, *written]]
    if finding.kind == "unregistered-pytree" and prover.samples:
        sample = prover.samples[-1]
        leaves = prover.checker.reach(sample.args, sample.kwargs).leaves()
        roots = set(finding.culprits)
        own = [leaf for leaf in leaves if leaf.path.split(".")[0] in roots and _is_number(leaf.value)]
        read = [x.path for x in own if f".{x.path.rpartition('.')[2]}" in evidence.function.source]
        sets = [read, [x.path for x in own]]
    whole = bound_to_others(evidence, prover)
    sets = [s for s in sets if not any(covers(w, path) for w in whole for path in s)]
    return [s for i, s in enumerate(sets) if s and s not in sets[:i]]
