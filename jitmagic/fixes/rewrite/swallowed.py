"""`try` around something that asks a traced value: jax's error would be taken for an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite.place import Candidate, Place

TITLE = "no `try` around what asks for a traced value"


def candidates(place: Place) -> Iterator[Candidate]:
    """The body of the `try` without its handlers; what in it cannot be traced is rewritten next."""
    import libcst as cst

    if place.kind != "jit-differs-from-eager":
        return
    found = next((n for n in place.path if isinstance(n, cst.Try)), None)
    if found is None or found.finalbody is not None or not isinstance(found.body, cst.IndentedBlock):
        return
    body: list[Any] = list(found.body.body)
    if found.orelse is not None:
        body += list(found.orelse.body.body)
    yield Candidate(TITLE, place.cell.edit({found: place.cell.block(body)}), "unsafe",
                    "other exceptions are no longer caught either")  # fmt: skip
