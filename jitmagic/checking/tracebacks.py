"""A failing call raises as usual; what is shown of it is the diagnosis, not pages of internal frames."""

from __future__ import annotations

import contextlib
import dis
import functools
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from types import CodeType, FrameType

from jitmagic.kinds import OWN_ERROR
from jitmagic.report import Finding
from jitmagic.state.values import is_user_file
from jitmagic.tracing.locate import is_raise, locate
from jitmagic.trial import quiet

FRAMES = 16
"""Frames that are shown; of more, the first and the last."""

name_of_cell: list[Callable[[str], str]] = []
"""How the notebook names the cell of this file, `Cell In[3]`; empty for other files."""

CALLERS: set[CodeType] = set()
"""Code of ours that does hardly more than to call the user's function."""

_shortened: list[BaseException] = []
"""The last one in the cell that runs."""

OF_JAX = "JAX has removed its internal frames"
"""In the note that jax adds to what it shortened itself."""


def shorten(
    exc: BaseException,
    findings: Callable[[], Sequence[Finding]],
    reported: Callable[[], bool] = lambda: False,
) -> None:
    """Have IPython show this exception in a few lines, until the cell has ended.

    The finding of the expression that raised it speaks for it. Where the report is shown too (`reported`), the
    words are the exception's own, as those of the finding stand there.
    """

    @functools.cache  # IPython 9 asks twice: to show it, and to keep it
    def render() -> list[str]:
        told: Sequence[Finding] = ()
        with contextlib.suppress(Exception):  # the error itself is shown in any case
            told = findings()
        return _lines(exc, told, reported())

    if quiet.is_held():  # nobody sees it, and it would hold itself
        return
    end_of_cell()  # those before were caught
    with contextlib.suppress(Exception):  # an exception that refuses attributes is shown as it is
        exc._render_traceback_ = render  # type: ignore[attr-defined]
        _shortened.append(exc)


def end_of_cell() -> None:
    """From now on `%tb` shows whole tracebacks."""
    while _shortened:
        with contextlib.suppress(AttributeError):
            del _shortened.pop()._render_traceback_  # type: ignore[attr-defined]


def may_be_caught() -> bool:
    """The cell, or a function that it has called, has a handler around the call that it makes now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code, at = frame.f_code, frame.f_lasti
        if is_user_file(code.co_filename):
            if any(e.start <= at < e.end for e in getattr(dis.Bytecode(code), "exception_entries", ())):
                return True
            if code.co_name.startswith(("<module>", "<cell line")):  # as IPython 7 calls a cell
                return False
        frame = frame.f_back
    return False


def end_where_called(exc: BaseException, own: CodeType | None) -> None:
    """Python raises in the caller where arguments don't fit: without the frame of ours (of this code) that has called
    the user's function, the last frame is that of what wanted it called."""
    trace = exc.__traceback__
    while trace is not None and (following := trace.tb_next) is not None:
        if following.tb_next is None and following.tb_frame.f_code is own:
            trace.tb_next = None
        trace = following


def is_ours(exc: BaseException) -> bool:
    """A step of ours has failed: neither the user's code nor jax has raised it, nor we on purpose."""
    trace, ours, last = exc.__traceback__, False, None
    while trace is not None:
        code = trace.tb_frame.f_code
        room = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        of_others = room in ("jax", "jaxlib") or is_user_file(code.co_filename)
        told = room == "jitmagic" and is_raise(code, trace.tb_lasti)
        ours = not told and (room == "jitmagic" or ours and not of_others)
        last, trace = code, trace.tb_next
    # Python raises in the caller where arguments don't fit
    return ours and not (isinstance(exc, TypeError) and last in CALLERS)


def _lines(exc: BaseException, findings: Sequence[Finding], reported: bool) -> list[str]:
    """The user's own frames, then the error in its own words, or in those of its finding."""
    out = ["Traceback (your own frames; %tb shows all):", *_frames(exc)]
    first = _of(exc, [f for f in findings if f.severity == "error"])
    if first is None or first.kind == OWN_ERROR:
        notes = [note for note in getattr(exc, "__notes__", ()) if OF_JAX not in note]
        return [*out, _named(exc, str(exc).strip()), *notes]
    if reported:
        own = str(exc).strip().split("\n", 1)[0]
        return [*out, _named(exc, own), f"The report tells why, and what to do: error[{first.code}]"]
    return [*out, _named(exc, first.message), *_advice(first)]


def _of(exc: BaseException, found: Sequence[Finding]) -> Finding | None:
    """The finding of the expression that raised it, else of its line, else the first."""
    place = None
    with contextlib.suppress(Exception):  # the error itself is shown in any case
        place = locate(exc).where

    def distance(finding: Finding) -> int:
        span = finding.span
        if place is None or span is None or span.line != place.line:
            return 2
        return int(span.column != place.column)

    return min(found, key=distance, default=None)


def _named(exc: BaseException, words: str) -> str:
    name = type(exc).__name__
    return f"{name}: {words}" if words else name


def _frames(exc: BaseException) -> list[str]:
    """The frames of the user's own code, each with its line."""
    frames = [f for f in traceback.extract_tb(exc.__traceback__) if is_user_file(f.filename)]
    told = [
        f"  {_place(f.filename)}line {f.lineno}, in {_function(f.name)}"
        + (f"\n    {f.line}" if f.line else "")
        for f in frames
    ]
    if len(told) <= FRAMES:
        return told
    half = FRAMES // 2
    return [*told[:half], f"  … {len(told) - 2 * half} more", *told[-half:]]


def _function(name: str) -> str:
    """The name of a frame's function; IPython before 8.6 calls a cell `<cell line: 1>`."""
    return "<module>" if name.startswith("<cell line") else name


def _place(filename: str) -> str:
    """`Cell In[3], ` or the name of a file; nothing for code that has no name of its own."""
    known = name_of_cell[-1](filename) if name_of_cell else ""
    if known:
        return f"{known}, "
    return "" if filename.startswith("<") else f"{os.path.basename(filename)}, "


def _advice(finding: Finding) -> list[str]:
    """The proved fix, else the help."""
    fix = next((x for x in finding.fixes if x.verified), None)
    if fix is not None:
        return [f"tested fix: {fix.title}"]
    return [f"help: {finding.help}"] if finding.help else []
