"""Python loops that jax writes out, as `fori_loop`, `while_loop` or `vmap`."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.rewrite.place import Candidate
from jitmagic.fixes.rewrites import propose_from
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import Text, the
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The first way to write the loop that gives the plain results in a smaller program."""
    left: list[tuple[str, str]] = []
    for title, cell in _candidates(finding, evidence, prover):
        words = _proved(prover, cell)
        if words:
            yield Fix(title=title, applicability="safe", verified=True, evidence=words, cell=cell)
            return
        left.append((title, cell))
    for title, cell in left[:FOLLOWED]:  # what asks for the value of the index has to be rewritten besides
        for fix in propose_from(Candidate(title, cell), evidence, prover):
            words = _proved(prover, fix.cell) if fix.cell else None
            if words:
                yield replace(fix, evidence=words)
                return


FOLLOWED = 2
"""Loops that do not trace as they are, and whose bodies are rewritten in turn."""


def _candidates(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[tuple[str, str]]:
    source = evidence.function.cell
    line = Text(source).line_of(finding)
    for make in (_nested, _fori, _rows, _mapped, _scanned, _comprehension):
        with contextlib.suppress(SyntaxError, ValueError, LookupError, AttributeError, TypeError):
            yield from make(source, line, finding, evidence, prover)


def _proved(prover: Prover, cell: str) -> str | None:
    from jitmagic.tracing.stages import equation_count

    sources = trial.history(prover)
    with contextlib.suppress(Exception):
        got = trial.play(prover, cell, sources)
        before = trial.original(prover, sources, jit=False)
        if got.traced is None or not trial.same(before.results, got.results):
            return None
        now, then = equation_count(got.traced.jaxpr), prover.checker.seen.equations or 0
        if now * 2 < then:
            return f"traced, with {now} operations in place of {then}; equal to the run without jit"
    return None


def _fori(
    source: str, line: int, finding: Finding, evidence: Evidence, prover: Prover
) -> Iterator[tuple[str, str]]:
    """`for i in range(...)` and `while` by the rewrites for traced bounds."""
    import libcst as cst

    from jitmagic.fixes.rewrite import loops as families

    place = _place(source, line, finding, evidence, prover)
    for node in place.path:
        if isinstance(node, cst.For):
            yield from ((c.title, place.with_imports(c.cell)) for c in families.for_loop(place, node))
            return
        if isinstance(node, cst.While):
            yield from ((c.title, place.with_imports(c.cell)) for c in families.while_statement(place, node))
            return


def _place(source: str, line: int, finding: Finding, evidence: Evidence, prover: Prover) -> Any:
    from jitmagic.fixes import rewrites
    from jitmagic.fixes.rewrite.place import Place

    return Place(
        text=source,
        kind="tracer-int",
        line=line,
        names=finding.culprits,
        **rewrites.setting(evidence, prover),
    )


def _loop(text: Text, line: int) -> ast.For:
    return the(n for n in text.on_line(line) if isinstance(n, ast.For))


def _rows(
    source: str, line: int, finding: Finding, evidence: Evidence, prover: Prover
) -> Iterator[tuple[str, str]]:
    """`for x in xs` over the rows of arrays, by index; then as a `fori_loop`."""
    text = Text(source)
    loop = _loop(text, line)
    index = text.fresh("i", "k", "turn")
    looped, target = loop.iter, loop.target
    called = ast.unparse(looped.func) if isinstance(looped, ast.Call) else ""
    lines: list[str]
    if (
        called == "enumerate"
        and isinstance(looped, ast.Call)
        and isinstance(target, ast.Tuple)
        and len(looped.args) == 1
    ):
        index = ast.unparse(target.elts[0])
        first = text.code(looped.args[0])
        lines = [f"{ast.unparse(target.elts[1])} = {first}[{index}]"]
    elif called == "zip" and isinstance(looped, ast.Call) and isinstance(target, ast.Tuple):
        arrays = [text.code(a) for a in looped.args]
        first = arrays[0]
        lines = [f"{ast.unparse(t)} = {a}[{index}]" for t, a in zip(target.elts, arrays, strict=True)]
    elif isinstance(looped, ast.Name | ast.Attribute | ast.Subscript):
        first = text.code(looped)
        lines = [f"{ast.unparse(target)} = {first}[{index}]"]
    else:
        return
    text.replace(target, index).replace(looped, f"range({first}.shape[0])")
    text.before(loop.body[0], lines)
    yield from _fori(text.result(), line, finding, evidence, prover)


def _scanned(
    source: str, line: int, finding: Finding, evidence: Evidence, prover: Prover
) -> Iterator[tuple[str, str]]:
    """A loop that fills lists, or leaves behind what its last turn made, as a `scan`."""
    from jitmagic.fixes.silent import scanning

    yield from scanning.candidates(source, _loop(Text(source), line))


def _mapped(
    source: str, line: int, finding: Finding, evidence: Evidence, prover: Prover
) -> Iterator[tuple[str, str]]:
    """A loop whose turns only append, each something of its own, as a `vmap`."""
    text = Text(source)
    loop = _loop(text, line)
    function = text.around(loop, ast.FunctionDef, ast.AsyncFunctionDef)
    only = loop.body[0].value if len(loop.body) == 1 and isinstance(loop.body[0], ast.Expr) else None
    if (
        not isinstance(only, ast.Call)
        or not isinstance(only.func, ast.Attribute)
        or only.func.attr != "append"
    ):
        return
    out, row, looped = ast.unparse(only.func.value), text.code(loop.target), text.code(loop.iter)
    if function is None or not row.isidentifier() or len(only.args) != 1:
        return
    started = the(
        s for s in ast.walk(function) if isinstance(s, ast.Assign) and ast.unparse(s) == f"{out} = []"
    )
    is_range = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range"
    xs = f"jnp.arange{looped.removeprefix('range')}" if is_range else looped
    for stacking in (n for n in ast.walk(function) if isinstance(n, ast.Call) and len(n.args) == 1):
        if (
            ast.unparse(stacking.args[0]) == out
            and ast.unparse(stacking.func) in STACKS
            and not stacking.keywords
        ):
            text.replace(stacking, out)
    text.remove(started)
    text.replace(loop, f"{out} = jax.vmap(lambda {row}: {text.code(only.args[0])})({xs})")
    yield "map over the rows with jax.vmap", text.result()


STACKS = ("jnp.stack", "jnp.array", "jnp.asarray", "jax.numpy.stack", "jax.numpy.array")


def _comprehension(
    source: str, line: int, finding: Finding, evidence: Evidence, prover: Prover
) -> Iterator[tuple[str, str]]:
    """`jnp.stack([f(x) for x in xs])` as `jax.vmap(lambda x: f(x))(xs)`, `sum(...)` as the sum of that."""
    text = Text(source)
    nodes = [
        n
        for n in ast.walk(text.tree)
        if isinstance(n, ast.ListComp | ast.GeneratorExp) and n.lineno <= line <= (n.end_lineno or 0)
    ]
    for node in nodes:
        generator, around = node.generators[0], text.parents[node]
        if len(node.generators) != 1 or generator.ifs or not isinstance(generator.target, ast.Name):
            continue
        looped = text.code(generator.iter)
        is_range = isinstance(generator.iter, ast.Call) and ast.unparse(generator.iter.func) == "range"
        xs = f"jnp.arange{looped.removeprefix('range')}" if is_range else looped
        mapped = f"jax.vmap(lambda {generator.target.id}: {text.code(node.elt)})({xs})"
        name = ast.unparse(around.func).rpartition(".")[2] if isinstance(around, ast.Call) else ""
        if name in ("stack", "array", "asarray") and isinstance(around, ast.Call) and len(around.args) == 1:
            new = Text(source)
            yield "map with jax.vmap", new.replace(_same(new, around), mapped).result()
        elif name == "sum" and isinstance(around, ast.Call):
            new = Text(source)
            yield (
                "map with jax.vmap and add up",
                new.replace(_same(new, around), f"jnp.sum({mapped}, axis=0)").result(),
            )


def _same(text: Text, node: ast.AST) -> ast.AST:
    wanted = ast.dump(node, include_attributes=True)
    return the(
        n
        for n in ast.walk(text.tree)
        if type(n) is type(node) and ast.dump(n, include_attributes=True) == wanted
    )


def _nested(
    source: str, line: int, finding: Finding, evidence: Evidence, prover: Prover
) -> Iterator[tuple[str, str]]:
    """A loop in a loop: the inner one first, then the outer."""
    text = Text(source)
    loop = _loop(text, line)
    inner = [n for s in loop.body for n in ast.walk(s) if isinstance(n, ast.For)]
    if not inner:
        return
    for _, cell in _fori(source, inner[0].lineno, finding, evidence, prover):
        yield from _fori(cell, line, finding, evidence, prover)
