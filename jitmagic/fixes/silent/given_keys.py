"""A key that the function makes, or takes from outside, as an argument: another one for each call."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import splitting, trial
from jitmagic.fixes.silent.handed_down import handed_down
from jitmagic.fixes.silent.text import FunctionNode, Text, add_argument, add_parameter, the
from jitmagic.report import Finding, Fix
from jitmagic.source.expressions import dotted_name

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

KEYS = ("key", "rng_key", "prng_key")
_MAKERS = ("key", "PRNGKey")


def propose(
    finding: Finding, evidence: Evidence, prover: Prover, text: Text, line: int, sources: Sequence[str]
) -> Iterator[Fix] | None:
    """The fix for a key of the function's own, or None where the line has none."""
    function = text.function(evidence.function.name)
    assert function is not None
    seeds = _seeds_on(text, line)
    if any(n in ast.walk(function) for n in seeds):
        return with_key(evidence, prover, text, seeds[0], sources)
    if (made := _default_key(finding, function)) is not None:
        return _passed_key(evidence, prover, *made, sources)
    if name := _captured_key(finding, function, prover.checker.namespace):
        return _captured(evidence, prover, name, sources)
    first = next(text.on_line(line), None)
    helper = text.around(first, ast.FunctionDef) if first is not None else None
    if isinstance(helper, ast.FunctionDef) and not seeds:
        if name := _captured_key(finding, helper, prover.checker.namespace):
            return _captured_by_helper(evidence, prover, text, helper, name, sources)
    return with_key(evidence, prover, text, seeds[0], sources) if seeds else None


def with_key(
    evidence: Evidence, prover: Prover, text: Text, seed: ast.Call, sources: Sequence[str]
) -> Iterator[Fix]:
    """A key that the function, or a helper of the cell, makes from a fixed seed as an argument of the function."""
    function = text.function(evidence.function.name)
    if function is not None and seed in ast.walk(function):
        return _key_argument(evidence, prover, seed, sources)
    return _key_handed_down(evidence, prover, text, seed, sources)


def _is_maker(call: ast.Call) -> bool:
    dotted = dotted_name(call.func)
    return (
        dotted.rpartition(".")[2] in _MAKERS and not dotted.startswith(("np.", "numpy.")) and bool(call.args)
    )


def _seeds_on(text: Text, line: int) -> list[ast.Call]:
    return [n for n in text.on_line(line) if isinstance(n, ast.Call) and _is_maker(n)]


def _captured_by_helper(
    evidence: Evidence, prover: Prover, text: Text, helper: ast.FunctionDef, name: str, sources: Sequence[str]
) -> Iterator[Fix]:
    """A key from outside that a helper reads is handed down to it, as one is that the helper makes."""
    first = helper.body[1] if ast.get_docstring(helper) and len(helper.body) > 1 else helper.body[0]
    new = Text(text.before(first, [f"{name} = jax.random.key(0)"]).result())
    seed = next(
        n.value for n in ast.walk(new.tree)
        if isinstance(n, ast.Assign) and new.code(n) == f"{name} = jax.random.key(0)"
    )  # fmt: skip
    assert isinstance(seed, ast.Call)
    return _key_handed_down(evidence, prover, new, seed, sources, f"jax.random.fold_in({name}, {{}})")


def _key_handed_down(
    evidence: Evidence, prover: Prover, text: Text, seed: ast.Call, sources: Sequence[str], given: str = ""
) -> Iterator[Fix]:
    """A key that a helper makes from a fixed seed is taken as an argument, and handed down to it. `given`: what the
    calls pass, with the number of the call for `{}`."""
    if prover.parts is not None:
        return
    statement = text.statement(seed)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is seed else None
    name = target.id if isinstance(target, ast.Name) else text.fresh(*KEYS)
    made = handed_down(
        text.source, evidence.function.name, seed.lineno, seed.col_offset, name, prover.checker.namespace
    )
    given = given or text.code(seed.func) + "({})"
    calls, others = (
        [
            add_argument(s, evidence.function.name, name, given.format(i), keyword=made.keyword)
            for i, s in enumerate(some, first)
        ]
        for some, first in ((sources, 0), (sources[:1], 12345))
    )
    yield from _proved_key(prover, made.cell, calls, others, name)


def _key_argument(
    evidence: Evidence, prover: Prover, seed: ast.Call, sources: Sequence[str]
) -> Iterator[Fix]:
    """A key made inside from a fixed seed is taken as an argument instead."""
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    assert function is not None
    seed = the(
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Call)
        and ast.dump(n, include_attributes=True) == ast.dump(seed, include_attributes=True)
    )
    statement = text.statement(seed)
    bound = statement.targets[0].id if (
        isinstance(statement, ast.Assign) and statement.value is seed and isinstance(statement.targets[0], ast.Name)
    ) else ""  # fmt: skip
    name = bound or text.fresh(*KEYS)
    keyword = add_parameter(text, function, name)
    text.remove(statement) if bound else text.replace(seed, name)
    made = text.code(seed.func)
    start = (
        seed.args[0].value
        if isinstance(seed.args[0], ast.Constant) and isinstance(seed.args[0].value, int)
        else 0
    )
    if prover.parts is not None:
        keys = splitting.Keys(
            name, keyword, made, f"{made}({start})", made.rpartition(".")[0] or "jax.random"
        )
        calls = splitting.threaded(prover.parts, keys)
        others = [s.replace(keys.start, f"{made}({start + 12345})") for s in calls]
    else:
        calls = [
            add_argument(s, evidence.function.name, name, f"{made}({start + i})", keyword=keyword)
            for i, s in enumerate(sources)
        ]
        other = f"{made}({start + 12345})"
        others = [add_argument(sources[0], evidence.function.name, name, other, keyword=keyword)]
    yield from _proved_key(prover, text.result(), calls, others, name)


def _default_key(finding: Finding, function: FunctionNode) -> tuple[str, ast.Call] | None:
    """`key=jax.random.key(0)` among the parameters: the name, and how it is made."""
    a = function.args
    order = [*a.posonlyargs, *a.args]
    pairs = [*zip(order[len(order) - len(a.defaults) :], a.defaults, strict=True)]
    pairs += [(k, d) for k, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
    for parameter, default in pairs:
        if parameter.arg in finding.culprits and isinstance(default, ast.Call) and _is_maker(default):
            return parameter.arg, default
    return None


def _passed_key(
    evidence: Evidence, prover: Prover, name: str, made: ast.Call, sources: Sequence[str]
) -> Iterator[Fix]:
    """The calls with a key of their own in place of the default."""
    if prover.parts is not None:
        return
    maker = ast.unparse(made.func)
    calls, others = (
        [
            add_argument(s, evidence.function.name, name, f"{maker}({i})", keyword=True)
            for i, s in enumerate(some, first)
        ]
        for some, first in ((sources, 0), (sources[:1], 12345))
    )
    yield from _proved_key(prover, evidence.function.cell, calls, others, name)


def _captured_key(finding: Finding, function: FunctionNode, namespace: Mapping[str, Any]) -> str:
    """The name of the key from outside, where it is a plain name that the function does not bind."""
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    arguments = {n.arg for n in ast.walk(function.args) if isinstance(n, ast.arg)}
    read = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} - stored - arguments
    return next((n for n in finding.culprits if n in read and _is_key(namespace.get(n))), "")


def _is_key(value: Any) -> bool:
    import jax

    dtype = getattr(value, "dtype", None)
    typed = dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    return typed or dtype == "uint32" and getattr(value, "shape", ())[-1:] in ((2,), (4,))


def _captured(evidence: Evidence, prover: Prover, name: str, sources: Sequence[str]) -> Iterator[Fix]:
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    assert function is not None
    keyword = add_parameter(text, function, name)
    if prover.parts is not None:
        calls = splitting.threaded(prover.parts, splitting.Keys(name, keyword, ""))
        others = [f"{name} = jax.random.fold_in({name}, 12345)", *calls]
    else:
        calls, others = (
            [
                add_argument(
                    s, evidence.function.name, name, f"jax.random.fold_in({name}, {i})", keyword=keyword
                )
                for i, s in enumerate(some, first)
            ]
            for some, first in ((sources, 0), (sources[:1], 12345))
        )
    yield from _proved_key(prover, text.result(), calls, others, name)


def _proved_key(
    prover: Prover, cell: str, calls: Sequence[str], others: Sequence[str], name: str
) -> Iterator[Fix]:
    """It traces once, gives the same with and without jit, and other numbers for other keys."""
    words = ""
    with contextlib.suppress(Exception):
        got, plain = trial.play(prover, cell, calls), trial.play(prover, cell, calls, jit=False)
        other = trial.play(prover, cell, others)
        if trial.same(plain.results, got.results) and not trial.same(got.results[0], other.results[0]):
            words = "traced; the same with and without jit, and other numbers for another key"
    if words:
        yield Fix(
            title=f"take `{name}` as an argument, a new key for each call", applicability="unsafe", verified=True,
            evidence=words, cell=cell, calls=tuple(calls),
        )  # fmt: skip
