"""Functions that are defined and compiled inside another: once at the top, with what they read there as arguments."""

from __future__ import annotations

import ast

from jitmagic.fixes.silent.hoisting import top_of
from jitmagic.fixes.silent.text import Text


def moved(text: Text, line: int, *, static: bool = False) -> str | None:
    """`@jax.jit def step(x)` inside a function as a function at the top, with what it reads there as arguments."""
    node = next(
        n for n in ast.walk(text.tree)
        if isinstance(n, ast.FunctionDef) and any(d.lineno == line for d in n.decorator_list)
    )  # fmt: skip
    outer = text.around(node, ast.FunctionDef)
    if (
        not isinstance(outer, ast.FunctionDef)
        or node.args.vararg
        or node.args.kwarg
        or len(node.decorator_list) != 1
    ):
        return None
    uses = [n for n in ast.walk(outer) if isinstance(n, ast.Name) and n.id == node.name]
    calls = [text.parents[u] for u in uses]
    if not uses or any(
        not isinstance(c, ast.Call) or c.func is not u for c, u in zip(calls, uses, strict=True)
    ):
        return None  # it goes elsewhere
    free = _free_values(text, node, outer)
    if free is None:
        return None
    taken = {getattr(s, "name", "") for s in text.tree.body}
    name = node.name if node.name not in taken else text.fresh(f"{node.name}_compiled")
    for call in calls:
        assert isinstance(call, ast.Call)
        text.replace(call.func, name)
        end = text.span(call)[1] - 1
        extra = ", ".join(f"{p}={v}" if call.keywords else v for v, p in free.items())
        text.changes.append(
            (end, end, f"{', ' if call.args or call.keywords else ''}{extra}" if extra else "")
        )
    top = top_of(text, node)
    first = min([top.lineno, *(d.lineno for d in getattr(top, "decorator_list", ()))])
    block = _at_the_top(text, node, name, free, static)
    start = text.starts[first - 1]
    text.changes.append((start, start, block))
    begin, end = (
        text.starts[node.decorator_list[0].lineno - 1],
        text.starts[min(node.end_lineno or 0, len(text.starts) - 1)],
    )
    text.changes.append((begin, end, ""))
    return text.result()


def _free_values(text: Text, node: ast.FunctionDef, outer: ast.FunctionDef) -> dict[str, str] | None:
    """What it reads of the functions around it (`dt`, `self.w`), each with a name for the parameter."""
    own = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local = {n.arg for n in ast.walk(outer) if isinstance(n, ast.arg)}
    local |= {n.id for n in ast.walk(outer) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    inner = {n.name for n in ast.walk(outer) if isinstance(n, ast.FunctionDef)}
    found: dict[str, str] = {}
    for n in ast.walk(node):
        if isinstance(n, ast.Nonlocal) or (isinstance(n, ast.Name) and n.id in inner):
            return None
        if not isinstance(n, ast.Name) or n.id not in local - own:
            continue
        parent = text.parents[n]
        whole = n.id == "self"
        if whole and (
            not isinstance(parent, ast.Attribute) or _is_called(text, parent) or not _is_read(parent)
        ):
            return None
        value = ast.unparse(parent) if whole else n.id
        found[value] = value.rpartition(".")[2].lstrip("_")
    names = list(found.values())
    return found if len(set(names)) == len(names) and not set(names) & own else None


def _is_called(text: Text, node: ast.AST) -> bool:
    parent = text.parents[node]
    return isinstance(parent, ast.Call) and parent.func is node


def _is_read(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Load)


def _at_the_top(text: Text, node: ast.FunctionDef, name: str, free: dict[str, str], static: bool) -> str:
    """Source of the function at the top of the cell."""
    inner = Text(text.source)
    same = next(n for n in ast.walk(inner.tree) if isinstance(n, ast.FunctionDef) and n.lineno == node.lineno)
    for n in ast.walk(same):
        if isinstance(n, ast.Attribute) and ast.unparse(n) in free:
            inner.replace(n, free[ast.unparse(n)])
    body = same.body[0]
    start, end = inner.body_start(same), inner.span(same)[1]
    after = len(inner.source) - end
    changed = inner.result()
    lines = changed[start : len(changed) - after].splitlines()
    cut = body.col_offset - 4
    given = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    defaults = [None] * (len(given) - len(node.args.defaults)) + [*node.args.defaults]
    if any(defaults) and free:
        raise ValueError("parameters with defaults")
    decorator = text.code(node.decorator_list[0])
    if static and free:
        names = ", ".join(f'"{n}"' for n in free.values())
        decorator = f"functools.partial({decorator}, static_argnames=({names},))"
    elif static:
        raise ValueError("nothing to be static")
    arguments = ", ".join(
        [text.code(a) for a in (*node.args.posonlyargs, *node.args.args)] + [*free.values()]
    )
    head = [f"@{decorator}", f"def {name}({arguments}):"]
    return "\n".join([*head, *(x[cut:] if x[:cut].isspace() else x for x in lines), "", "", ""])
