"""A class whose `__init__` looks at its values: jax rebuilds the objects without it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.silent.classes import without_init

TITLE = "let `tree_unflatten` rebuild the object without `__init__`, which looks at values"
KINDS = ("tracer-bool", "tracer-int", "tracer-array-conversion", "user-error")


def candidates(place: Place) -> Iterator[Candidate]:
    """`tree_unflatten` with `object.__new__`, where `__init__` asks for the value of what it is given."""
    import libcst as cst

    if place.kind not in KINDS or place.innermost is None or place.innermost.name.value != "__init__":
        return
    owner = next((n for n in place.path if isinstance(n, cst.ClassDef)), None)
    with contextlib.suppress(SyntaxError, ValueError, LookupError):
        yield Candidate(TITLE, without_init(place.text, owner.name.value if owner else ""))
