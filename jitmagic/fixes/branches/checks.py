"""`assert` and `raise` on traced values: checks that move into the compiled program."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.branches.merge import only_raises
from jitmagic.fixes.branches.truth import truth
from jitmagic.fixes.change import Change, Spot
from jitmagic.source import scope
from jitmagic.source.pattern import stripped

CALLBACK = "check the values in `jax.debug.callback`, which raises while the compiled function runs"


def checks(spot: Spot) -> Iterator[Change]:
    """An `assert`, or an `if` that raises, as a check that runs with the compiled program."""
    statement = spot.text.statement(spot.node)
    match statement:
        case ast.If(test=test) if only_raises(statement) and test in spot.path:
            flag, body = spot.fresh("failed"), spot.text.block(statement.body)
            guard = spot.write("if $$flag:\n    $body", flag=flag, body=body)
        case ast.Assert(test=test, msg=message):
            flag, body = spot.fresh("holds"), "" if message is None else spot.code(message)
            guard = f"assert {flag}, {body}" if body else f"assert {flag}"
        case _:
            return
    asked, check = stripped(truth(spot, test)), spot.fresh("check")
    values = sorted(scope.loads(body) & spot.traced) if body else []
    new = spot.write(
        "def $$check($*header):\n    $guard\n\njax.debug.callback($*called)",
        check=check, header=", ".join([flag, *values]), guard=guard, called=", ".join([check, asked, *values]),
    )  # fmt: skip
    yield Change(
        CALLBACK, spot.edits().statements(statement, new), cost="the error arrives as one of jax's runtime",
        sure=False,
    )  # fmt: skip
