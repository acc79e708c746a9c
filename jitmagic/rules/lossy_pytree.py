"""JM206 lossy-pytree: a registered class loses a field when it is taken apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Evidence, LossyPytree
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.parsed_text import ParsedText, parse_cell
from jitmagic.rules.words import agree, listed
from jitmagic.source.edits import FunctionNode
from jitmagic.source.tree import walk


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each class of the cell whose `tree_flatten` leaves out a field that is read."""
    if evidence.silent is not None:
        for fact in evidence.silent.lossy:
            if fact.fields:
                yield _told(evidence, fact)
        return
    source = parse_cell(evidence.function)
    for node in walk(source.tree) if source else ():
        if source and isinstance(node, ast.ClassDef):
            yield from _class(evidence, source, node)


def _told(evidence: Evidence, fact: LossyPytree) -> Finding:
    lost = fact.fields
    if fact.dropped:
        return _dropped(evidence, fact)
    return RULE.finding(
        evidence,
        f"{listed(lost)} of `{fact.type}` {agree(lost, 'is', 'are')} not the same after `tree_flatten` and "
        f"`tree_unflatten`: inside the compiled `{evidence.function.name}` "
        f"{agree(lost, 'it has another value', 'they have other values')}",
        where=fact.where,
        culprits=[fact.argument, fact.type, *lost],
        help=f"return {listed(lost)} too: among the children if "
        f"{agree(lost, 'it is an array', 'they are arrays')} or a number that changes, else in the auxiliary "
        "data; and put each back as it was in `tree_unflatten`",
    )


def _dropped(evidence: Evidence, fact: LossyPytree) -> Finding:
    lost = fact.fields
    return RULE.finding(
        evidence,
        f"`tree_flatten` of `{fact.type}` returns {listed(lost)}, and `tree_unflatten` does not put "
        f"{agree(lost, 'it', 'them')} back: each time jax rebuilds the object (a compiled call, each iteration of "
        f"`jax.lax.scan`) {agree(lost, 'it is', 'they are')} what `__init__` makes",
        where=fact.where,
        culprits=[*lost, fact.type, fact.argument],
        help=f"assign {listed(lost)} from `children` in `tree_unflatten`",
    )


def _class(evidence: Evidence, source: ParsedText, node: ast.ClassDef) -> Iterator[Finding]:
    methods = {m.name: m for m in node.body if isinstance(m, FunctionNode)}
    flatten, init = methods.get("tree_flatten"), methods.get("__init__")
    if (
        flatten is None
        or init is None
        or "vars(self)" in ast.unparse(flatten)
        or "__dict__" in ast.unparse(flatten)
    ):
        return
    kept = _attributes(flatten)
    lost = [name for name in _settable(init) if name not in kept and _is_read(source, name, [init, flatten])]
    if not lost:
        return
    returned = [n for n in walk(flatten) if isinstance(n, ast.Return)]
    holders = [h for name in lost for h in _holders(source, name)]
    yield RULE.finding(
        evidence,
        f"`tree_flatten` of `{node.name}` leaves out {listed(lost)}: inside the compiled "
        f"`{evidence.function.name}` "
        f"{agree(lost, 'it has its default value', 'they have their default values')}",
        where=source.where(returned[-1] if returned else flatten),
        culprits=[*holders, node.name, *lost],
        help=f"return {listed(lost)} too: among the children if "
        f"{agree(lost, 'it is an array', 'they are arrays')} or a "
        "number that changes, else in the auxiliary data",
    )


def _settable(init: FunctionNode) -> list[str]:
    """Attributes that `__init__` takes as they are from a parameter with a default."""
    arguments, count = init.args, len(init.args.defaults)
    optional = {a.arg for a in [*arguments.posonlyargs, *arguments.args][-count:]} if count else set()
    optional |= {
        a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None
    }
    found: list[str] = []
    for node in walk(init):
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=False))
        found += [
            t.attr for t, v in pairs
            if isinstance(t, ast.Attribute) and isinstance(v, ast.Name) and v.id in optional
        ]  # fmt: skip
    return found


def _attributes(node: ast.AST) -> set[str]:
    return {n.attr for n in walk(node) if isinstance(n, ast.Attribute)}


def _is_read(source: ParsedText, name: str, outside: list[FunctionNode]) -> bool:
    skipped = {id(n) for f in outside for n in walk(f)}
    return any(
        isinstance(n, ast.Attribute)
        and n.attr == name
        and isinstance(n.ctx, ast.Load)
        and id(n) not in skipped
        for n in walk(source.tree)
    )


def _holders(source: ParsedText, name: str) -> list[str]:
    """Names in the function on which the field is read: `s` of `s.power`."""
    return [
        n.value.id
        for n in walk(source.own())
        if isinstance(n, ast.Attribute)
        and n.attr == name
        and isinstance(n.value, ast.Name)
        and n.value.id != "self"
    ]


RULE = Rule("JM206", "lossy-pytree", "warning", find)
