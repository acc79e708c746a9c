"""An object that holds settings alone as a static argument: only where equal settings are equal objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes import adopt
from jitmagic.fixes.rewrite.place import Candidate
from jitmagic.fixes.rewrites import propose_from
from jitmagic.report import Fix
from jitmagic.tracing.search import is_random

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

COST = "each new one compiles again"


def propose(evidence: Evidence, prover: Prover, name: str, value: Any) -> Iterator[Fix]:
    """`static_argnames` for a frozen object of settings, or for a receiver that has no state at all."""
    options = prover.checker.options
    receiver = evidence.function.is_method and evidence.function.parameters[:1] == (name,)
    if not may_be_static(value) or not (receiver or adopt.fields(value)):
        return
    if receiver:
        made = replace(options, static_argnums=(*options.static_argnums, 0))
    else:
        made = replace(options, static_argnames=(*options.static_argnames, name))
    title = f"make `{name}` static: it holds {'settings alone' if adopt.fields(value) else 'no state'}, and {COST}"
    proof = prover.options(made)
    if proof.holds:
        yield Fix(
            title=title, applicability="unsafe", verified=True, evidence=proof.words,
            static_argnames=None if receiver else made.static_argnames,
            static_argnums=made.static_argnums if receiver else None,
        )  # fmt: skip
    else:  # what the function does besides has to be rewritten
        yield from propose_from(
            Candidate(title, evidence.function.cell, "unsafe", static=(name,)), evidence, prover
        )


def may_be_static(value: Any) -> bool:
    """No state can be frozen in it: it compares by what it holds and cannot change, or it holds nothing."""
    fields = adopt.fields(value)
    if is_random(value) or any(hasattr(type(value), n) for n in ("__iter__", "__next__", "__getitem__")):
        return False  # it gives data
    if not fields:
        return True
    kind = type(value)
    by_value = kind.__eq__ is not object.__eq__ and kind.__hash__ not in (object.__hash__, None)
    return by_value and all(_is_setting(v) for v in fields.values()) and _is_hashable(value)


def _is_setting(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_setting, value))
    return isinstance(value, (str, bytes, bool, int, float, complex, type(None), type)) or callable(value)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
