"""Static arguments where the cell compiles by itself: written into its own `jax.jit`."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jitmagic.evidence import Evidence
from jitmagic.fixes import specs
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Fix
from jitmagic.source.expressions import dotted_name


def in_cell(fix: Fix, evidence: Evidence, namespace: Mapping[str, Any] | None = None) -> Fix | None:
    """The fix with its static arguments in the decorator or call of `jax.jit`; None where there is no such place.

    `namespace` is the notebook's: what it has not imported is imported in the cell."""
    if fix.dyn is not None:
        return None
    if fix.static_argnames is None and fix.static_argnums is None:
        return fix
    source = fix.cell or evidence.function.cell
    try:
        partial = _partial(Text(source), namespace or {})
        cell = _declared(
            Text(source), evidence.function.name, fix.static_argnames, fix.static_argnums, partial=partial
        )
    except (SyntaxError, LookupError, ValueError):
        return None
    if cell is None:
        return None
    if namespace is not None and f"@{partial}(" in cell and f"@{partial}(" not in source:
        cell = _imported(cell, partial, namespace)
    from jitmagic.fixes.rewrites import diff

    changed = diff(evidence.function.cell, cell)
    return replace(fix, cell=cell, static_argnames=None, static_argnums=None, diff=changed)


def decorated(evidence: Evidence, spec: specs.Spec, namespace: Mapping[str, Any]) -> str | None:
    """The cell with `jax.jit` and these declarations in front of a function that no decorator is at."""
    text = Text(evidence.function.cell)
    node = text.function(evidence.function.name)
    if node is None or node.decorator_list:
        return None
    partial = _partial(text, namespace)
    made = ", ".join(f"{field}={specs.shown(values)}" for field, values in spec.items() if values)
    text.before(node, [f"@{partial}(jax.jit, {made})" if made else "@jax.jit"])
    cell = text.result()
    return _imported(cell, partial, namespace) if made else cell


def _declared(
    text: Text, function: str, names: Sequence[str] | None, numbers: Sequence[int] | None, *, partial: str
) -> str | None:
    keywords = {"static_argnames": names, "static_argnums": numbers}
    made = ", ".join(f"{k}={specs.shown(v)}" for k, v in keywords.items() if v)
    node = text.function(function)
    for decorator in node.decorator_list if node is not None else ():
        if _is_jit(decorator):
            text.replace(
                decorator,
                f"{partial}({text.code(decorator)}, {made})" if made else text.code(decorator),
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


def _partial(text: Text, namespace: Mapping[str, Any]) -> str:
    """How this notebook calls `functools.partial`."""
    imported = {
        a.name
        for n in ast.walk(text.tree)
        if isinstance(n, ast.ImportFrom) and n.module == "functools"
        for a in n.names
    }
    known = "partial" in imported or namespace.get("partial") is functools.partial
    return "partial" if known else "functools.partial"


def _imported(cell: str, partial: str, namespace: Mapping[str, Any]) -> str:
    """The cell with `import functools` where neither it nor the notebook has that."""
    has = any(
        isinstance(n, ast.Import) and any((a.asname or a.name) == "functools" for a in n.names)
        for n in ast.walk(ast.parse(cell))
    )
    return cell if partial == "partial" or has or "functools" in namespace else f"import functools\n\n{cell}"


def _with_keywords(text: Text, call: ast.Call, made: str) -> str:
    """The call with these static arguments in place of those that it has."""
    kept = [*map(text.code, call.args), *(text.code(k) for k in call.keywords if k.arg not in specs.STATIC)]
    if not made and len(kept) == 1 and not _is_jit(call.func):  # partial(jax.jit)
        return text.replace(call, kept[0]).result()
    text.replace(call, f"{text.code(call.func)}({', '.join([*kept, made] if made else kept)})")
    return text.result()
