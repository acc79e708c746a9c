"""What a magic line asks for, the cell that it stands in, and the cell that runs now."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jitmagic.options import JitOptions
from jitmagic.settings import CellSource, Settings

if TYPE_CHECKING:
    from jitmagic.checking.checker import Checker
    from jitmagic.report import FunctionReport, Report


@dataclass(frozen=True)
class Request:
    """What one magic line asks for."""

    kind: str
    """`jit` or `jitcheck`."""
    functions: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    options: JitOptions = JitOptions()
    dyn: str | None = None
    settings: Settings = Settings()
    off: bool = False
    quiet: bool = False
    give_back: bool = False
    store_in: str | None = None
    save: str | None = None
    compare: str | None = None
    """A saved report to compare the timings with."""
    fix: bool = False
    widget: bool = False


@dataclass
class Run:
    """One `%%jit` or `%%jitcheck` cell: what it asked for and what it defined."""

    request: Request
    source: CellSource
    targets: tuple[str, ...]
    checkers: dict[str, Checker] = field(default_factory=dict)
    earlier: dict[str, tuple[FunctionReport, str]] = field(default_factory=dict)
    """What an earlier run of the same functions gave, and what that run is called."""


@dataclass
class Running:
    """The cell that the shell is executing now."""

    source: str = ""
    id: str | None = None
    tree: ast.Module | None = None
    run: Run | None = None
    """Set by the magic in this cell."""
    shown: Any = None
    """Handle of the run's one display in this cell: progress first, then the report."""
    report: Report | None = None
    """What that display shows; None while there is only progress."""
    news: list[Checker] = field(default_factory=list)
    compiling: set[str] | None = None
    """Functions of the cell that compile something by themselves, once somebody has asked."""

    def place(self, targets: Sequence[str]) -> tuple[Any, ...]:
        """What stays the same when a cell runs again: its id, or in a terminal the functions it takes."""
        return (self.id,) if self.id is not None else tuple(targets)
