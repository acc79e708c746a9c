"""What a check may do, and the cell that it is about. Imports nothing, so that loading stays light."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class WhatIfs:
    """Which transformed forms of a function are asked for: argument names, and a number of devices."""

    vmap: tuple[str, ...] = ()
    grad: tuple[str, ...] = ()
    devices: int | None = None

    def __bool__(self) -> bool:
        return bool(self.vmap or self.grad or self.devices)


@dataclass(frozen=True)
class Settings:
    """What a check may do and where its thresholds lie. `budget` in seconds, `large_constant` in bytes."""

    time: bool = True
    loops: int | None = None
    repeats: int = 7
    timing_budget: float = 1.0
    """Seconds for all batches, where nobody has asked for a number of them."""
    profile: bool = False
    """A longer look at the time of each line."""
    trace_directory: str | None = None
    """Where its trace is kept for other viewers."""
    digits: int = 3
    budget: float = 10.0
    large_constant: int = 1_000_000
    trace_only: bool = False
    rehearse: bool = True
    """The user's function may be run on real values to find out more."""
    diagnose: bool = True
    """False for functions that compile parts of themselves: their calls are kept, not traced."""
    compile: bool = True
    """False under `%%jitcheck`: the user's call runs without jit and nothing is compiled."""
    measure: bool = True
    """False in a run of ours: nothing is compared, timed or priced, and no failure is looked into."""
    what_if: WhatIfs = WhatIfs()


MOST_PATIENCE = 2.0


def patience() -> float:
    """How much longer things take on a machine that has more to do than it has cores: 1 to `MOST_PATIENCE`."""
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows does not tell
        return 1.0
    return min(MOST_PATIENCE, max(1.0, load / (os.cpu_count() or 1)))


@dataclass(frozen=True)
class CellSource:
    """The cell that a function comes from: `text` with its magic line, `body` without."""

    text: str = ""
    body: str = ""
    name: str | None = None
    id: str | None = None
    magic: str = ""
    calls: tuple[str, ...] = ()
    """Calls that stand on the magic line."""
