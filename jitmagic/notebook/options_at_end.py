"""What a magic's options ask for at the end of its cell: `-o`, `-v`, `--save`, `--fix`, `-w`."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import IPython.display

from jitmagic.checking.request import Request, Run
from jitmagic.notebook import reports
from jitmagic.notebook.running import Notebook, say

if TYPE_CHECKING:
    from jitmagic.render import Report

TARGET = "jitmagic"
"""Name of the comm that the in-editor layer listens on."""


def keep(shell: Any, report: Report, request: Request) -> None:
    """`-v` and `--save`."""
    if request.store_in:
        shell.user_ns[request.store_in] = report
    if request.save:
        from jitmagic.render import save

        save(report, request.save)


def hand_out(notebook: Notebook, run: Run, result: Any) -> None:
    """What the cell's magic asks for besides the display: `-o`, `-v`, `--save`, `--fix`."""
    request = run.request
    if not (request.give_back or request.store_in or request.save or request.fix):
        return
    report = reports.of_notebook(notebook)
    keep(notebook.shell, report, request)
    if request.fix:
        put_below(notebook, run, report, bool(result.error_in_exec))
    if request.give_back:
        result.result = report
        with notebook.shell.display_trap:
            notebook.shell.displayhook(report)


def put_below(notebook: Notebook, run: Run, report: Report, failed: bool = False) -> None:
    """`--fix`: the corrected cell, without that option, in a new cell below."""
    from jitmagic.correction import corrected

    fixes = [x for f in report.findings if f.severity != "note" for x in f.fixes if x.verified]
    source = run.source.text
    texts = [corrected(source, x) for x in sorted(fixes, key=lambda x: x.cell is None)]
    text = next((t for t in texts if t != source), None)
    if text is not None:
        text = re.sub(r"(?m)^(%%?jit\w*.*?) --fix(?=\s|$)", r"\1", text)
        notebook.shell.set_next_input(text)
        if failed and notebook.is_live() and not _insert_below(run.source.id, source, text):
            _show_to_copy(text)


def _insert_below(cell_id: str | None, source: str, text: str) -> bool:
    """Have the in-editor layer (lab/src/requests.ts) put `text` into a new cell below the one of this id and source (a
    duplicated notebook has the same ids); False where nobody can hear that: no kernel, one without comms, Colab.

    `set_next_input` does so by itself, but JupyterLab hears it only where the cell has not failed."""
    if "google.colab" in sys.modules:
        return False
    try:
        from comm import create_comm

        asked = {"cell": cell_id, "source": source, "text": text}
        create_comm(target_name=TARGET, data={"insert_below": asked})
    except Exception:
        return False
    return True


def _show_to_copy(text: str) -> None:
    from jitmagic.render.html import to_copy

    told = "the corrected cell, to copy:"
    IPython.display.display(
        {"text/plain": f"{told}\n\n{text}", "text/html": f"<div>{told}</div>{to_copy(text)}"}, raw=True
    )


def show_panels(notebook: Notebook, run: Run) -> None:
    """`-w`: a panel, in a display of its own, for each function that was called."""
    if not run.request.widget:
        return
    from jitmagic.panel import Panel

    called = [c for c in run.checkers.values() if c.seen.samples]
    for checker in called:
        panel = Panel(checker)
        notebook.panels = [*notebook.panels[-7:], panel]
        IPython.display.display(panel.widget)
    if not called:
        say("the panel needs a call: put one in the cell or on the magic line, as in %%jit -w f(x)")
