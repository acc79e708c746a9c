"""What is known of the notebook: the cell that runs, the last cell with a magic, the last exception."""

from __future__ import annotations

import ast
import re
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jitmagic.checking.request import Request, Run
from jitmagic.notebook.compilations import Compilations
from jitmagic.settings import Settings, Stage
from jitmagic.work import clock

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

    from jitmagic.checking.checker import Checker
    from jitmagic.checking.watching import Watching
    from jitmagic.panel import Panel
    from jitmagic.render import Report
    from jitmagic.report import Finding
    from jitmagic.silent.waiting import Waits
    from jitmagic.trial.verify import Verifier

say = print
"""As it is when jitmagic is loaded: what the user puts in its place later is told of the user's own words alone."""


@dataclass
class Running:
    """The cell that the shell is executing now."""

    source: str = ""
    id: str | None = None
    began: float = field(default_factory=clock)
    """By the clock of work."""
    tree: ast.Module | None = None
    run: Run | None = None
    """Set by the magic in this cell."""
    shown: DisplayHandle | None = None
    """Handle of the run's one display in this cell: progress first, then the report."""
    is_over: bool = False
    """Its report was made when its last value was about to be shown."""
    report: Report | None = None
    """What that display shows; None while there is only progress."""
    late: Report | None = None
    """About an error of this cell, to be told with what its functions have shown."""
    remade: tuple[Finding, ...] = ()
    """About places that have made compiled functions again and again."""
    news: list[Checker] = field(default_factory=list)
    postponed: list[tuple[Checker, Stage, Callable[[float], object]]] = field(default_factory=list)
    """What is to be compared and measured when the cell has ended; each step is given its seconds."""
    waits: Waits | None = None
    """Where the cell waits for the device."""
    compare_s: float = Settings.compare_budget
    """What is left of the time for runs of ours in a cell that works."""
    watching: Watching | None = None
    """What takes the functions of this cell as it binds them."""

    def place(self, targets: Sequence[str]) -> tuple[Any, ...]:
        """What stays the same when a cell runs again: its id, or in a terminal the functions it takes."""
        return (self.id,) if self.id is not None else tuple(targets)


class Notebook:
    """What is known of the notebook of one shell."""

    def __init__(self, shell: Any, request_of: Callable[[str], Request]) -> None:
        self.shell, self.request_of = shell, request_of
        self.running = Running()
        self.last: Run | None = None
        self.last_error: BaseException | None = None
        self.checkers: weakref.WeakSet[Checker] = weakref.WeakSet()
        """Of all the functions that are watched in this shell."""
        self.always = False
        self.sources: list[str] = []
        """Sources of the cells that ran, for what the notebook rebinds; the newest 200."""
        self.panels: list[Panel] = []
        """The newest panels of `-w`, which tell when a cell keeps the kernel busy."""
        self.compilations = Compilations(self.cell_number)

    def cell_number(self) -> int | None:
        """Number of the running cell, as in `Out[7]`; the shell's own count may be one ahead by now."""
        return getattr(self.shell.displayhook, "prompt_count", None)

    def cell_name(self, filename: str) -> str:
        """`Cell In[3]` where a cell was compiled under this name; empty for other files."""
        compiler = self.shell.compile
        if hasattr(compiler, "format_code_name"):
            return " ".join(compiler.format_code_name(filename) or ())
        # before IPython 8 the name has the number in it, or in a kernel is made of the text alone
        if numbered := re.match(r"<ipython-input-(\d+)-", filename):
            return f"Cell In[{numbered[1]}]"
        texts = enumerate(self.shell.history_manager.input_hist_raw)
        number = max((n for n, text in texts if compiler.get_code_name(text, text, n) == filename), default=0)
        return f"Cell In[{number}]" if number else ""

    def is_live(self) -> bool:
        """Displays can be updated in place."""
        return getattr(self.shell, "kernel", None) is not None

    def is_quiet(self) -> bool:
        """The last cell with a magic asked for no display."""
        return bool(self.last and self.last.request.quiet)

    def verifier(self, deadline: float) -> Verifier | None:
        """What proves corrections of the newest cell with a magic until a deadline."""
        return self.verifier_of(self.last, deadline)

    def verifier_of(self, run: Run | None, deadline: float) -> Verifier | None:
        """The same for the run of this cell, while that is the newest."""
        from jitmagic.checking.rerun import verifier_of

        if run is None or run is not self.last:
            return None
        return verifier_of(run, self.shell.user_ns, self.request_of, deadline, self.sources)
