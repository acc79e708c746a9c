"""Texts among the results: left out of what the function returns."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.rewrites import diff
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """`return {"loss": a}` for `return {"name": "mse", "loss": a}`, and `return a,` for `return a, "mse"`."""
    source = evidence.function.cell
    text = Text(source)
    function = text.function(evidence.function.name)
    if function is None:
        return
    left_out = list(_left_out(text, function, finding))
    cell = text.result()
    if left_out and (words := _proved(prover, cell)):
        yield Fix(
            title=f"leave {' and '.join(left_out)} out of what is returned: add it after the call",
            applicability="unsafe", verified=True, evidence=words, cell=cell, diff=diff(source, cell),
        )  # fmt: skip


def _left_out(text: Text, function: ast.AST, finding: Finding) -> Iterator[str]:
    """Take the texts out of the displays that are returned; how each looks in the source."""
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    for node in (n for value in returned for n in ast.walk(value)):
        if isinstance(node, ast.Dict):
            kept = [
                k is None or not _is_text(v, k, finding) for k, v in zip(node.keys, node.values, strict=True)
            ]
            starts = [text.span(k or v)[0] for k, v in zip(node.keys, node.values, strict=True)]
            yield from _without(text, starts, node.values, kept)
        elif isinstance(node, ast.Tuple):
            kept = [not _is_text(e, None, finding) for e in node.elts]
            if any(kept):
                last = len(kept) - kept[::-1].index(True)
                kept = [True] * last + kept[last:]  # what comes behind would change its place
                yield from _without(text, [text.span(e)[0] for e in node.elts], node.elts, kept)


def _is_text(node: ast.expr, key: ast.expr | None, finding: Finding) -> bool:
    named = isinstance(key, ast.Constant) and key.value in finding.culprits and not isinstance(node, ast.Call)
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str) or named


def _without(text: Text, starts: list[int], ends: list[ast.expr], kept: list[bool]) -> Iterator[str]:
    """Take out entries, each with the comma that parts it from its neighbour."""
    last = max((i for i, keep in enumerate(kept) if keep), default=-1)
    for i, (keep, end) in enumerate(zip(kept, ends, strict=True)):
        if keep:
            continue
        yield f"`{text.source[starts[i] : text.span(end)[1]]}`"
        if i < last:
            text.changes.append((starts[i], starts[i + 1], ""))
        else:
            begin = text.span(ends[i - 1])[1] if i else starts[i]
            alone = "," if isinstance(text.parents[end], ast.Tuple) and last == 0 and i == 1 else ""
            text.changes.append((begin, text.span(end)[1], alone))


def _proved(prover: Prover, cell: str) -> str | None:
    """Every call gives what the plain function gives, texts aside."""
    with contextlib.suppress(Exception):
        sources = trial.history(prover)
        got, wanted = trial.play(prover, cell, sources), trial.original(prover, sources, jit=False)
        if got.results and trial.same(_numbers(wanted.results), got.results):
            number = len(got.results)
            return f"traced; equal to the run without jit on {number} call{'s' * (number > 1)}, texts aside"
    return None


def _numbers(value: Any) -> Any:
    """A result without its texts."""
    if type(value) is dict:
        return {k: _numbers(v) for k, v in value.items() if not isinstance(v, str)}
    if type(value) in (tuple, list):
        return type(value)(_numbers(v) for v in value if not isinstance(v, str))
    return value
