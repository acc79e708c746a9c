"""Completion of the magics' flags, argument names, dynamic paths and rule codes."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from jitmagic import cell as cells

_OF_FUNCTION = ("-f",)
_OF_ARGUMENT = ("-s", "--static", "--donate", "--vmap", "--grad")
_OF_PATH = ("-d", "--dyn")


def matcher(magics: Any) -> Any:
    """A matcher for IPython's completer that knows the magic lines."""

    @context_matcher(identifier="jitmagic")  # type: ignore[misc]
    def complete(context: CompletionContext) -> dict[str, Any]:
        found = list(candidates(magics, context))
        return {
            "completions": [SimpleCompletion(text=c, type="jitmagic") for c in found],
            "suppress": bool(found),
            "matched_fragment": _fragment(context),
        }

    complete.jitmagic = True  # type: ignore[attr-defined]
    return complete


def _fragment(context: CompletionContext) -> str:
    """The text that a completion replaces: the last word, or what follows its last comma."""
    word = context.text_until_cursor.rpartition(" ")[2]
    return word.rpartition(",")[2]


def candidates(magics: Any, context: CompletionContext) -> Iterable[str]:
    """What may stand at the cursor."""
    line = context.text_until_cursor
    stripped = line.lstrip()
    name = next((m for m in reversed(cells.MAGICS) if stripped.lstrip("%").startswith(m)), None)
    if name is None or not stripped.startswith("%") or " " not in stripped:
        return []
    words = stripped.split()
    at_new = line.endswith(" ")
    before = words[-1] if at_new else words[-2] if len(words) > 1 else ""
    start = "" if at_new else _fragment(context)
    body = "\n".join(context.full_text.split("\n")[context.cursor_line + 1 :])
    if before in _OF_PATH:
        options: Iterable[str] = _paths(start, body, magics.shell.user_ns)
    elif before in _OF_ARGUMENT:
        options = _arguments(body)
    elif before in _OF_FUNCTION:
        options = _functions(body)
    elif before == "--explain":
        options = _codes()
    elif start.startswith("-"):
        options = [
            s for a in getattr(magics, name).parser._actions for s in a.option_strings if s != "--cell"
        ]
    else:
        return []
    return [o for o in dict.fromkeys(options) if o.startswith(start)]


def _tree(body: str) -> ast.Module:
    try:
        return ast.parse(body)
    except SyntaxError:
        return ast.Module([], [])


def _functions(body: str) -> list[str]:
    return [d.name for d in cells.definitions(_tree(body))]


def _arguments(body: str) -> list[str]:
    """Parameter names of the cell's functions; by pattern where the cell does not parse yet."""
    names = [n.arg for n in ast.walk(_tree(body)) if isinstance(n, ast.arg)]
    return [n for n in names if n != "self"]


def _paths(start: str, body: str, ns: dict[str, Any]) -> list[str]:
    """Names the cell loads, or the attributes of an object of the notebook."""
    head, dot, _ = start.rpartition(".")
    if dot:
        value = ns.get(head.partition(".")[0])
        for step in head.split(".")[1:]:
            value = getattr(value, "__dict__", {}).get(step)
        return [f"{head}.{k}" for k in getattr(value, "__dict__", {}) if not k.startswith("_")]
    loaded = {n.id for n in ast.walk(_tree(body)) if isinstance(n, ast.Name)}
    return ["auto", *sorted(n for n in loaded if n in ns and not callable(ns[n]))]


def _codes() -> list[str]:
    from jitmagic import rules

    return [r.code for r in rules.RULES]
