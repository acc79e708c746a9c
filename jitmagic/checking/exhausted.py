"""A call that did not fit into memory: what it holds, who holds more, and what would fit, with the compiler's peak."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from jitmagic import patches
from jitmagic.checking.shim import Shim
from jitmagic.checking.subject import Subject
from jitmagic.evidence import Exhausted, HeldArray, Remedy, root
from jitmagic.measure import cost, peak
from jitmagic.options import argument_names, parameters_of
from jitmagic.silent.donations import unusable
from jitmagic.state.definition import source_file
from jitmagic.state.held import held_arrays, is_there
from jitmagic.tracing import stages
from jitmagic.tracing.leaves import call_leaves
from jitmagic.tracing.messages import bytes_asked
from jitmagic.tracing.minimal_static import as_type
from jitmagic.trial import quiet

MOST_RECOMPILED = 2000
"""Equations of the longest program that is compiled once more to learn its peak."""
MOST_HELD, MOST_HALVED = 5, 20


def explain(subject: Subject, traced: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Say what is known of the call that did not fit; nothing where its program is not what takes the memory."""
    jaxpr, exc = traced.jaxpr, subject.seen.exhausted_by
    most, free = (
        peak.peak(jaxpr, source_file(subject.fn), None, subject.dynamic_paths(args)),
        peak.free_bytes(),
    )
    asked = bytes_asked(exc) if exc is not None else None
    if most is None or free is not None and most.bytes < free / 2 and (asked or 0) < free / 2:
        return
    subject.seen.exhausted = Exhausted(
        asked, free, most.line,
        tuple(HeldArray(a.name, a.bytes, a.type, a.line) for a in most.alive[:MOST_HELD] if a.bytes > most.bytes / 100),
        _held_besides(subject.namespace, free), tuple(_remedies(subject, jaxpr, args, kwargs, free)),
    )  # fmt: skip


def outside(exc: BaseException, names: Mapping[str, object]) -> Exhausted:
    """What is known where no function is what does not fit."""
    free = peak.free_bytes()
    return Exhausted(bytes_asked(exc), free, None, (), _held_besides(names, free), ())


def _held_besides(names: Mapping[str, object], free: int | None) -> tuple[HeldArray, ...]:
    """The largest arrays of the notebook."""
    found = ((path, array.nbytes) for path, array in held_arrays(names) if is_there(array))
    ranked = sorted(found, key=lambda held: -held[1])[:MOST_HELD]
    return tuple(HeldArray(path, size) for path, size in ranked if size > (free or 0) / 100)


def _remedies(
    subject: Subject, jaxpr: Any, args: Sequence[Any], kwargs: dict[str, Any], free: int | None
) -> Iterator[Remedy]:
    if stages.equation_count(jaxpr) > MOST_RECOMPILED or subject.stateful(args) is not None:
        return
    before = cost.peak_bytes(peak.compiled_alone(jaxpr))
    yield from _donated(subject, jaxpr, args, kwargs, before)
    shapes = jax.tree.map(as_type, (tuple(args), kwargs))
    traced = functools.partial(_traced, subject, args, kwargs)
    with patches.replaced(jax.lax, scan=_checkpointed(jax.lax.scan)):
        found = traced(*shapes)
    if (
        found is not None
        and (after := cost.peak_bytes(found.lower().compile()))
        and after < 0.9 * (before or 0)
    ):
        yield Remedy("`jax.checkpoint` around the body of `jax.lax.scan`", after)
    yield from _smaller(subject, shapes, traced, free)


def _donated(
    subject: Subject, jaxpr: Any, args: Sequence[Any], kwargs: dict[str, Any], before: int | None
) -> Iterator[Remedy]:
    leaves = call_leaves(subject.fn, tuple(args), kwargs, **subject.taken_as_static())
    paths = [leaf.path for leaf in leaves if not leaf.static]
    every = {root(path) for path in paths} - subject.options.donated_parameters(subject.fn)
    refused = {root(fact.path) for fact in unusable(jaxpr, paths, every)}
    names = sorted(every - refused)
    inputs = [i for i, path in enumerate(paths) if root(path) in names]
    if inputs:
        after = cost.peak_bytes(peak.compiled_alone(jaxpr, inputs))
        if after is not None and before is not None and after < 0.9 * before:
            yield Remedy(f"{', '.join(f'`{n}`' for n in names)} donated", after)


def _smaller(subject: Subject, shapes: Any, traced: Callable[..., Any], free: int | None) -> Iterator[Remedy]:
    """The longest leading axis that arguments share, halved until the program fits."""
    args, kwargs = shapes
    names = argument_names(parameters_of(subject.fn), len(args))
    given = dict(zip(names, args, strict=True)) | kwargs
    lengths = Counter(v.shape[0] for x in given.values() for v in jax.tree.leaves(x) if _is_rows(v))
    if not lengths or free is None:
        return
    length, _ = max(lengths.items(), key=lambda item: (item[1], item[0]))
    told = [
        n for n, x in given.items() if any(_is_rows(v) and v.shape[0] == length for v in jax.tree.leaves(x))
    ]

    def cut(rows: int) -> Any:
        def shorter(v: Any) -> Any:
            fits = _is_rows(v) and v.shape[0] == length
            return jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype) if fits else v

        return jax.tree.map(shorter, shapes)

    for rows in (length >> step for step in range(1, min(MOST_HALVED, length.bit_length()))):
        found = traced(*cut(rows))
        written = peak.peak(found.jaxpr, "") if found is not None else None
        if written is None:
            return
        if written.bytes < free / 2:
            if (after := cost.peak_bytes(found.lower().compile())) is not None:
                yield Remedy(
                    f"{rows:,} rows instead of {length:,} in {', '.join(f'`{n}`' for n in told)}", after
                )
            return


def _traced(subject: Subject, args: Sequence[Any], kwargs: dict[str, Any], *shapes: Any) -> Any:
    """The function traced for other shapes, which leaves nothing behind; None where that fails."""
    try:
        with quiet.undone(subject.reach(args, kwargs)), quiet.held_back():
            jitted = subject.options.jit(Shim(subject.fn).function())
            return jitted.trace(*shapes[0], **shapes[1])
    except Exception:
        return None


def _checkpointed(scan: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(scan)
    def checkpointed(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return scan(jax.checkpoint(f, prevent_cse=False), *args, **kwargs)

    return checkpointed


def _is_rows(value: Any) -> bool:
    return isinstance(value, jax.ShapeDtypeStruct) and bool(value.shape) and value.shape[0] > 1
