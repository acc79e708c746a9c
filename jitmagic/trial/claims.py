"""What a correction promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Results = Literal["same", "covers", "new", "where finite", "other random"]


@dataclass(frozen=True)
class Claim:
    """What a change lets differ from the plain run, in words that the report shows, and what it says besides.

    `results`: `same`; `covers`, those of the plain run with more beside them or in wider types; `new`, others, and the
    corrected cell gives the same with and without jit; `where finite`, the same where they were finite; `other random`,
    other random numbers of the same shapes. Nothing of it covers state that is lost.
    """

    results: Results = "same"
    words: str = ""
    rebinds: tuple[str, ...] = ()
    """Names of the notebook that get a value which the plain run loses."""
    effects: bool = False
    """It writes to the outside as the plain run does, by a callback: asked for."""
    raises: bool = False
    """A check moves into the program: tried on values that fail it."""
    fewer: Literal["", "traces", "equations"] = ""
    """What there is less of afterwards; that is asked for."""
