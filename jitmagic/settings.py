"""What a check may do, and the cell that it is about. Imports nothing, so that loading stays light."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Stage = Literal["looking closer", "comparing", "counting costs", "asking what if", "timing"]
"""What is done when a call is over: inside of it the user's clock runs."""


@dataclass(frozen=True)
class WhatIfs:
    """Which transformed forms of a function are asked for: argument names, and a number of devices."""

    vmap: tuple[str, ...] = ()
    grad: tuple[str, ...] = ()
    devices: int | None = None

    def __bool__(self) -> bool:
        return bool(self.vmap or self.grad or self.devices)

    @property
    def named(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The flags that take arguments, each with those that it was given."""
        return ("--vmap", self.vmap), ("--grad", self.grad)


@dataclass(frozen=True)
class Settings:
    """What a check may do and where its thresholds lie. Budgets in seconds of work, `large_constant` in bytes."""

    time: bool = True
    loops: int | None = None
    repeats: int = 7
    timing_budget: float = 1.0
    """For all timing of a cell, where nobody has asked for a number of batches."""
    profile: bool = False
    """A longer look at the time of each line."""
    trace_directory: str | None = None
    """Where its trace is kept for other viewers."""
    digits: int = 3
    budget: float = 10.0
    """For what looks into a problem, the search for corrections above all."""
    compare_budget: float = 2.0
    """For the runs without jit of a cell that works."""
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
    long_programs: bool = True
    """False in a run of ours, where the cell as it is has none: what has a long loop written out is not compiled."""
    what_if: WhatIfs = WhatIfs()
    rerun: tuple[str, ...] = ()
    """Patterns of full names (`mylib.*`) of what may be called and changed in runs of ours too; `*`: everything."""

    def seconds(self, stage: Stage, functions: int = 1) -> float:
        """How long a stage behind a call may take for one of so many functions, who share what nobody asked for."""
        if stage == "comparing":
            return self.compare_budget
        if stage == "timing" and self.timing_budget == Settings.timing_budget:
            return self.timing_budget / functions
        return self.timing_budget if stage == "timing" else self.budget


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
    before_fix: str | None = None
    """The body from before, where a correction of ours has made it what it is."""
