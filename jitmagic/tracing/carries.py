"""Which part of a loop's state changes its type, and the line of the body that changes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from jitmagic.evidence import Where
from jitmagic.source import scope
from jitmagic.source.tree import Source, source_of, span_of, walk
from jitmagic.tracing import messages
from jitmagic.tracing.expressions import callee_of
from jitmagic.tracing.sites import Site, where_at

_BODY = {"scan": 0, "while_loop": 1, "fori_loop": 2}
"""Position of the body among the arguments."""
_BODY_NAMES = frozenset(("f", "body_fun"))
_STATE = {"scan": 0, "while_loop": 0, "fori_loop": 1}
"""Position of the state among the body's parameters."""
_PART = re.compile(
    r"(?:input carry|carry input|loop carry)(?: component| part)? (?:at path )?"
    r"(\w+)((?:\[[^\]]+\]|\.\w+)*) (?:has|is|with)"
)

Function = ast.FunctionDef | ast.Lambda


def changed_in_body(
    site: Site, namespace: Mapping[str, object], text: str
) -> tuple[tuple[str, ...], Where | None]:
    """Names of the state that a mismatch message speaks of, as the body has them, and where the body changes it.

    `text` is jax's message, `site` the call of the loop. Empty where the body has no source.
    """
    name = callee_of(site.node).rsplit(".", 1)[-1]
    if isinstance(site.node, ast.Call) and name in ("cond", "switch"):
        return _returned_by_branches(site, namespace, site.node, text), None
    if name not in _BODY or not isinstance(site.node, ast.Call):
        return (), None
    asked = "must return a boolean scalar" in text
    found = _body(
        site, namespace, 0 if asked else _BODY[name], site.node, ("cond_fun",) if asked else _BODY_NAMES
    )
    match = _PART.search(text)
    if found is None or (match is None and not asked and "must be a pair" not in text):
        return (), None
    file, source, body = found
    parameters = [a.arg for a in (*body.args.posonlyargs, *body.args.args)]
    if len(parameters) <= _STATE[name]:
        return (), None
    state, path = parameters[_STATE[name]], match[2] if match is not None else ""
    if match is None:  # what the function returns as a whole is at fault
        returned = next((n for n in _statements(body) if isinstance(n, ast.Return)), body.body)
        where = _where(file, source, returned, body) if isinstance(returned, ast.AST) else None
        return (state,), where
    if name == "fori_loop" and match[1] == messages.COUNTED:  # behind the count and the bound of `fori_loop`
        path = path.partition("]")[2]
    part = _unpacked(body, state, path)
    names = tuple(dict.fromkeys(n for n in (part, state + path if path else "", state) if n))
    changing = _last_change(body, part or state, state)
    return names, _where(file, source, changing, body) if changing is not None else None


def _returned_by_branches(
    site: Site, namespace: Mapping[str, object], call: ast.Call, text: str
) -> tuple[str, ...]:
    """Names in what branches with a `def` of their own return, in the part that the message speaks of."""
    listed = call.args[1] if len(call.args) > 1 else None
    given = listed.elts if isinstance(listed, ast.List | ast.Tuple) else call.args[1:3]
    part = re.search(r"at path \[(\d+)\]", text)
    names: list[str] = []
    for branch in given:
        found = _definition(site, namespace, branch) if isinstance(branch, ast.Name) else None
        for node in _statements(found[2]) if found is not None else ():
            value = node.value if isinstance(node, ast.Return) else None
            if part is not None and isinstance(value, ast.Tuple) and len(value.elts) > int(part[1]):
                value = value.elts[int(part[1])]
            names += _values_in(value) if value is not None else []
    return tuple(dict.fromkeys(names))


def _values_in(node: ast.AST) -> list[str]:
    """Names that an expression reads, without those of what it calls."""
    called = {n for c in walk(node) if isinstance(c, ast.Call) for n in walk(c.func) if isinstance(n, ast.Name)
              and (n is c.func or isinstance(c.func, ast.Attribute))}  # fmt: skip
    return [n.id for n in walk(node) if isinstance(n, ast.Name) and n not in called]


def _body(
    site: Site, namespace: Mapping[str, object], position: int, call: ast.Call, keywords: Collection[str]
) -> tuple[str, Source, Function] | None:
    given = next((k.value for k in call.keywords if k.arg in keywords), None)
    if given is None and len(call.args) > position:
        given = call.args[position]
    return _definition(site, namespace, given)


def _definition(
    site: Site, namespace: Mapping[str, object], given: ast.expr | None
) -> tuple[str, Source, Function] | None:
    """The function behind a name or a lambda, with its file."""
    if isinstance(given, ast.Lambda):
        return site.where.file, site.source, given
    if not isinstance(given, ast.Name):
        return None
    code = getattr(namespace.get(given.id), "__code__", None)
    if code is None:
        return None
    source = source_of(code.co_filename)
    defined = source.function(code)
    return (code.co_filename, source, defined) if isinstance(defined, Function) else None


def _unpacked(body: Function, state: str, path: str) -> str:
    """The name that holds the part at `path`: `acc` for `[1]` after `i, acc = state`."""
    index = re.match(r"\[(\d+)\]", path)
    if index is None:
        return ""
    for node in _statements(body):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == state):
            continue
        targets = node.targets[0]
        if isinstance(targets, ast.Tuple | ast.List) and len(targets.elts) > int(index[1]):
            target = targets.elts[int(index[1])]
            return target.id if isinstance(target, ast.Name) else ""
    return ""


def _statements(body: Function) -> Iterator[ast.AST]:
    return (n for part in (body.body if isinstance(body.body, list) else [body.body]) for n in walk(part))


def _last_change(body: Function, name: str, state: str) -> ast.AST | None:
    """The last statement that binds `name` to something new, else what the body returns."""
    if isinstance(body, ast.Lambda):
        return body.body
    changes = [
        n for n in _statements(body)
        if isinstance(n, ast.Assign | ast.AugAssign | ast.AnnAssign)
        and name in scope.stores(n) and not (isinstance(n, ast.Assign) and getattr(n.value, "id", "") == state)
    ]  # fmt: skip
    returns = [n for n in _statements(body) if isinstance(n, ast.Return)]
    return (changes or returns or [None])[-1]


def _where(file: str, source: Source, node: ast.AST, body: Function) -> Where | None:
    span = span_of(node)
    return where_at(file, span, source, getattr(body, "name", "<lambda>")) if span is not None else None
