"""Completion of the magics' flags, argument names, dynamic paths and rule codes."""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Callable
from typing import Any

from jitmagic.checking.watched import Watched
from jitmagic.source import cell as cells

_OF_FUNCTION = ("-f",)
_OF_ARGUMENT = ("-s", "--static", "--donate", "--vmap", "--grad")
_OF_PATH = ("-d", "--dyn")


def offer(magics: Any) -> Callable[[], None]:
    """Have IPython's completer of this shell ask for the magic lines too; what is returned ends it."""
    completer = magics.shell.Completer
    try:
        from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
    except ImportError:
        return _offer_for_line(magics)

    @context_matcher(identifier="jitmagic")  # type: ignore[misc]
    def complete(context: CompletionContext) -> dict[str, Any]:
        body = "\n".join(context.full_text.split("\n")[context.cursor_line + 1 :])
        found = _offered(magics, context.text_until_cursor, body)
        return {
            "completions": [SimpleCompletion(text=text, type=what) for text, what in found.items()],
            "suppress": bool(found),
            "matched_fragment": _fragment(context.text_until_cursor),
        }

    completer.custom_matchers.append(complete)
    return lambda: completer.custom_matchers.remove(complete)


def _offer_for_line(magics: Any) -> Callable[[], None]:
    """The same before IPython 8.6, which tells the line alone: names that only the cell has are left out, and what a
    completion is."""

    def complete(shell: object, event: Any) -> list[str]:
        line = event.text_until_cursor
        kept = max(len(_fragment(line)) - len(event.symbol), 0)  # IPython replaces a part of our word
        return [found[kept:] for found in _offered(magics, line, "")]

    commands = [percent + name for name in cells.MAGICS for percent in ("%", "%%")]
    for command in commands:
        magics.shell.set_hook("complete_command", complete, str_key=command)
    known = magics.shell.strdispatchers["complete_command"].strs

    def end() -> None:
        for command in commands:
            known.pop(command)

    return end


def _offered(magics: Any, line: str, body: str) -> dict[str, str]:
    try:
        return candidates(magics, line, body)
    except Exception:  # IPython would write the traceback between the user's keys
        return {}


def _fragment(line: str) -> str:
    """The text that a completion replaces: the last word, or what follows its last comma."""
    return line.rpartition(" ")[2].rpartition(",")[2]


def candidates(magics: Any, line: str, body: str) -> dict[str, str]:
    """What may stand at the end of this line, each with what it is in a word; `body` is the cell below it."""
    stripped = line.lstrip()
    name = next((m for m in reversed(cells.MAGICS) if stripped.lstrip("%").startswith(m)), None)
    if name is None or not stripped.startswith("%") or " " not in stripped:
        return {}
    words = stripped.split()
    at_new = line.endswith(" ")
    before = words[-1] if at_new else words[-2] if len(words) > 1 else ""
    start = "" if at_new else _fragment(line)
    ns = magics.shell.user_ns
    if before in _OF_PATH:
        options = {path: _described(path, ns) for path in _paths(start, body, ns)}
    elif before in _OF_ARGUMENT:
        options = dict.fromkeys(_arguments(body), "argument")
    elif before in _OF_FUNCTION:
        options = dict.fromkeys([*_functions(body), *_known_functions(ns)], "function")
    elif before == "--device":
        options = dict.fromkeys(_devices(), "device")
    elif before == "--explain":
        options = _codes()
    elif name == "jitcheck" and len(words) == 2 - at_new and not body.strip():
        options = {"on": "every later cell", "off": "no longer"}
    elif start.startswith("-"):
        actions = getattr(magics, name).parser._actions
        options = {s: a.metavar or "flag" for a in actions for s in a.option_strings if s != "--cell"}
    else:
        return {}
    return {text: what for text, what in options.items() if text.startswith(start)}


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


def _paths(start: str, body: str, ns: dict[str, object]) -> list[str]:
    """Names the cell loads, what it keeps in `self`, or what is in an object of the notebook."""
    tree = _tree(body)
    last = max(start.rfind("."), start.rfind("["))
    head = start[: max(last, 0)]
    if head == "self":
        return [f"self.{n}" for n in sorted(_of_self(tree))]
    if last >= 0 and start[last] == ".":
        return [f"{head}.{k}" for k in _attributes(_value(head, ns)) if not k.startswith("_")]
    if last >= 0:
        return [f"{head}[{k!r}]" for k in _keys(_value(head, ns))]
    loaded = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} if tree.body else _data(ns)
    own = ["self"] if _of_self(tree) else []
    held = {n for n, v in ns.items() if not callable(v) and type(v) is not types.ModuleType}
    return ["auto", *own, *sorted(loaded & held)]


def _data(ns: dict[str, object]) -> set[str]:
    """Names of the notebook that may hold state: for a cell that has no text yet."""
    return {n for n in ns if n not in ("In", "Out") and not n.startswith("_")}


def _of_self(tree: ast.Module) -> set[str]:
    """Attributes of `self` that the cell's methods name, methods aside."""
    named = {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self"
    }
    return named - {d.name.rpartition(".")[2] for d in cells.definitions(tree)}


def _value(path: str, ns: dict[str, object]) -> Any:
    """What lies at a path, found without running any code of the user's; None where there is nothing."""
    try:
        root, *steps = re.findall(r"^\w+|(?<=\.)\w+|(?<=\[)[^\]]+(?=\])", path)
        value: Any = ns.get(root)
        for step in steps:
            if type(value) in (dict, list, tuple):
                value = value[ast.literal_eval(step)]
            else:
                value = _attributes(value).get(step)
    except (ValueError, SyntaxError, LookupError, TypeError):
        return None
    return value


def _described(path: str, ns: dict[str, object]) -> str:
    """The type of an array, or the name of another value's class."""
    if path == "auto":
        return "whatever is found"
    value = _value(path, ns)
    module = type(value).__module__.partition(".")[0]
    if module in ("jax", "jaxlib", "numpy") and hasattr(value, "dtype"):
        from jitmagic.units import array_type

        return array_type(str(value.dtype), tuple(value.shape))
    return "variable" if value is None else type(value).__name__


def _attributes(value: object) -> dict[str, object]:
    return dict(getattr(value, "__dict__", {})) if not isinstance(value, type) else {}


def _keys(value: Any) -> list[object]:
    if type(value) is dict:
        return [k for k in value if type(k) in (str, int)][:100]
    return list(range(min(len(value), 100))) if type(value) in (list, tuple) else []


def _known_functions(ns: dict[str, object]) -> list[str]:
    """Functions of the notebook that no package brought in."""
    own = (types.FunctionType, Watched)
    return [n for n, v in ns.items() if type(v) in own and getattr(v, "__module__", "") == "__main__"]


def _devices() -> list[str]:
    """Devices of jax, where it is imported anyway."""
    jax = sys.modules.get("jax")
    names = [(d.platform, f"{d.platform}:{d.id}") for d in jax.devices()] if jax is not None else []
    return [name for pair in names for name in pair]


def _codes() -> dict[str, str]:
    from jitmagic import rules

    return {rule.code: rule.kind for rule in rules.RULES}
