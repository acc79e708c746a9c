"""Static arguments where the cell compiles by itself: written into its own `jax.jit`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Fix
from jitmagic.tracing.names import dotted_name

KEYWORDS = ("static_argnames", "static_argnums")


def in_cell(fix: Fix, evidence: Evidence) -> Fix | None:
    """The fix with its static arguments in the decorator or call of `jax.jit`; None where there is no such place."""
    if fix.dyn is not None:
        return None
    if fix.static_argnames is None and fix.static_argnums is None:
        return fix
    source = fix.cell or evidence.function.cell
    try:
        cell = _declared(Text(source), evidence.function.name, fix.static_argnames, fix.static_argnums)
    except (SyntaxError, LookupError, ValueError):
        return None
    if cell is None:
        return None
    from jitmagic.fixes.rewrites import diff

    changed = diff(evidence.function.cell, cell)
    return replace(fix, cell=cell, static_argnames=None, static_argnums=None, diff=changed)


def _declared(
    text: Text, function: str, names: Sequence[str] | None, numbers: Sequence[int] | None
) -> str | None:
    keywords = {"static_argnames": names, "static_argnums": numbers}
    made = ", ".join(f"{k}={_listed(v)}" for k, v in keywords.items() if v)
    node = text.function(function)
    for decorator in node.decorator_list if node is not None else ():
        if _is_jit(decorator):
            text.replace(
                decorator,
                f"{_partial(text)}({text.code(decorator)}, {made})" if made else text.code(decorator),
            )
            return text.result()
        if isinstance(decorator, ast.Call) and (_is_jit(decorator.func) or any(map(_is_jit, decorator.args))):
            return _with_keywords(text, decorator, made)
    for call in (n for n in ast.walk(text.tree) if isinstance(n, ast.Call) and _is_jit(n.func) and n.args):
        if ast.unparse(call.args[0]).rpartition(".")[2] == function.rpartition(".")[2] or isinstance(
            call.args[0], ast.Lambda
        ):
            return _with_keywords(text, call, made)
    return None


def _is_jit(node: ast.expr) -> bool:
    return dotted_name(node).rpartition(".")[2] == "jit"


def _partial(text: Text) -> str:
    imported = {
        a.name
        for n in ast.walk(text.tree)
        if isinstance(n, ast.ImportFrom) and n.module == "functools"
        for a in n.names
    }
    return "partial" if "partial" in imported or "partial" in text.names else "functools.partial"


def _listed(values: Sequence[str] | Sequence[int]) -> str:
    return repr(values[0]).replace("'", '"') if len(values) == 1 else repr(tuple(values)).replace("'", '"')


def _with_keywords(text: Text, call: ast.Call, made: str) -> str:
    """The call with these static arguments in place of those that it has."""
    kept = [*map(text.code, call.args), *(text.code(k) for k in call.keywords if k.arg not in KEYWORDS)]
    text.replace(call, f"{text.code(call.func)}({', '.join([*kept, made] if made else kept)})")
    return text.result()
