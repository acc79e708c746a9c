"""The result of a compiled call beside that of the plain one."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, replace
from typing import Any

import jax

from jitmagic.checking.subject import Subject
from jitmagic.evidence import Call, Difference, Where
from jitmagic.measure import compare, parting, reference
from jitmagic.silent import widths
from jitmagic.state.definition import source_file
from jitmagic.tracing import compat, trees
from jitmagic.tracing.locate import locate

Differences = tuple[Difference, ...]


@dataclass(frozen=True)
class Eager:
    """The run without jit: its value and seconds, or the exception it raised."""

    value: object
    seconds: float | None
    error: Exception | None
    keys: object = None
    """The containers of the value as the run gave them."""


def compare_results(
    subject: Subject, eager: Eager, out: object, jaxpr: object, inputs: list[object], call: Call | None = None
) -> None:
    """The compiled result beside the plain one; where they part, the program itself is the judge: operation by
    operation, which also shows what rounding explains, and compiled without the fusion known to go wrong. `call` is its
    record, where that is not the newest one."""
    if eager.error is not None:
        subject.seen.differences = _where_plain_raises(eager.error, out)
        return
    if any(map(compat.is_unreduced, trees.leaves(out))):
        subject.seen.note("nothing was compared: each device holds a part of a sum that was not made yet")
        return
    subject.seen.compared = True
    terms = reference.largest_reduction(jaxpr)
    found = first = compare.compare(eager.value, out, terms=terms)
    if found:
        program = reference.TracedProgram(jaxpr, inputs, subject.settings.budget / 4)
        leading = reference.Leading(program, len(trees.leaves(out)))
        found = compare.compare(eager.value, out, reference=leading, terms=terms)
        suspected = any(d.compiler for d in found) or not program.evaluated
        if found and suspected and _mended(eager, out, jaxpr, inputs, terms):
            remedy = "=".join(next(iter(reference.REMEDY.items())))
            found = tuple(replace(d, compiler=True, remedy=remedy) for d in found)
        if any(d.compiler for d in found):
            found = _located(subject, found, jaxpr, inputs)
        elif found:
            found = _wrapped(subject, found, jaxpr, inputs)
        if not found and any(d.worst > FAR * d.allowed for d in first):
            if _cut_on_the_way_in(subject, call) or _digits_cut(jaxpr, inputs):
                found = first
    subject.seen.differences = list(found or compare.orders(eager.keys, out))


def _where_plain_raises(error: Exception, out: object) -> list[Difference]:
    """Python and NumPy raise for an index out of bounds and for a division by zero, where a program goes on."""
    if not isinstance(error, IndexError | ZeroDivisionError):
        return []
    said = f"{type(error).__name__}: {error}"
    return [Difference("", "raises", eager=said, jit=str(out), where=locate(error).where)]


FAR = 1000.0
"""Differences of so many times what is allowed are told, where an argument lost the digits that make them."""


def _cut_on_the_way_in(subject: Subject, call: Call | None) -> bool:
    """An argument of 64 bits of the call is so large that 32 bits round its units away."""
    calls = [call] if call is not None else subject.seen.calls[-1:]
    return any(x.loses_its_units for c in calls for x in c.leaves if not x.static)


def _digits_cut(jaxpr: object, inputs: list[object]) -> bool:
    """NumPy's floats of which 32 bits round something away; in a program with loops, which may blow up any rounding,
    only whole units."""
    loops = any(e.primitive.name in ("scan", "while") for e in compat.every_equation(jaxpr))
    return any(widths.digits_lost(value, units=loops) for value in inputs)


def _located(subject: Subject, found: Differences, jaxpr: object, inputs: list[object]) -> Differences:
    """The differences with the line at which the compiled program first goes wrong."""
    file = source_file(subject.fn)
    line = parting.first_parting(jaxpr, inputs, file, subject.settings.budget / 4)
    return found if line is None else _at_line(subject, found, file, line)


def _wrapped(subject: Subject, found: Differences, jaxpr: object, inputs: list[object]) -> Differences:
    """The differences with the line at which whole numbers wrap around, where they do."""
    file = source_file(subject.fn)
    line = parting.first_wrapping(jaxpr, inputs, file, subject.settings.budget / 4)
    if line is None:
        return found
    return tuple(replace(d, wraps=True) for d in _at_line(subject, found, file, line))


def _at_line(subject: Subject, found: Differences, file: str, line: int) -> Differences:
    text = linecache.getline(file, line).rstrip()
    start = len(text) - len(text.lstrip())
    where = Where(file, line, start, line, len(text), text.strip(), text.strip(), subject.name)
    return tuple(replace(d, where=where) for d in found)


def _mended(eager: Eager, out: object, jaxpr: object, inputs: list[object], terms: int) -> bool:
    """The same program, compiled without the fusion known to go wrong, gives the plain result."""
    tree: Any
    leaves, tree = jax.tree.flatten(out)
    if any(v.platform != "cpu" for leaf in leaves for v in getattr(leaf, "devices", set)()):
        return False
    try:
        again = jax.tree.unflatten(tree, reference.mended(jaxpr, inputs)[: len(leaves)])
    except Exception:  # this compiler has no such option, or the program cannot be run twice
        return False
    return not compare.compare(eager.value, again, terms=terms)
