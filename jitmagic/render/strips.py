"""Small pictures inside a table's cell: stretches and points on a line, as SVG and as characters.

The SVG travels as an image, because an untrusted notebook drops an `svg` element. It holds shapes alone; a
front end that shows no images leaves its words, and the table's own text says the same in numbers.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

from jitmagic.render.escape import for_html, one_line

WIDTH, HEIGHT = 200, 14
"""Pixels of a strip."""

INK = "#80868b"
"""Lines and points: an image does not know the page's colours, so one that stands out from light and dark."""

COLUMNS = 18
"""Characters of a strip."""

LIGHT = {"error": "#d9534f", "warning": "#b8860b", "note": "#5b8def", "ok": "#2e9e57", "plain": "#8a8f96"}
"""Colours that stand out from a white and from a black background."""


@dataclass(frozen=True)
class Stretch:
    """From `start` to `end`, 0 to 1; `height` is the part of the strip's that it fills."""

    start: float
    end: float
    tone: str = "note"
    height: float = 0.6


@dataclass(frozen=True)
class Strip:
    """Stretches, then points and at most one mark (a median), on a line from 0 to 1; `words` say it in short."""

    stretches: tuple[Stretch, ...] = ()
    points: tuple[float, ...] = ()
    mark: float | None = None
    words: str = ""


def as_html(strip: Strip) -> str:
    """An image with the drawing in it."""
    shapes = [_line()]
    shapes += [_rectangle(s) for s in strip.stretches]
    shapes += [_point(p) for p in strip.points]
    if strip.mark is not None:
        x = _x(strip.mark)
        shapes.append(f'<line x1="{x}" y1="1" x2="{x}" y2="{HEIGHT - 1}" stroke="{INK}" stroke-width="2"/>')
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(shapes)}</svg>'
    data = base64.b64encode(drawing.encode()).decode()
    words = for_html(one_line(strip.words))
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{words}" style="vertical-align:middle">'


def as_text(strip: Strip) -> str:
    """The same in block characters."""
    cells = ["·"] * COLUMNS
    for stretch in strip.stretches:
        for i in range(
            _column(stretch.start), max(_column(stretch.end, last=True), _column(stretch.start)) + 1
        ):
            cells[i] = "█" if stretch.height > 0.4 else "-"
    for point in strip.points:
        if cells[_column(point)] != "█":
            cells[_column(point)] = "•"
    if strip.mark is not None:
        cells[_column(strip.mark)] = "┃"
    return "".join(cells)


def _x(place: float) -> float:
    return round(1 + min(max(place, 0.0), 1.0) * (WIDTH - 2), 1)


def _column(place: float, last: bool = False) -> int:
    exact = min(max(place, 0.0), 1.0) * COLUMNS
    at = int(exact)
    if last and at == exact:
        at -= 1
    return min(max(at, 0), COLUMNS - 1)


def _line() -> str:
    y = HEIGHT / 2
    return f'<line x1="1" y1="{y:g}" x2="{WIDTH - 1}" y2="{y:g}" stroke="{INK}" stroke-opacity="0.25"/>'


def _rectangle(stretch: Stretch) -> str:
    left, right = _x(stretch.start), _x(stretch.end)
    height = round(HEIGHT * min(max(stretch.height, 0.1), 1.0), 1)
    return (
        f'<rect x="{left}" y="{round((HEIGHT - height) / 2, 1)}" width="{max(round(right - left, 1), 1.5)}" '
        f'height="{height}" rx="1" fill="{LIGHT.get(stretch.tone, LIGHT["plain"])}"/>'
    )


def _point(place: float) -> str:
    return f'<circle cx="{_x(place)}" cy="{HEIGHT / 2:g}" r="2" fill="{INK}" fill-opacity="0.7"/>'
