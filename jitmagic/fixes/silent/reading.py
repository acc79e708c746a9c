"""A compiled method of an object that changes: what it reads of the object becomes an argument of the program."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import carried
from jitmagic.fixes.silent.text import FunctionNode, Text, add_parameter
from jitmagic.report import Finding, Fix
from jitmagic.rules.words import listed

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """`step` passes `self.gain` to the compiled method, which is called in its place by all who call `step`."""
    text = Text(evidence.function.cell)
    function = text.function(evidence.function.name)
    if (
        prover.checker.settings.compile
        or function is None
        or not isinstance(text.parents[function], ast.ClassDef)
    ):
        return
    if len(function.decorator_list) != 1 or not carried.compiles(function.decorator_list[0]):
        return
    values = [
        v.path for v in evidence.variables if v.stale and v.type in ("array", "scalar") and v.dtype != "str"
    ]
    receiver = function.args.args[0].arg if function.args.args else ""
    paths = [c for c in finding.culprits if c in values and c.removeprefix(f"{receiver}.").isidentifier()]
    with contextlib.suppress(ValueError):
        cell = _rewritten(text, function, paths)
        words = carried.proved(evidence, prover, cell, ())
        if words:
            yield Fix(
                title=f"pass {listed(paths)} to the compiled method at each call", applicability="unsafe",
                verified=True, evidence=words, cell=cell,
            )  # fmt: skip


def _rewritten(text: Text, function: FunctionNode, paths: Sequence[str]) -> str:
    """The cell whose compiled method has a parameter for each path, and a plain method that calls it."""
    a = function.args
    if not paths or a.vararg or a.kwarg or a.posonlyargs:
        raise ValueError("its parameters have no names")
    local = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} | {
        n.arg for n in [*a.args, *a.kwonlyargs]
    }
    names = {p: p.rpartition(".")[2].lstrip("_") for p in paths}
    if len(set(names.values())) < len(names) or local & set(names.values()):
        raise ValueError("a name is taken")
    uses = [n for n in ast.walk(function) if isinstance(n, ast.Attribute) and ast.unparse(n) in names]
    if not uses or any(not isinstance(n.ctx, ast.Load) for n in uses):
        raise ValueError("it writes what it reads, or another function reads it")
    inner = text.fresh(f"_{function.name.lstrip('_')}_compiled")
    own, *taken = (x.arg for x in a.args)
    start = text.starts[function.lineno - 1]
    head = text.source[start : text.body_start(function)]
    at = text.source.index(function.name, text.span(function)[0] + len("def "))
    text.changes.append((at, at + len(function.name), inner))
    by_name = add_parameter(text, function, ", ".join(names.values()))
    for use in uses:
        text.replace(use, names[ast.unparse(use)])
    given = [f"{n}={p}" if by_name else p for p, n in names.items()]
    passed = ", ".join([*taken, *given, *(f"{k.arg}={k.arg}" for k in a.kwonlyargs)])
    indent = " " * function.body[0].col_offset
    text.after(function, ["", *head.rstrip().splitlines(), f"{indent}return {own}.{inner}({passed})"])
    return text.result()
