"""An iterator as an argument: its items are passed instead. Nothing is tried, because that would use them up."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Evidence
from jitmagic.fixes.objects import parts
from jitmagic.fixes.rewrites import diff
from jitmagic.fixes.silent.calls import argument_of
from jitmagic.fixes.silent.text import FunctionNode, Text, calls_in
from jitmagic.report import Finding, Fix

UNTRIED = "not tried: what an iterator gives can be read only once"
_WHOLE = frozenset("list tuple enumerate zip sorted reversed sum map filter".split())


def propose(finding: Finding, evidence: Evidence) -> Iterator[Fix]:
    """`f(list(batches))` where the function goes through the items, `f(next(batches))` where it takes one."""
    source = evidence.calls[-1].source if evidence.calls else ""
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    name = next((c for c in finding.culprits if c in evidence.function.parameters), None)
    if not source or function is None or name is None:
        return
    uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
    if uses and all(_gone_through(text, n) for n in uses):
        calls = _as_list(source, evidence, name)
        if calls is not None:
            yield Fix(title=f"pass what `{name}` gives as a list", applicability="display", evidence=UNTRIED,
                      calls=(calls,))  # fmt: skip
    elif len(uses) == 1:
        yield from _one_item(text, function, uses[0], source, evidence, name)


def _gone_through(text: Text, use: ast.Name) -> bool:
    parent = text.parents[use]
    if isinstance(parent, (ast.For, ast.comprehension)):
        return parent.iter is use
    return isinstance(parent, ast.Call) and use in parent.args and getattr(parent.func, "id", "") in _WHOLE


def _as_list(source: str, evidence: Evidence, name: str) -> str | None:
    text, found = Text(source), False
    for call in calls_in(text.tree, evidence.function.name):
        node = argument_of(call, evidence, name)
        if node is not None:
            text.replace(node, f"list({text.code(node)})")
            found = True
    return text.result() if found else None


def _one_item(
    text: Text, function: FunctionNode, use: ast.Name, source: str, evidence: Evidence, name: str
) -> Iterator[Fix]:
    node = text.parents[use]
    if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "next" or len(node.args) != 1:
        return
    statement = text.parents[node]
    item = "item"
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        item = statement.targets[0].id
    part = parts.Part(text.code(node), item, None)
    cell = parts._rewritten(Text(text.source), evidence.function.name, name, [part])
    if cell is not None:
        yield Fix(
            title=f"pass `{part.code}` in place of `{name}`", applicability="display", evidence=UNTRIED, cell=cell,
            calls=(parts._call(source, evidence, name, [part]),), diff=diff(evidence.function.cell, cell),
        )  # fmt: skip
