"""JM304 key-reuse: one random key is used for two draws."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Evidence, KeyReuse
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.hidden_rng import is_draw
from jitmagic.rules.parsed_text import ParsedText, definitions, parse
from jitmagic.rules.words import quoted
from jitmagic.source.edits import FunctionNode
from jitmagic.source.tree import walk

Uses = dict[str, ast.Call]
"""For each key (its text) the call that used it up."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each draw whose key was used before, following the order of statements."""
    if evidence.silent.program:
        for fact in evidence.silent.keys:
            yield _told(evidence, fact)
        return
    source = parse(evidence.function)
    own = source.own() if source else None
    if source is None or not isinstance(own, FunctionNode):
        return
    draws = _Draws(source)
    for node in definitions(own):
        draws.block(node.body, {})
    for call, key, earlier in draws.found:
        again = (
            "in each iteration of the loop" if earlier is call else f"as {quoted(ast.unparse(earlier))} did"
        )
        yield RULE.finding(
            evidence,
            f"{quoted(ast.unparse(call))} uses the key {quoted(key)} again, {again}: both give the same "
            "random numbers",
            where=source.where(call),
            culprits=[key],
            help=_help(key),
        )


def _told(evidence: Evidence, fact: KeyReuse) -> Finding:
    key = fact.names[0] if fact.names else "a key"
    same_line = fact.earlier == fact.where.source
    again = (
        "in each iteration" if not fact.earlier else "" if same_line else f", as {quoted(fact.earlier)} did"
    )
    return RULE.finding(
        evidence,
        f"{quoted(fact.where.text or fact.where.source)} uses the key {quoted(key)} "
        f"{'a second time' if same_line else 'again'}{again if again.startswith(',') else ' ' * bool(again) + again}: "
        "the same key gives the same random numbers",
        where=fact.where,
        culprits=fact.names,
        help=_help(key),
    )


def _help(key: str) -> str:
    if key.isidentifier():
        return f"split it before: `{key}, sub = jax.random.split({key})`, and use each part once"
    return "split the key into as many parts as there are draws, and use each part once"


class _Draws:
    """Follows the statements of a function; what was used up is passed along and given back."""

    def __init__(self, source: ParsedText) -> None:
        self.source = source
        self.found: list[tuple[ast.Call, str, ast.Call]] = []

    def block(self, statements: list[ast.stmt], used: Uses) -> Uses | None:
        """Keys used up after these statements; None where they leave the function."""
        for statement in statements:
            after = self.statement(statement, used)
            if after is None:
                return None
            used = after
        return used

    def statement(self, node: ast.stmt, used: Uses) -> Uses | None:
        """The same for one statement."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return used
            case ast.If():
                used = self.expression(node.test, used)
                ends = [self.block(node.body, dict(used)), self.block(node.orelse, dict(used))]
                open_ends = [e for e in ends if e is not None]
                return {k: v for e in open_ends for k, v in e.items()} if open_ends else None
            case ast.For() | ast.While():
                used = self.expression(node.iter if isinstance(node, ast.For) else node.test, used)
                for _ in range(2):  # the second turn meets what the first one used
                    if isinstance(node, ast.For):
                        used = _rebound(node.target, used)
                    used = self.block(node.body, dict(used)) or used
                return used
            case ast.With():
                return self.block(node.body, used)
            case ast.Try():
                return self.block([*node.body, *node.orelse, *node.finalbody], used)
        used = self.expression(node, used)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            used = _rebound(target, used) if isinstance(target, ast.expr) else used
        return None if isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break) else used

    def expression(self, node: ast.AST, used: Uses) -> Uses:
        """Keys used up after the calls in an expression, those in lambdas and comprehensions left out."""
        used = dict(used)
        for call in sorted(_calls(node), key=lambda n: (n.lineno, n.col_offset)):
            name = self.source.dotted(call.func)
            draw = is_draw(name)
            if not (draw or name == "jax.random.split"):
                continue
            argument = (
                call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "key"), None)
            )
            if argument is None or not _is_place(argument):
                continue
            key = ast.unparse(argument)
            if key in used and (draw or is_draw(self.source.dotted(used[key].func))):
                if call not in [c for c, _, _ in self.found]:
                    self.found.append((call, key, used[key]))
            used.setdefault(key, call)
        return used


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    if isinstance(
        node, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp | ast.IfExp
    ):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)


def _is_place(node: ast.expr) -> bool:
    """A name, an attribute, or an element at a fixed index: the same text is the same key."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and _is_place(node.value)
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_place(node.value))


def _rebound(target: ast.expr, used: Uses) -> Uses:
    names = {ast.unparse(n) for n in walk(target) if isinstance(n, ast.Name | ast.Attribute)}
    return {k: v for k, v in used.items() if k not in names and k.split("[")[0].split(".")[0] not in names}


RULE = Rule("JM304", "key-reuse", "warning", find)
