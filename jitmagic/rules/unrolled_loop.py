"""JM405 unrolled-loop: a Python loop is in the program once for each turn."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Evidence, Unrolled
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, leaf
from jitmagic.rules.parsed_text import loaded_names, parse
from jitmagic.rules.words import quoted
from jitmagic.source.tree import walk

TURNS = 16
"""A loop of fewer turns is not worth rewriting."""
EQUATIONS = 200
"""Nor is one in a program smaller than this."""
PER_TURN = 2
LARGE = 400
"""Operations from which a loop of fewer turns, such as one over the layers of a model, takes long to compile too."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each outermost loop of many turns in a program that got large."""
    if evidence.silent is not None and evidence.silent.program:
        for fact in evidence.silent.unrolled:
            yield _told(evidence, fact)
        return
    source, equations = parse(evidence.function), evidence.equations or 0
    if source is None or equations < EQUATIONS:
        return
    for loop in _outermost(source.own()):
        turns = _turns(evidence, loop)
        if turns is None or turns < TURNS or equations < PER_TURN * turns:
            continue
        names = [n.id for n in walk(loop.target) if isinstance(n, ast.Name)]
        head = source.where(loop)
        yield RULE.finding(
            evidence,
            f"the body of `for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}` is traced {turns} "
            "times, "
            f"which makes a program of {equations} operations: compiling takes long",
            where=head,
            culprits=[*names, *loaded_names(loop.iter)],
            help="write the loop as `jax.lax.fori_loop` (or `jax.lax.scan`, to collect a result of each "
            "turn), "
            f"with what changes in the body as the carry; {quoted(names[0]) if names else 'the index'} is "
            "a traced "
            "value there",
        )


def _told(evidence: Evidence, fact: Unrolled) -> Finding:
    index = quoted(fact.names[0]) if fact.names else "the index"
    long = fact.turns >= TURNS or fact.equations >= LARGE
    return RULE.finding(
        evidence,
        f"the body of this loop is traced {fact.turns} times, which makes {fact.equations} of the "
        f"{evidence.equations or fact.equations} operations of the program"
        + (": compiling takes long" if long else ""),
        severity="warning" if long else "note",
        where=fact.where,
        culprits=fact.names,
        help="write the loop as `jax.lax.fori_loop` (or `jax.lax.scan`, to collect a result of each turn), with "
        f"what changes in the body as the carry; {index} is a traced value there",
    )


def _outermost(node: ast.AST) -> Iterator[ast.For]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.For):
            yield child
        else:
            yield from _outermost(child)


def _turns(evidence: Evidence, loop: ast.For) -> int | None:
    """How often the loop turns, inner loops included, as far as the calls seen tell."""
    turns = _length(evidence, loop.iter)
    inner = [_turns(evidence, x) for x in _outermost(ast.Module(loop.body, []))]
    factors = [x for x in inner if x]
    return None if turns is None else turns * max(factors, default=1)


def _length(evidence: Evidence, node: ast.expr) -> int | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        if node.func.id == "range":
            bounds = [_integer(evidence, a) for a in node.args]
            return len(range(*[b for b in bounds if b is not None])) if None not in bounds else None
        if node.func.id in ("enumerate", "zip", "reversed"):
            return _length(evidence, node.args[0])
    if isinstance(node, ast.Name) and (found := leaf(evidence, node.id)) and found.shape:
        return found.shape[0]
    if isinstance(node, ast.List | ast.Tuple):
        return len(node.elts)
    return None


def _integer(evidence: Evidence, node: ast.expr) -> int | None:
    """The value of a small integer expression over literals, shapes and static arguments."""
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            positive = _integer(evidence, operand)
            return None if positive is None else -positive
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(op, _integer(evidence, left), _integer(evidence, right))
        case ast.Name(id=name):
            return _scalar(evidence, name)
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
            found = leaf(evidence, name)
            return found.shape[0] if found and found.shape else None
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=index):
            found, i = leaf(evidence, name), _integer(evidence, index)
            inside = found is not None and i is not None and -len(found.shape) <= i < len(found.shape)
            return found.shape[i] if inside and found and i is not None else None
    return None


def _scalar(evidence: Evidence, name: str) -> int | None:
    found = leaf(evidence, name)
    texts = [found.value] if found else [v.value or "" for v in evidence.variables if v.path == name]
    return int(texts[0]) if texts and texts[0].lstrip("-").isdigit() else None


def _arithmetic(op: ast.operator, a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return None
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.FloorDiv() if b:
            return a // b
    return None


RULE = Rule("JM405", "unrolled-loop", "warning", find)
