"""What if: the function vmapped, differentiated or shared by several devices; traced, compiled, never run.

The user's plain function is transformed, on the types of one call: `jax.ShapeDtypeStruct` in place of arrays.
Variables that it reads keep the values of now, and what a trace writes into them is put back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import jax
import jax.numpy as jnp

from jitmagic import evidence as ev
from jitmagic import report, rules
from jitmagic.checking.subject import Subject
from jitmagic.measure import peak
from jitmagic.state.definition import function_facts, source_file
from jitmagic.tracing import locate
from jitmagic.trial import quiet
from jitmagic.trial.whose_run import plainly
from jitmagic.units import in_code, listed, size
from jitmagic.whatif.call import CannotAsk, StagedFunction, TypedCall, Values, batched
from jitmagic.whatif.devices import on_devices

_ARGUMENT = re.compile(r"^values\['(\w+)'\]")


def answers(subject: Subject, args: Sequence[object], kwargs: dict[str, object]) -> tuple[report.WhatIf, ...]:
    """The answers to `--vmap`, `--grad` and `--devices` for one call."""
    asked = subject.settings.what_if
    if not asked:
        return ()
    try:
        call = TypedCall.of(subject, args, kwargs)
    except (
        TypeError,
        ValueError,
        OverflowError,
    ):  # given what jax takes for no array, as the diagnosis tells
        return ()
    made: list[report.WhatIf] = []
    with quiet.undone(subject.reach(args, kwargs)), quiet.held_back(), plainly():
        base = _plain_cost(subject, call)
        if asked.vmap:
            made.append(_guarded(subject, "vmap", asked.vmap, lambda: _vmap(subject, call, base)))
        if asked.grad:
            made.append(_guarded(subject, "grad", asked.grad, lambda: _grad(subject, call, base)))
        if asked.devices:
            made.append(_guarded(subject, "devices", (), lambda: on_devices(subject, call)))
    frozen = _frozen(subject, args)
    return tuple(replace(w, notes=(*w.notes, *frozen)) if w.works else w for w in made)


def _plain_cost(subject: Subject, call: TypedCall) -> report.Cost:
    """The cost of the function as it is; unknown where it does not trace, which the report tells elsewhere."""
    try:
        return StagedFunction(subject, call.run, call.types).cost
    except Exception:
        return report.Cost()


def _frozen(subject: Subject, args: Sequence[object]) -> tuple[str, ...]:
    try:
        paths = subject.dynamic_paths(args)
    except Exception:
        paths = ()
    return (f"the variables {in_code(paths)} keep the values of now",) if paths else ()


def _guarded(
    subject: Subject,
    kind: Literal["vmap", "grad", "devices"],
    names: tuple[str, ...],
    answer: Callable[[], report.WhatIf],
) -> report.WhatIf:
    """The answer, or in words why there is none."""
    try:
        return answer()
    except CannotAsk as exc:
        return report.WhatIf(kind, _title(kind, names), names, works=False, message=str(exc))
    except Exception as exc:
        message, line = _diagnosed(subject, exc)
        return report.WhatIf(kind, _title(kind, names), names, works=False, message=message, line=line)


def _title(kind: str, names: Sequence[str]) -> str:
    return {"vmap": "vmap over ", "grad": "gradient for ", "devices": "on several devices"}[kind] + in_code(
        names
    )


def _diagnosed(subject: Subject, exc: Exception) -> tuple[str, int | None]:
    """What a rule says about the failure, else its own first line; and the line in the user's source."""
    problem = locate.locate(exc)
    # the arguments travel in one dict, which is ours
    problem = replace(problem, leaves=tuple(_ARGUMENT.sub(r"\1", leaf) for leaf in problem.leaves))
    line = problem.where.line if problem.where is not None else None
    if problem.op not in ("user", "other"):
        facts = function_facts(subject.fn, subject.name, subject.cell.body)
        found = rules.run(ev.Evidence(facts, problems=(problem,)), rules.Thresholds())
        if found:
            return found[0].message, found[0].span.line if found[0].span else line
    first = next((text.strip() for text in str(exc).splitlines() if text.strip()), "")
    return f"{type(exc).__name__}: {first}"[:400], line


def _vmap(subject: Subject, call: TypedCall, base: report.Cost) -> report.WhatIf:
    names = subject.settings.what_if.vmap
    fn, types, size, title, notes = batched(subject, call, 1)
    program = StagedFunction(subject, fn, types)
    if base.flops and program.cost.flops:
        ratio = program.cost.flops / (base.flops * size)
        if ratio > 1.2 and "new axis" in title:
            notes = (*notes, f"an element of the batch costs {ratio:.2g} times the plain call")
    return program.told("vmap", title, base, arguments=names, size=size, notes=notes)


def _grad(subject: Subject, call: TypedCall, base: report.Cost) -> report.WhatIf:
    names = subject.settings.what_if.grad
    call.named(names)
    for name in names:
        whole = [t for t in jax.tree.leaves(call.types[name]) if not jnp.issubdtype(t.dtype, jnp.inexact)]
        if whole:
            raise CannotAsk(f"`{name}` holds {whole[0].dtype}: only floating point numbers have a gradient")
    total, notes = _scalar(call)
    rest = {n: t for n, t in call.types.items() if n not in names}
    inner = {n: call.types[n] for n in names}

    def taking(transformed: Callable[..., object]) -> Callable[[Values], object]:
        def both(values: Values) -> object:
            others = {n: values[n] for n in rest}
            return transformed(lambda v: total({**others, **v}), {n: values[n] for n in inner})

        return both

    program = StagedFunction(subject, taking(lambda f, v: jax.value_and_grad(f)(v)), call.types)
    kept = peak.kept_for_gradient(taking(jax.vjp), call.types, source_file(subject.fn))
    notes = (*notes, *_told(kept))
    title = f"value and gradient for {in_code(names)}"
    return program.told("grad", title, base, arguments=names, notes=notes)


def _told(kept: Sequence[report.Alive]) -> tuple[str, ...]:
    """What the gradient keeps, by line."""
    by_line: dict[int | None, list[report.Alive]] = {}
    for array in kept:
        by_line.setdefault(array.line, []).append(array)
    ranked = sorted(by_line.items(), key=lambda item: -sum(a.bytes for a in item[1]))
    each = [
        f"{size(sum(a.bytes for a in arrays))} of {f'line {line}' if line else 'elsewhere'} ({arrays[0].type})"
        for line, arrays in ranked
    ]
    total = size(sum(a.bytes for a in kept))
    return (f"it keeps {total} of the forward pass, besides the arguments: {listed(each)}",) if kept else ()


def _scalar(call: TypedCall) -> tuple[Callable[[Values], object], tuple[str, ...]]:
    """The function as one that returns a number, and a note where its result had to be summed for that."""
    out = jax.eval_shape(call.run, call.types)
    leaves = jax.tree.leaves(out)
    numbers = [t for t in leaves if jnp.issubdtype(t.dtype, jnp.floating)]
    if not numbers:
        kinds = ", ".join(dict.fromkeys(str(t.dtype) for t in leaves)) or "nothing"
        raise CannotAsk(f"the function returns {kinds}: only floating point numbers can be differentiated")

    def total(values: Values) -> object:
        found = [x for x in jax.tree.leaves(call.run(values)) if jnp.issubdtype(x.dtype, jnp.floating)]
        return sum(jnp.sum(x) for x in found[1:]) + jnp.sum(found[0]) if len(found) > 1 else jnp.sum(found[0])

    if len(leaves) == 1 and leaves[0].shape == ():
        return total, ()
    return total, ("the result is no single number: the gradient is that of the sum of its elements",)
