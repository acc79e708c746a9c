"""JM207 array-in-aux-data: a registered class has an array in its auxiliary data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Evidence, Where
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail
from jitmagic.rules.classify import of_kind
from jitmagic.rules.parsed_text import parse_cell
from jitmagic.rules.words import agree, listed, quoted
from jitmagic.source.edits import FunctionNode
from jitmagic.source.tree import walk


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each refusal; the field's declaration is the place, where the cell has it."""
    failed = list(of_kind(evidence, RULE.kind))
    for fact in evidence.silent.arrays_in_aux:
        refused = failed[0] if failed else None
        fields = [fact.field, *fact.others]
        kind = agree(fields, "is an array", "are arrays")
        yield RULE.finding(
            evidence,
            f"{listed(fields) if fact.field else 'something'} of `{fact.type}` {kind} in the part of its object "
            "that has to be hashable and comparable (auxiliary data, static fields): a call with another object "
            "fails or compiles again",
            where=fact.where or evidence.function.where,
            culprits=[*fields, fact.argument, fact.type],
            severity="error" if refused else "warning",
            help=f"make {listed(fields) if fact.field else 'the array'} {agree(fields, 'a child', 'children')} in "
            f"`tree_flatten`, or {agree(fields, 'an ordinary field', 'ordinary fields')} (without `static=True`)",
            detail=exception_detail(refused) if refused else "",
        )
    if evidence.silent.arrays_in_aux:
        return
    for problem in failed:
        field, where = declaration(evidence)
        names = [field, *culprits(evidence, problem)]
        first = next((n for n in names if n), "an array")
        yield RULE.finding(
            evidence,
            f"{quoted(first)} is an array in the part of its object that has to be hashable and comparable "
            "(auxiliary data, static fields)",
            where=where or problem.where or evidence.function.where,
            culprits=names,
            help=f"make {quoted(first)} a child in `tree_flatten`, or an ordinary field (without "
            "`static=True`)",
            detail=exception_detail(problem),
        )


def declaration(evidence: Evidence) -> tuple[str, Where | None]:
    """Name and place of the field: a static field annotated as an array, else what `tree_flatten` returns."""
    source = parse_cell(evidence.function)
    fallback: tuple[str, Where | None] = ("", None)
    for node in walk(source.tree) if source else ():
        if source is None or not isinstance(node, ast.ClassDef):
            continue
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and _is_static(part.value):
                name = ast.unparse(part.target)
                if any(
                    w in ast.unparse(part.annotation).lower() for w in ("array", "float[", "int[", "tensor")
                ):
                    return name, source.where(part)
                fallback = (name, source.where(part))
            elif isinstance(part, FunctionNode) and part.name == "tree_flatten" and not fallback[0]:
                fallback = _auxiliary(part, source.where)
    return fallback


def _is_static(value: ast.expr | None) -> bool:
    if not isinstance(value, ast.Call):
        return False
    given = {k.arg: k.value for k in value.keywords}
    static, node = given.get("static"), given.get("pytree_node")
    return (isinstance(static, ast.Constant) and static.value is True) or (
        isinstance(node, ast.Constant) and node.value is False
    )


def _auxiliary(flatten: FunctionNode, place) -> tuple[str, Where | None]:  # type: ignore[no-untyped-def]
    for node in walk(flatten):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
            attributes = [n.attr for n in walk(node.value.elts[1]) if isinstance(n, ast.Attribute)]
            return (attributes[0] if attributes else "", place(node))
    return "", None


RULE = Rule("JM207", "array-in-aux-data", "error", find)
