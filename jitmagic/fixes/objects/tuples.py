"""Tuples, which have a hash, in the calls: for lists, and for the items of a dict."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.objects import parts
from jitmagic.fixes.rewrites import diff
from jitmagic.fixes.silent.calls import with_argument, with_changed
from jitmagic.fixes.silent.text import FunctionNode, Text
from jitmagic.report import Fix
from jitmagic.rules.words import listed

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def given(evidence: Evidence, prover: Prover, name: str) -> Any:
    """What the newest call passed for a parameter."""
    sample = prover.samples[-1]
    return {**dict(zip(evidence.function.parameters, sample.args, strict=False)), **sample.kwargs}.get(name)


def of_lists(
    evidence: Evidence, prover: Prover, names: Sequence[str], sources: Sequence[str]
) -> Iterator[Fix]:
    """Calls that pass tuples, which have a hash, in place of the lists; static where they are not yet."""
    old = prover.checker.options
    declared = set(names) <= old.static_parameters(prover.checker.fn)
    options = old if declared else replace(old, static_argnames=(*old.static_argnames, *names))
    if not declared:
        options = parts.with_refused(options, evidence, prover, names[0])

    def change(text: Text, node: ast.expr) -> None:
        text.replace(node, _tuple_of(text, node))

    calls = [with_changed(s, evidence, names, change) for s in sources]
    words = parts.proved(prover, evidence.function.cell, list(sources), calls, options)
    if words and calls != sources:
        static = "" if declared else f", and make {'it' if len(names) == 1 else 'them'} static"
        what = "a tuple" if len(names) == 1 else "tuples"
        yield Fix(
            title=f"pass {what} for {listed(names)}{static}: each new one compiles again",
            applicability="safe" if declared else "unsafe", verified=True, evidence=words,
            static_argnames=None if declared else options.static_argnames, calls=tuple(dict.fromkeys(calls)),
        )  # fmt: skip


def _tuple_of(text: Text, node: ast.expr) -> str:
    """A tuple for what is a list in a call."""
    if not isinstance(node, ast.List):
        return f"tuple({text.code(node)})"
    if any(isinstance(n, ast.List) for e in node.elts for n in ast.walk(e)):
        return as_tuples(text.code(node))
    inside = text.code(node)[1:-1].strip()
    return f"({inside}{',' if len(node.elts) == 1 and not inside.endswith(',') else ''})"


def of_items(
    text: Text, function: FunctionNode, evidence: Evidence, prover: Prover, name: str, sources: list[str]
) -> Iterator[Fix]:
    """A dict that is handed on as a whole: its items are passed as a tuple, which has a hash."""
    calls = [with_argument(s, evidence, name, "tuple({}.items())") for s in sources]
    documented = ast.get_docstring(function) is not None and len(function.body) > 1
    text.before(function.body[1 if documented else 0], [f"{name} = dict({name})"])
    cell = text.result()
    words = parts.proved(prover, cell, sources, calls, prover.checker.options) if calls != sources else None
    if words:
        yield Fix(
            title=f"pass the items of `{name}` as a tuple: each new one compiles again", applicability="unsafe",
            verified=True, evidence=words, cell=cell, calls=tuple(dict.fromkeys(calls)),
            diff=diff(evidence.function.cell, cell),
        )  # fmt: skip


def as_tuples(source: str) -> str:
    """An expression with every list in it as a tuple."""
    return ast.unparse(_Tuples().visit(ast.parse(source, mode="eval")))


class _Tuples(ast.NodeTransformer):
    def visit_List(self, node: ast.List) -> ast.Tuple:
        self.generic_visit(node)
        return ast.Tuple(node.elts, node.ctx)
