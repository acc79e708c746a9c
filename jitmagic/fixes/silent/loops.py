"""Python loops that jax writes out, as `fori_loop`, `while_loop` or `vmap`."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import FunctionNode, Text, the
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The first way to write the loop that gives the plain results in a smaller program."""
    for title, cell in _candidates(finding, evidence, prover):
        words = _proved(prover, cell)
        if words:
            yield Fix(title=title, applicability="safe", verified=True, evidence=words, cell=cell)
            return


def _candidates(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[tuple[str, str]]:
    source = evidence.function.cell
    line = Text(source).line_of(finding)
    for make in (_fori, _rows, _collected, _comprehension, _nested):
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


def _collected(
    source: str, line: int, finding: Finding, evidence: Evidence, prover: Prover
) -> Iterator[tuple[str, str]]:
    """A loop that appends its results to a list, as a `scan` that stacks them."""
    from jitmagic.fixes.rewrite import names

    text = Text(source)
    loop = _loop(text, line)
    function = text.around(loop, ast.FunctionDef, ast.AsyncFunctionDef)
    if not isinstance(function, FunctionNode):
        return
    appends = [
        s for s in loop.body
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and isinstance(s.value.func, ast.Attribute)
        and s.value.func.attr == "append" and isinstance(s.value.func.value, ast.Name) and len(s.value.args) == 1
    ]  # fmt: skip
    if len(appends) != 1 or appends[0] is not loop.body[-1]:
        return
    call = appends[0].value
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    out = ast.unparse(call.func.value)
    started = the(
        s for s in ast.walk(function) if isinstance(s, ast.Assign) and ast.unparse(s) == f"{out} = []"
    )
    body = "\n".join(_dedented(text, s, loop.body[0].col_offset) for s in loop.body[:-1])
    own = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    carried = [
        n
        for n in names.stores(body)
        if n not in own and (n in names.exposed(body, own) or _read_after(function, loop, n))
    ]
    value, row = text.code(call.args[0]), text.code(loop.target)
    looped = text.code(loop.iter)
    is_range = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range"
    xs = f"jnp.arange{looped.removeprefix('range')}" if is_range else looped
    indent = " " * loop.col_offset
    for stacking in (n for n in ast.walk(function) if isinstance(n, ast.Call) and len(n.args) == 1):
        if (
            ast.unparse(stacking.args[0]) == out
            and ast.unparse(stacking.func) in STACKS
            and not stacking.keywords
        ):
            text.replace(stacking, out)
    text.remove(started)
    if not carried and not body and row.isidentifier():
        text.replace(loop, f"{out} = jax.vmap(lambda {row}: {value})({xs})")
        yield "map over the rows with jax.vmap", text.result()
        return
    state = ", ".join(carried)
    first = state if len(carried) == 1 else "state" if carried else "_"
    step = text.fresh("step", "body")
    head = [f"def {step}({first}, {row if row.isidentifier() else 'row'}):"]
    if not row.isidentifier():
        head.append(f"    {row} = row")
    if len(carried) > 1:
        head.append(f"    {state} = state")
    head += [f"    {x}" for x in body.splitlines()]
    given = {0: "None", 1: state}.get(len(carried), f"({state})")
    head += [f"    return {given}, {value}", ""]
    head.append(f"{given if carried else '_'}, {out} = jax.lax.scan({step}, {given}, {xs})")
    text.replace(loop, "\n".join([head[0], *(f"{indent}{x}" if x else x for x in head[1:])]))
    yield "loop with jax.lax.scan, which stacks the results", text.result()


STACKS = ("jnp.stack", "jnp.array", "jnp.asarray", "jax.numpy.stack", "jax.numpy.array")


def _read_after(function: ast.AST, loop: ast.AST, name: str) -> bool:
    end = loop.end_lineno or 0  # type: ignore[attr-defined]
    return any(isinstance(n, ast.Name) and n.id == name and n.lineno > end for n in ast.walk(function))


def _dedented(text: Text, statement: ast.stmt, columns: int) -> str:
    first, *rest = text.code(statement).splitlines()
    return "\n".join([first, *(r[columns:] if r[:columns].isspace() else r for r in rest)])


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
