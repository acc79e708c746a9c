"""The cell that the shell is executing now."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitmagic.checking.checker import Checker
    from jitmagic.checking.request import Run
    from jitmagic.checking.watching import Watching
    from jitmagic.render import Report


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
    watching: Watching | None = None
    """What takes the functions of this cell as it binds them."""

    def place(self, targets: Sequence[str]) -> tuple[Any, ...]:
        """What stays the same when a cell runs again: its id, or in a terminal the functions it takes."""
        return (self.id,) if self.id is not None else tuple(targets)
