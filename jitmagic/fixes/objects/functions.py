"""Functions beside arrays in lists, tuples and dicts of an argument: passed in a form that jax takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.objects import parts
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.calls import with_changed
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

PARTIAL = "jax.tree_util.Partial"
DISPLAYS = (ast.List, ast.Tuple, ast.Dict)


def propose(evidence: Evidence, prover: Prover, name: str, value: Any) -> Iterator[Fix]:
    """`f([(w, Partial(jnp.tanh))], x)`: a function of this form belongs to the structure, and is no leaf."""
    import jax

    if not any(callable(v) for v in jax.tree.leaves(value)):
        return
    sources, namespace = trial.call_sources(prover), prover.checker.namespace
    calls = [
        with_changed(s, evidence, [name], lambda text, node: _wrap(text, node, namespace)) for s in sources
    ]
    words = parts.proved(prover, evidence.function.cell, sources, calls, prover.checker.options)
    if words and calls != sources:
        yield Fix(
            title=f"pass the functions in `{name}` as `{PARTIAL}`: each new function compiles again",
            applicability="safe", verified=True, evidence=words, calls=tuple(dict.fromkeys(calls)),
        )  # fmt: skip


def _wrap(text: Text, node: ast.expr, namespace: dict[str, Any]) -> None:
    """Each function in a display by itself; all that there are in what only has a name."""
    if not isinstance(node, DISPLAYS):
        each = f"lambda v: {PARTIAL}(v) if callable(v) else v"
        text.replace(node, f"jax.tree.map({each}, {text.code(node)})")
        return
    for child in node.values if isinstance(node, ast.Dict) else node.elts:
        if isinstance(child, DISPLAYS):
            _wrap(text, child, namespace)
        elif isinstance(child, ast.Lambda) or callable(_value(child, namespace)):
            text.replace(child, f"{PARTIAL}({text.code(child)})")


def _value(node: ast.expr, namespace: dict[str, Any]) -> Any:
    """What a name or a chain of attributes stands for; None for other expressions, which are not run."""
    if isinstance(node, ast.Name):
        return namespace.get(node.id)
    return (
        getattr(_value(node.value, namespace), node.attr, None) if isinstance(node, ast.Attribute) else None
    )
