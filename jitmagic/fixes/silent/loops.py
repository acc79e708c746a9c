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
from jitmagic.silent.code import is_repeating

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
    for make in (_nested, _fori, _rows, _stacked, _mapped, _scanned, _comprehension, _reduced):
        with contextlib.suppress(SyntaxError, ValueError, LookupError, AttributeError, TypeError):
            yield from make(source, line, finding, evidence, prover)


def _proved(prover: Prover, cell: str) -> str | None:
    from jitmagic.tracing.stages import equation_count

    sources = trial.history(prover)
    with contextlib.suppress(Exception):
        got = trial.play(prover, cell, sources)
        now, then = equation_count(got.traced.jaxpr), prover.checker.seen.equations or 0
        equal = _equal(prover, sources, got.results) if now * 2 < then else ""
        if equal:
            return f"traced, with {now} operations in place of {then}; {equal}"
    return None


def _equal(prover: Prover, sources: list[str], got: list[Any]) -> str:
    """How the results agree with those without jit; empty where they do not.

    Where many turns let the rounding grow, the loop as jax wrote it out differs from the plain one too: of that the
    report has said that nothing but rounding explains it, and the new loop has to agree with it.
    """
    if trial.same(trial.original(prover, sources, jit=False).results, got):
        return "equal to the run without jit"
    differs = any(d.reason not in ("dtype", "type") for d in prover.checker.seen.differences)
    if not differs and trial.same(trial.original(prover, sources, jit=True).results, got):
        return "equal to the run without jit up to rounding"
    return ""


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
    looped, target, added = loop.iter, loop.target, 0
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
    elif called.startswith(("jnp.", "np.", "jax.numpy.", "numpy.")):
        first = text.fresh(f"{ast.unparse(target)}s", "rows", "values")
        lines = [f"{ast.unparse(target)} = {first}[{index}]"]
        code = text.code(looped)
        added = 1
        text.before(loop, [f"{first} = {code if called.startswith('j') else f'jnp.asarray({code})'}"])
    else:
        return
    text.replace(target, index).replace(looped, f"range({first}.shape[0])")
    text.before(loop.body[0], lines)
    yield from _fori(text.result(), line + added, finding, evidence, prover)


def _stacked(
    source: str, line: int, finding: Finding, evidence: Evidence, prover: Prover
) -> Iterator[tuple[str, str]]:
    """`for layer in layers` over a list of equal trees of arrays: stacked first, then by index in a `fori_loop`."""
    text = Text(source)
    loop = _loop(text, line)
    if not isinstance(loop.iter, ast.Name | ast.Attribute | ast.Subscript):
        return
    index, rows, looped = text.fresh("i", "k", "turn"), text.fresh("stacked", "rows"), text.code(loop.iter)
    target = text.code(loop.target)
    text.before(loop, [f"{rows} = jax.tree.map(lambda *leaves: jnp.stack(leaves), *{looped})"])
    text.replace(loop.target, index).replace(loop.iter, f"range(len({looped}))")
    text.before(loop.body[0], [f"{target} = jax.tree.map(lambda leaf: leaf[{index}], {rows})"])
    for title, cell in _fori(text.result(), line + 1, finding, evidence, prover):
        yield f"stack what the turns take, and {title}", cell


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
    yield "map over the rows with `jax.vmap`", text.result()


STACKS = ("jnp.stack", "jnp.array", "jnp.asarray", "jax.numpy.stack", "jax.numpy.array")


def _comprehension(
    source: str, line: int, finding: Finding, evidence: Evidence, prover: Prover
) -> Iterator[tuple[str, str]]:
    """`jnp.stack([f(x) for x in xs])` as `jax.vmap(lambda x: f(x))(xs)`, `sum(...)` as the sum of that."""
    text = Text(source)
    for node in ast.walk(text.tree):
        if not isinstance(node, ast.ListComp | ast.GeneratorExp):
            continue
        if not node.lineno <= line <= (node.end_lineno or 0):
            continue
        mapped, around = _as_vmap(text, node), text.parents[node]
        if mapped is None:
            continue
        name = ast.unparse(around.func).rpartition(".")[2] if isinstance(around, ast.Call) else ""
        alone = isinstance(around, ast.Call) and len(around.args) == 1 and not around.keywords
        if name in ("stack", "array", "asarray") and alone:
            yield "map with `jax.vmap`", Text(source).replace(around, mapped).result()
        elif name == "sum":
            total = f"jnp.sum({mapped}, axis=0)"
            yield "map with `jax.vmap` and add up", Text(source).replace(around, total).result()
        elif isinstance(node, ast.ListComp):
            yield "map with `jax.vmap`", Text(source).replace(node, mapped).result()


def _as_vmap(text: Text, node: ast.ListComp | ast.GeneratorExp) -> str | None:
    """A comprehension without conditions as `jax.vmap`, inner ones with it; a second `for` gives rows in a row."""
    code = _as_vmap(text, node.elt) if isinstance(node.elt, ast.ListComp) else text.code(node.elt)
    for generator in reversed(node.generators):
        given = _rows_of(text, generator.target, generator.iter)
        if code is None or given is None or generator.ifs:
            return None
        code = f"jax.vmap(lambda {given[0]}: {code})({given[1]})"
    for _ in node.generators[1:]:
        code = f"jnp.concatenate({code})"
    return code


def _rows_of(text: Text, target: ast.expr, looped: ast.expr) -> tuple[str, str] | None:
    """Parameters and arguments of a mapped function, for what a loop binds and what it turns over."""
    called = ast.unparse(looped.func) if isinstance(looped, ast.Call) else ""
    given = [text.code(a) for a in looped.args] if isinstance(looped, ast.Call) else []
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    if not all(isinstance(p, ast.Name) for p in parts):
        return None
    if called == "range":
        arrays = [f"jnp.arange({', '.join(given)})"]
    elif called == "zip":
        arrays = given
    elif called == "enumerate" and len(given) == 1:
        arrays = [f"jnp.arange(len({given[0]}))", given[0]]
    else:
        arrays = [text.code(looped)]
    return (", ".join(map(text.code, parts)), ", ".join(arrays)) if len(parts) == len(arrays) else None


def _reduced(
    source: str, line: int, finding: Finding, evidence: Evidence, prover: Prover
) -> Iterator[tuple[str, str]]:
    """`functools.reduce(f, xs, start)` as a `scan`, over a range as a `fori_loop`; `list(map(f, xs))` as a `vmap`."""
    text = Text(source)
    call = the(n for n in text.on_line(line) if isinstance(n, ast.Call) and is_repeating(n))
    function, looped = call.args[:2]
    f = f"({text.code(function)})" if isinstance(function, ast.Lambda) else text.code(function)
    xs = text.code(looped)
    if ast.unparse(call.func) == "map":
        outer = text.parents[call]
        listed = isinstance(outer, ast.Call) and ast.unparse(outer.func) == "list"
        arrays = ", ".join(map(text.code, call.args[1:]))
        yield (
            "map with `jax.vmap`",
            text.replace(outer if listed else call, f"jax.vmap({f})({arrays})").result(),
        )
        return
    start, rest = (text.code(call.args[2]), xs) if len(call.args) == 3 else (f"{xs}[0]", f"{xs}[1:]")
    if isinstance(looped, ast.Call) and ast.unparse(looped.func) == "range":
        if len(looped.args) < 3 and len(call.args) == 3:
            low, high = ["0", *map(text.code, looped.args)][-2:]
            looping = f"jax.lax.fori_loop({low}, {high}, lambda i, state: {f}(state, i), {start})"
            yield "loop with `jax.lax.fori_loop`", Text(source).replace(call, looping).result()
            return
        rest = f"jnp.arange({', '.join(map(text.code, looped.args))})"
    scanning = f"jax.lax.scan(lambda state, x: ({f}(state, x), None), {start}, {rest})[0]"
    yield "loop with `jax.lax.scan`", text.replace(call, scanning).result()


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
