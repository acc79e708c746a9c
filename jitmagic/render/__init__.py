"""A report for people: plain text and HTML, made from one tree of parts, and the file formats.

Nothing here knows more than the `Report` it is given; see `parts` for the tree, `build` for what is said.
"""

from __future__ import annotations

from pathlib import Path

from jitmagic.render import html as _html
from jitmagic.render import text as _text
from jitmagic.render.build import build
from jitmagic.render.payload import payload
from jitmagic.report import Report

__all__ = ["html", "payload", "save", "text"]


def text(report: Report, *, width: int = 88, color: bool = False) -> str:
    """The whole report as plain text of at most `width` columns, with ANSI colours if `color`."""
    return _text.render(build(report), width=width, color=color)


def html(report: Report) -> str:
    """The report as an HTML fragment with inline styles only: no scripts, ids or outside links."""
    return _html.render(build(report))


def save(report: Report, path: str) -> None:
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
