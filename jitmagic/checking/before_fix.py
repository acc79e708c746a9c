"""The code that a cell had before a correction of ours was applied: what its compiled function is timed against."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

Defined = dict[str, ast.FunctionDef]


class Unknown(Exception):
    """The code from before cannot be run beside the cell of now."""


def function_before(
    name: str, before: str, now: str, names: dict[str, object]
) -> Callable[..., object] | None:
    """The function `name` (`step`, `Model.step`) of the cell `before`, on the notebook's `names`; None where no
    function has changed since. Raises Unknown where more than the functions that it calls has."""
    old, new = _defined(ast.parse(before)), _defined(ast.parse(now))
    changed = {n for n, node in old.items() if n not in new or ast.dump(new[n]) != ast.dump(node)}
    if not changed:
        return None
    if name not in old or any("." in n and n != name for n in changed):
        raise Unknown
    chosen = {n: node for n, node in old.items() if "." not in n or n == name}
    if any(map(_does_more, (chosen[n] for n in changed | {name}))):
        raise Unknown
    scope = dict(names)
    plain = [node for node in chosen.values() if not _does_more(node)]
    code: Any = compile(ast.Module(list(plain), []), "<before the fix>", "exec")
    exec(code, scope)
    found = scope[name.rpartition(".")[2]]
    assert callable(found)
    return found


def _defined(tree: ast.Module) -> Defined:
    """The functions of the top level and of its classes, as they are called."""

    def each() -> Iterator[tuple[str, ast.FunctionDef]]:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                yield node.name, node
            elif isinstance(node, ast.ClassDef):
                yield from ((f"{node.name}.{f.name}", f) for f in node.body if isinstance(f, ast.FunctionDef))

    return dict(each())


def _does_more(function: ast.FunctionDef) -> bool:
    """To define it runs other code, or it cannot leave its class."""
    given = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
    calls = any(isinstance(n, ast.Call) for d in given for n in ast.walk(d))
    of_class = any(isinstance(n, ast.Name) and n.id in ("super", "__class__") for n in ast.walk(function))
    return bool(function.decorator_list) or calls or of_class
