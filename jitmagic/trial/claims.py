"""What a correction promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Results = Literal["same", "covers", "where finite", "other random", "new"]
"""From the strictest to the loosest."""
Fewer = Literal["", "traces", "compilations", "equations"]


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
    forgets: tuple[str, ...] = ()
    """Memories of the functions that stay empty: such a change is shown, and never verified."""
    fewer: Fewer = ""
    """What there is less of afterwards; that is asked for."""

    @property
    def lets_differ(self) -> bool:
        """Something may be other than in the plain run."""
        return self.results != "same" or bool(self.words or self.rebinds)


def joined(claims: Sequence[Claim]) -> Claim:
    """What several changes together promise."""
    order = get_args(Results)
    fewer: Fewer = next((c.fewer for c in claims if c.fewer), "")
    return Claim(
        results=max((c.results for c in claims), key=order.index, default="same"),
        words="; ".join(dict.fromkeys(c.words for c in claims if c.words)),
        rebinds=tuple(dict.fromkeys(n for c in claims for n in c.rebinds)),
        forgets=tuple(dict.fromkeys(n for c in claims for n in c.forgets)), fewer=fewer,
    )  # fmt: skip
