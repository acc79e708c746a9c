"""Functions that are jitted anew in a loop or in each call: jitted once, with what varies as arguments."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Finding, Fix
from jitmagic.tracing.names import dotted_name

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """A cell that jits once, where the calls seen give the same results with fewer compilations."""
    from jitmagic.fixes.silent import trial

    for cell in candidates(evidence.function.cell, Text(evidence.function.cell).line_of(finding)):
        words = compared(prover, cell, trial.history(prover)) or compared_whole(prover, cell)
        if words:
            yield Fix(title="jit once, and pass what varies as arguments", applicability="safe", verified=True,
                      evidence=words, cell=cell)  # fmt: skip
            return


def compared(prover: Prover, cell: str, sources: list[str]) -> str | None:
    """The same results with fewer compilations than the user's cell takes, or None."""
    from jitmagic.fixes.silent import trial
    from jitmagic.tracing import stages

    with contextlib.suppress(Exception):
        with stages.counted() as before:
            wanted = trial.original(prover, sources, jit=None).results
        with stages.counted() as after:
            got = trial.play(prover, cell, sources, jit=None).results
            again = len([e for e in after.events if e[0] == stages.COMPILE])
        then = len([e for e in before.events if e[0] == stages.COMPILE])
        if got and trial.same(wanted, got) and again < then:
            return f"the same results with {again} compilations in place of {then}"
    return None


def compared_whole(prover: Prover, cell: str) -> str | None:
    """As `compared`, with the calls that stand in the cell itself."""
    from jitmagic.fixes.silent import trial, wholes
    from jitmagic.tracing import stages

    body, sources = prover.checker.cell.body, trial.history(prover)
    if not wholes.may_run(prover, body) or not wholes.may_run(prover, cell):
        return None
    with contextlib.suppress(Exception):
        with stages.counted() as before:
            wanted = wholes.run(prover, body, sources, jit=True)
        with stages.counted() as after:
            got = wholes.run(prover, cell, sources, jit=True)
        then, again = (len([e for e in x.events if e[0] == stages.COMPILE]) for x in (before, after))
        if got and wholes.agree(wanted, got) and again < then:
            return f"the same results with {again} compilations in place of {then}"
    return None


def candidates(source: str, line: int) -> Iterator[str]:
    """Cells in which the jit on that line stands at the top."""
    for make in (_with_keywords, _with_free_names):
        with contextlib.suppress(SyntaxError, ValueError, LookupError, AttributeError, StopIteration):
            cell = make(Text(source), line)
            if cell:
                yield cell


def _jit_on(text: Text, line: int) -> ast.Call:
    """The call of `jax.jit(...)` in the statement on that line."""
    for node in text.on_line(line):
        for n in ast.walk(node):
            if (
                isinstance(n, ast.Call)
                and dotted_name(n.func).rpartition(".")[2] in ("jit", "pjit", "filter_jit")
                and n.args
            ):
                return n
    raise LookupError("no jit there")


def _top(text: Text, node: ast.AST) -> ast.stmt:
    while text.parents[node] is not text.tree:
        node = text.parents[node]
    assert isinstance(node, ast.stmt)
    return node


def _applications(text: Text, jit: ast.Call) -> list[ast.Call]:
    """Calls of the jitted function: at once, or of the name that it is assigned to."""
    parent = text.parents[jit]
    if isinstance(parent, ast.Call) and parent.func is jit:
        return [parent]
    statement = text.statement(jit)
    if (
        isinstance(statement, ast.Assign)
        and statement.value is jit
        and isinstance(statement.targets[0], ast.Name)
    ):
        name, top = statement.targets[0].id, _top(text, jit)
        return [
            n
            for n in ast.walk(top)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name
        ]
    raise ValueError("the jitted function goes elsewhere")


def _with_keywords(text: Text, line: int) -> str | None:
    """`jit(grad(partial(f, a=x)))(w)` as `jit(grad(f))` at the top, called with `a=x`."""
    jit = _jit_on(text, line)
    partials = [
        n
        for n in ast.walk(jit)
        if isinstance(n, ast.Call) and dotted_name(n.func).rpartition(".")[2] == "partial"
    ]
    if len(partials) > 1 or any(isinstance(n, ast.Lambda) for n in ast.walk(jit)):
        return None
    made = text.code(jit)
    keywords = ""
    if partials:
        if len(partials[0].args) != 1:
            return None
        made = made.replace(text.code(partials[0]), text.code(partials[0].args[0]))
        keywords = "".join(f", {text.code(k)}" for k in partials[0].keywords)
    names = {n.id for n in ast.walk(ast.parse(made)) if isinstance(n, ast.Name)}
    top = _top(text, jit)
    local = {n.id for n in ast.walk(top) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local |= {n.arg for n in ast.walk(top) if isinstance(n, ast.arg)}
    local |= {n.name for n in ast.walk(top) if isinstance(n, ast.FunctionDef) and n is not top}
    if names & local:
        return None
    return _placed(text, jit, top, made, keywords, [])


def _with_free_names(text: Text, line: int) -> str | None:
    """A lambda or inner function as a function at the top that takes its free names as arguments."""
    jit = _jit_on(text, line)
    top = _top(text, jit)
    inner = {n.name: n for n in ast.walk(top) if isinstance(n, ast.FunctionDef) and n is not top}
    local = {n.id for n in ast.walk(top) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local |= {
        a.arg
        for n in ast.walk(top)
        if isinstance(n, ast.FunctionDef)
        for a in ast.walk(n.args)
        if isinstance(a, ast.arg)
    }
    for node in ast.walk(jit):
        definition: ast.Lambda | ast.FunctionDef | None = (
            node if isinstance(node, ast.Lambda) else inner.get(getattr(node, "id", ""))
        )
        if definition is None:
            continue
        own = {a.arg for a in ast.walk(definition.args) if isinstance(a, ast.arg)}
        own |= {
            n.id for n in ast.walk(definition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        read = [n.id for n in ast.walk(definition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        free = [n for n in dict.fromkeys(read) if n in local and n not in own and n not in inner]
        made = text.code(jit)
        if isinstance(definition, ast.Lambda):
            arguments = ", ".join([*(a.arg for a in definition.args.args), *free])
            made = made.replace(text.code(definition), f"lambda {arguments}: {text.code(definition.body)}")
            before: list[str] = []
        else:
            arguments = ", ".join([*(a.arg for a in definition.args.args), *free])
            lines = text.code(definition).splitlines()
            indent = definition.col_offset
            body = text.source[text.span(definition.body[0])[0] : text.span(definition.body[-1])[1]]
            dedented = "\n".join(x[indent:] if x[:indent].isspace() else x for x in body.splitlines())
            before = [f"def {definition.name}({arguments}):", f"    {dedented}", "", ""]
            if definition.decorator_list or not lines:
                return None
            text.remove(definition)
        return _placed(text, jit, top, made, "".join(f", {n}" for n in free), before)
    return None


def _placed(text: Text, jit: ast.Call, top: ast.stmt, made: str, extra: str, before: list[str]) -> str:
    name = text.fresh("compiled", "jitted", "compiled_function")
    for call in _applications(text, jit):
        if call.func is jit:
            text.replace(jit, name)
        else:
            text.replace(call.func, name)
        end = text.span(call)[1] - 1
        text.changes.append((end, end, extra if call.args or call.keywords else extra.removeprefix(", ")))
    statement = text.statement(jit)
    if isinstance(statement, ast.Assign) and statement.value is jit:
        text.remove(statement)
    decorators = getattr(top, "decorator_list", [])
    start = text.span(decorators[0])[0] - 1 if decorators else text.span(top)[0]
    block = "\n".join([*before, f"{name} = {made}", "", ""]) + "\n"
    text.changes.append((start, start, block))
    return text.result()
