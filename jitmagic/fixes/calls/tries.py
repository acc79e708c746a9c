"""`try` around something that asks a traced value: jax's error would be taken for an answer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.fixes.change import Change, Spot


def tries(spot: Spot) -> Iterator[Change]:
    """The body of the `try` without its handlers; what in it cannot be traced is rewritten next."""
    found = spot.here(ast.Try)
    if found is not None and not found.finalbody:
        blocks = (spot.text.block(b) for b in (found.body, found.orelse) if b)
        edits = spot.edits().statements(found, "".join(blocks))
        yield Change("no `try` around what asks for a traced value", edits, sure=False,
                     cost="other exceptions are no longer caught either")  # fmt: skip
