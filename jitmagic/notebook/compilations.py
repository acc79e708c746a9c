"""What jax traces and compiles in this notebook, heard from the moment that jax is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from jitmagic.notebook.arrival import Arrival

if TYPE_CHECKING:
    from jitmagic.render import Report
    from jitmagic.silent.events import Watcher
    from jitmagic.tracing.ledger import Ledger


class Compilations:
    """Listens to jax."""

    def __init__(self, cell_number: Callable[[], int | None]) -> None:
        self._cell_number = cell_number
        self.watcher: Watcher | None = None
        """Hears which functions jax compiles, from the first cell with a magic on."""
        self.ledger: Ledger | None = None
        """Every trace and compilation since jax was imported, by cell."""
        self.arrival = Arrival("jax", self.listen)

    def listen(self) -> None:
        """Listen to every compilation, where jax is there."""
        if self.ledger is not None or "jax" not in sys.modules:
            return
        from jitmagic.tracing.ledger import Ledger
        from jitmagic.trial import quiet

        self.ledger = Ledger(self._cell_number, quiet.is_ours)
        self.ledger.start()

    def listen_anew(self) -> None:
        """Note what jax compiles from now on, for functions that are jitted anew each time."""
        import jax  # noqa: F401  the timeline starts with it

        from jitmagic.silent.events import Watcher

        self.listen()
        if self.watcher is None:
            self.watcher = Watcher()
        self.watcher.clear()
        self.watcher.start()

    def timeline(self) -> Report:
        """Every trace and compilation of the session, as a report. Raises UsageError before jax is imported."""
        from jitmagic.checking import conclusions

        self.listen()
        if self.ledger is None:
            raise UsageError("--session: jax is not imported yet, so nothing was traced or compiled")
        return replace(conclusions.assemble([]), session=self.ledger.session())

    def last_s(self, name: str, stage: str) -> float | None:
        """Seconds that a stage of this function took the last time."""
        last: float | None = self.ledger.last(name, stage) if self.ledger is not None else None
        return last

    def stop(self) -> None:
        """Listen no more."""
        self.arrival.stop()
        for listener in (self.watcher, self.ledger):
            if listener is not None:
                listener.stop()
