"""A report for people: plain text and HTML, made from one tree of parts, and the file formats.

Nothing here knows more than the report it is given; see `parts` for the tree, `build` for what is said.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from jitmagic.render import html as _html
from jitmagic.render import text as _text
from jitmagic.render.build import actions, build
from jitmagic.render.parts import Document
from jitmagic.render.payload import payload
from jitmagic.report import ReportData

__all__ = [
    "MIME_TYPE",
    "Report",
    "html",
    "in_terminal",
    "load",
    "mime_bundle",
    "on_screen",
    "payload",
    "save",
    "text",
]

MIME_TYPE = "application/vnd.jitmagic.v1+json"


def text(report: ReportData, *, width: int = 88, color: bool = False) -> str:
    """The whole report as plain text of at most `width` columns, with ANSI colours if `color`."""
    return _text.render(build(report), width=width, color=color)


def html(report: ReportData) -> str:
    """The report as an HTML fragment with inline styles only: no scripts, ids or outside links."""
    return _html.render(build(report))


def in_terminal() -> bool:
    """What is printed is seen at once, and stays."""
    return is_terminal(sys.stdout)


def is_terminal(stream: object) -> bool:
    """As it says itself; what a notebook has put in its place may have no more than `write` and `flush`."""
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except Exception:
        return False


def _screen() -> tuple[int, bool]:
    """Columns for text, and whether it may have colours: of the terminal, where IPython shows it in one."""
    if not in_terminal():
        return 88, False
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    plain = shell is None or str(shell.colors).lower() == "nocolor" or "NO_COLOR" in os.environ
    return shutil.get_terminal_size().columns, not plain


def on_screen(report: ReportData, part: Literal["all", "verdicts", "rest"] = "all") -> str:
    """The report as text for the terminal, or a part of it."""
    width, color = _screen()
    document = build(report)
    if part == "verdicts":
        document = Document(document.verdicts, ())
    elif part == "rest":
        document = replace(document, verdicts=(), parts=(*actions(report), *document.parts))
    return _text.render(document, width=width, color=color)


def mime_bundle(report: ReportData) -> dict[str, Any]:
    """The report in all forms that a front end may show."""
    document, (width, color) = build(report), _screen()
    return {
        "text/plain": _text.render(document, width=width, color=color),
        "text/html": _html.with_text(_html.render(document), _text.render(document)),
        MIME_TYPE: payload(report),
    }


@dataclass(frozen=True)
class Report(ReportData):
    """The result of a check; renders as plain text, HTML and JSON."""

    def to_text(self, *, width: int = 88, color: bool = False) -> str:
        """The whole report as plain text of `width` columns."""
        return text(self, width=width, color=color)

    def to_html(self) -> str:
        """The whole report as an HTML fragment without scripts, ids or outside links."""
        return html(self)

    def __str__(self) -> str:
        return text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(on_screen(self))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return mime_bundle(self)


def save(report: ReportData, path: str) -> None:
    """Write the report to `path`, as its suffix says: `.html`, `.json` or `.txt`.

    Raises ValueError for another suffix and OSError where the file cannot be written."""
    target = Path(path).expanduser()
    match target.suffix.lower():
        case ".html":
            names = ", ".join(f.name for f in report.functions) or "report"
            content = _html.page(html(report), f"jitmagic: {names}")
        case ".json":
            content = report.to_json(indent=2) + "\n"
        case ".txt":
            content = text(report) + "\n"
        case other:
            raise ValueError(f"cannot save a report as {other or path!r}: use .html, .json or .txt")
    # a lone surrogate in the user's source becomes the escape that JSON has for it
    target.write_bytes(content.encode("utf-8", "backslashreplace"))


def load(path: str) -> Report:
    """The report that `save` wrote as `.json`. Raises OSError or ValueError where there is none."""
    import json

    try:
        data = json.loads(Path(path).expanduser().read_text("utf-8"))
    except json.JSONDecodeError:
        raise ValueError("not a saved report: it holds no JSON") from None
    if not isinstance(data, dict):
        raise ValueError("not a saved report")
    try:
        return Report.from_dict(data)
    except (TypeError, KeyError, AttributeError):
        raise ValueError("not a saved report") from None
