"""Fixes for objects among the arguments: their class registered, their values passed, or static where it is right."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

ITERATORS = ("generator", "zip", "map", "filter", "enumerate", "chain", "cycle", "islice", "count")
KINDS = ("unregistered-pytree", "invalid-jax-type", "unhashable-static", "recompile-static")
TRACED = ("tracer-bool", "tracer-int", "tracer-array-conversion", "dynamic-shape", "tracer-hash")


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The class registered where this cell defines it; else static, or what is used of it as arguments."""
    from jitmagic.fixes.objects import filtering

    if not evidence.function.cell:
        return
    if finding.kind in TRACED and not evidence.static_verified:
        yield from _of_settings(finding, evidence, prover)
    if finding.kind not in KINDS:
        return
    yield from _of_object(finding, evidence, prover)
    if finding.kind == "invalid-jax-type":
        yield from filtering.propose(evidence, prover)


def _of_object(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    from jitmagic.fixes.objects import (
        closures,
        fields,
        functions,
        hashable,
        once,
        parts,
        rebuilt,
        register,
        settings,
        texts,
        unstatic,
    )

    if not prover.samples:
        if _passes_iterator(finding, evidence):
            yield from once.propose(finding, evidence)
        return
    found = argument(finding, evidence, prover)
    if found is None and finding.kind == "recompile-static":
        return
    if found is None:
        with contextlib.suppress(Exception):  # the plain function fails too
            yield from register.propose_for_results(evidence, prover)
        yield from register.propose_for_made(finding, evidence, prover)
        yield from texts.propose(finding, evidence, prover)
        yield from closures.propose(evidence, prover)
        return
    name, value = found
    try:
        if finding.kind == "recompile-static":
            if (
                register.is_object(value) and not evidence.framework
            ):  # to a framework's jit its parts are static too
                yield from unstatic.propose(finding, evidence, prover, name, value)
            return
        if finding.kind == "unhashable-static":
            plain = isinstance(value, (dict, list))
            fixes = [] if plain else list(hashable.propose(evidence, prover, name, value))
            if not fixes and register.is_object(value):
                fixes = list(unstatic.propose(finding, evidence, prover, name, value))
            fixes = fixes or list(parts.propose(finding, evidence, prover, name, value))
            yield from fixes or hashable.as_parts(evidence, prover, name, value)
            return
        if isinstance(value, (slice, set)):
            if not evidence.static_verified:
                yield from hashable.as_parts(evidence, prover, name, value)
            return
        if _holds_arrays(value):
            yield from hashable.called_with(evidence, prover, name, "list({})")
            return
        if isinstance(value, register.CONTAINERS):
            fixes = list(register.propose(finding, evidence, prover, name, value))
            fixes = fixes or list(fields.propose(evidence, prover, value))
            fixes = fixes or list(parts.propose(finding, evidence, prover, name, value))
            if not fixes and isinstance(value, dict):
                fixes = list(rebuilt.propose(evidence, prover, name, value))
            fixes = fixes or list(hashable.as_parts(evidence, prover, name, value))
            yield from fixes or functions.propose(evidence, prover, name, value)
            return
        first = next(iter(register.propose(finding, evidence, prover, name, value)), None)
        first = first or next(iter(fields.propose(evidence, prover, value)), None)
        if first is not None:
            yield first
        static = next(iter(settings.propose(evidence, prover, name, value)), None)
        if static is not None:
            yield static
        if first is None and static is None:
            fixes = list(parts.propose(finding, evidence, prover, name, value))
            yield from fixes or rebuilt.propose(evidence, prover, name, value)
    except (SyntaxError, RecursionError, LookupError, AttributeError, TypeError, ValueError):
        if _DEBUG:
            raise


def _of_settings(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """Numbers in a dict or list that the function needs as Python's own: static, each by itself or all of them."""
    from jitmagic.fixes.objects import hashable, parts

    held = {
        x.argument for c in evidence.calls for x in c.leaves
        if x.kind == "scalar" and x.path != x.argument and x.path in finding.culprits
    }  # fmt: skip
    found = argument(finding, evidence, prover) if held else None
    if found is None or found[0] not in held or not isinstance(found[1], (dict, list)):
        return
    try:
        fixes = list(parts.propose(finding, evidence, prover, *found))
        yield from fixes or hashable.as_parts(evidence, prover, *found)
    except (SyntaxError, RecursionError, LookupError, AttributeError, TypeError, ValueError):
        if _DEBUG:
            raise


def _passes_iterator(finding: Finding, evidence: Evidence) -> bool:
    types = {x.python_type for call in evidence.calls for x in call.leaves if x.path in finding.culprits}
    return any(t in ITERATORS or "iterator" in t for t in types)


def argument(finding: Finding, evidence: Evidence, prover: Prover) -> tuple[str, Any] | None:
    """Name and value of the parameter that jax cannot take, from the newest call that passed one."""
    roots = [re.split(r"[.\[]", c, maxsplit=1)[0] for c in finding.culprits]
    order = evidence.function.parameters
    static = finding.kind == "unhashable-static"
    for sample in reversed(prover.samples):
        given = {**dict(zip(order, sample.args, strict=False)), **sample.kwargs}
        for name in (n for n in dict.fromkeys(roots) if n in given):
            if static or _is_taken_apart(given[name]):
                return name, given[name]
    return None


def _is_taken_apart(value: Any) -> bool:
    from jitmagic.fixes.objects.register import CONTAINERS, is_object
    from jitmagic.tracing.search import is_random

    taken = (*CONTAINERS, slice, set)
    return is_object(value) or isinstance(value, taken) or is_random(value) or _holds_arrays(value)


def _holds_arrays(value: Any) -> bool:
    """NumPy's array of objects that are arrays themselves, of different shapes as a rule."""
    return str(getattr(value, "dtype", "")) == "object" and all(hasattr(v, "shape") for v in value.flat)


_DEBUG = False
