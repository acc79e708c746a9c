"""Keys that are used twice: each draw gets one of its own."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from functools import partial

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.randomness.own_keys import KeyUse, share
from jitmagic.rules.base import root
from jitmagic.source.edits import Edits
from jitmagic.source.modules import last_name
from jitmagic.source.passing import bound_by
from jitmagic.source.tree import Function

_NO_USE = frozenset("key_data clone shape print".split())


def reused_keys(spot: Spot) -> Iterator[Change]:
    """Every draw from a key that is used twice gets a key of its own."""
    functions = [f for f in spot.path if isinstance(f, Function)]
    for key in dict.fromkeys(spot.names if functions else ()):
        function = next((f for f in functions if root(key) in bound_by(f)), functions[-1])
        edits = spot.edits()
        if uses := _uses(spot, edits, function, key):
            share(spot, edits, function, uses, key)
            title = f"split `{key}` so that each draw has its own key"
            yield Change(title, edits, claim=Claim("other random"))


def _uses(spot: Spot, edits: Edits, function: Function, key: str) -> list[KeyUse]:
    """Arguments that hand the key to a call which uses it up, or makes others of it."""
    names = {key} | {
        s.targets[0].id for s in spot.text.within(function, ast.Assign)
        if ast.unparse(s.value) == key and isinstance(s.targets[0], ast.Name)
    }  # fmt: skip
    calls = spot.text.within(function, ast.Call)
    folds = [ast.unparse(c) for c in calls if last_name(c.func) == "fold_in"]
    found = []
    for call in calls:
        around = itertools.takewhile(lambda n: n is not function, spot.text.ancestors(call))
        if any(isinstance(n, Function) and root(key) in bound_by(n) for n in around):
            continue
        kept = last_name(call.func) in _NO_USE or folds.count(ast.unparse(call)) == 1
        for given in (*call.args, *(k.value for k in call.keywords)):
            if not kept and ast.unparse(given) in names and not _splits(spot, call, names):
                found.append(KeyUse(given, partial(edits.replace, given)))
    return found


def _splits(spot: Spot, call: ast.Call, names: set[str]) -> bool:
    """`key, sub = split(key)`: what is left of the key goes on under its name."""
    statement = spot.text.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) and statement.value is call else []
    return any(isinstance(n, ast.Name) and n.id in names for t in targets for n in ast.walk(t))
