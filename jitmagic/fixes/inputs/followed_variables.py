"""State of a framework's objects that a trace loses: its own variables for plain arrays, its own `jit` for jax's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot, Tag
from jitmagic.rules.base import root
from jitmagic.rules.words import listed
from jitmagic.source import passing, scope
from jitmagic.source.edits import Edits, FunctionNode
from jitmagic.state.adapters import FOLLOWING_ARGUMENTS, OWN_JITS, VARIABLES
from jitmagic.trial.claims import Claim


def followed_arguments(spot: Spot) -> Iterator[Change]:
    """The framework's `jit` follows the variables of its arguments: objects that the function reads by name become
    such."""
    function = passing.definition_of(spot.text, spot.function)
    told, parameters = dict.fromkeys(map(root, spot.names)), scope.parameters_of(function)
    for module in (m for m in FOLLOWING_ARGUMENTS if m in spot.modules.names.values()):
        jit = f"{spot.modules.name(module)}.jit"
        if any(n in parameters for n in told):
            title = f"compile with `{jit}`, which follows the variables of its arguments"
            yield Change(title, decorated(spot, function, jit))
        reads = {n: passing.reads_of(spot.text, n, function) for n in told if n not in parameters}
        names = [n for n, nodes in reads.items() if nodes]
        if names:
            edits = decorated(spot, function, jit)
            takers = passing.chain(spot.text, function, [node for n in names for node in reads[n]])
            new = [passing.Passed(n, n) for n in names]
            later = passing.pass_down(edits, spot.later, takers, new, spot.modules)
            title = f"pass {listed(names)} through `{jit}`, which follows its variables"
            yield Change(title, edits, later, sure=False)


def declared_variables(spot: Spot) -> Iterator[Change]:
    """`self.v = bm.zeros(n)` as `self.v = bm.Variable(bm.zeros(n))`, and `self.v.value = …` where it is written."""
    kind = spot.here(ast.ClassDef)
    made = _variable_of(spot, kind) if kind is not None else ""
    if kind is None or not made:
        return
    methods = [m for m in kind.body if isinstance(m, FunctionNode) and m.args.args]
    making = {"__init__"} | {
        n.func.attr for m in methods if m.name == "__init__" for n in spot.text.within(m, ast.Call)
        if isinstance(n.func, ast.Attribute) and spot.code(n.func.value) == m.args.args[0].arg
    }  # fmt: skip
    others = [a for m in methods if m.name not in making for a in _attributes(spot, m)]
    known = {n.rpartition(".")[2] for n in spot.names}
    names = list(dict.fromkeys(a.attr for a in others if isinstance(a.ctx, ast.Store) and a.attr in known))
    edits = spot.edits()
    for method in methods:
        for attribute in (a for a in _attributes(spot, method) if a.attr in names):
            parent, stored = spot.text.parents[attribute], isinstance(attribute.ctx, ast.Store)
            if isinstance(parent, ast.Assign) and stored and method.name in making:
                form = "jnp.array($v)" if isinstance(parent.value, ast.Constant) else "$$v"
                edits.replace(parent.value, f"{made}({spot.write(form, v=parent.value)})")
            elif stored or isinstance(parent, ast.Return | ast.Tuple):
                edits.replace(attribute, f"{spot.code(attribute)}.value")
    if edits:
        told = listed(f"self.{n}" for n in names)
        yield Change(
            f"make {told} a `{made}`, whose value is followed", edits, sure=False,
            claim=Claim(words=f"the same results, and {told} is a `{made}` then"), tags=frozenset((Tag.VARIABLE,)),
        )  # fmt: skip


def own_jits(spot: Spot) -> Iterator[Change]:
    """`bm.jit` for each `jax.jit` of a cell, where the notebook has such a framework."""
    packages = {full.partition(".")[0] for full in spot.modules.names.values()}
    named = spot.text.within(spot.text.tree, ast.Name, ast.Attribute)
    plain = [n for n in named if spot.full(n) == "jax.jit"]
    for own in OWN_JITS:
        if plain and own.partition(".")[0] in packages:
            edits, name = spot.edits(), spot.modules.spelled(own)
            for node in plain:
                edits.replace(node, name)
            yield Change(f"compile with `{name}`, which follows variables", edits)


def decorated(spot: Spot, function: FunctionNode, decorator: str) -> Edits:
    """The decorator in the place of one that compiles, or above the function."""
    for old in function.decorator_list:
        if passing.is_jit(ast.Call(old, [], []), spot.modules):
            return spot.edits().replace(old, decorator)
    indent = " " * function.col_offset
    return spot.edits().insert(spot.text.line_start(function), f"{indent}@{decorator}\n")


def _variable_of(spot: Spot, kind: ast.ClassDef) -> str:
    """The variable of the framework from which a class comes, as the notebook writes it."""
    frameworks = {spot.full(b).partition(".")[0] for b in kind.bases}
    known = [m for m in VARIABLES if m.partition(".")[0] in frameworks]
    return f"{spot.modules.name(known[0])}.{VARIABLES[known[0]]}" if known else ""


def _attributes(spot: Spot, method: FunctionNode) -> list[ast.Attribute]:
    """Attributes of the object in a method."""
    receiver = method.args.args[0].arg
    return [n for n in spot.text.within(method, ast.Attribute) if spot.code(n.value) == receiver]
