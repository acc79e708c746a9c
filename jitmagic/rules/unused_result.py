"""JM902 unused-result: something is made and thrown away."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.parsed_text import parse_cell
from jitmagic.rules.words import quoted, short
from jitmagic.source.tree import statements

MAKERS = frozenset(
    "jax.jit jax.vmap jax.grad jax.value_and_grad jax.pmap jitmagic.jit jax.checkpoint".split()
)


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """A warning for each call in the function whose result is thrown away; a note for each `jax.jit(f)` (or `vmap`,
    `grad`) of the cell that stands alone and is not the last line."""
    yield from _thrown_away(evidence)
    source = parse_cell(evidence.function)
    if source is None:
        return
    last = source.tree.body[-1]
    for node in statements(source.tree):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or node is last:
            continue
        name, call = source.dotted(node.value.func), node.value
        if name in MAKERS and call.args:
            made = ast.unparse(call.args[0])
            yield RULE.finding(
                evidence,
                f"{quoted(ast.unparse(call))} gives a new function, which nothing uses; {quoted(made)} "
                "stays as it was",
                where=source.where(call),
                culprits=[made],
                help=f"bind it: `{made} = {ast.unparse(call)}`"
                if made.isidentifier()
                else "bind it to a name",
            )


def _thrown_away(evidence: Evidence) -> Iterator[Finding]:
    for call in evidence.silent.dropped:
        if (
            call.array or evidence.writes and not call.by_jax
        ):  # the user's own may be called for what it writes
            continue
        yield RULE.finding(
            evidence,
            f"the result of {quoted(short(call.where.text))} is thrown away: arrays are not changed in place, and the "
            "compiled program holds nothing of this call",
            where=call.where,
            culprits=call.names,
            severity="warning",
            help="bind the result to a name, and go on with that",
        )


RULE = Rule("JM902", "unused-result", "note", find)
