"""State that several functions share: who reads it, who writes it, as a picture and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitmagic.render.escape import brief, for_html, one_line
from jitmagic.render.parts import Para, Part, Phrase, Picture, Section, Table
from jitmagic.report import FunctionReport, State
from jitmagic.units import counted

MOST = 12
"""Functions and variables that are drawn."""

ROW, LEFT, RIGHT, WIDTH = 30, 190, 410, 600
"""Pixels: height of a row, where the functions end, where the variables begin, the whole."""

STYLE = (
    "text{font:13px ui-monospace,monospace;fill:#1f2328}.n{fill:#ffffff;stroke:#8c959f}"
    ".r{stroke:#0969da;stroke-dasharray:5 3}.w{stroke:#a40e26}path{fill:none;stroke-width:1.6}"
    ".rh{fill:#0969da}.wh{fill:#a40e26}.k{font:12px system-ui,sans-serif}.g{fill:#f6f8fa}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e6e6}.n{fill:#111111;stroke:#8c959f}.g{fill:#222222}"
    ".r{stroke:#79b8ff}.rh{fill:#79b8ff}.w{stroke:#ff8f86}.wh{fill:#ff8f86}}"
)
"""An image brings its own ground; browsers tell it the colour scheme of the page around it."""


@dataclass(frozen=True)
class VariableUse:
    """One function's part in one variable."""

    function: str
    path: str
    reads: bool
    writes: bool


def shared_state(functions: Sequence[FunctionReport]) -> Section | None:
    """Which functions read and write the variables that more than one of them has; None without such."""
    holders: dict[str, list[tuple[str, State]]] = {}
    for function in functions:
        for state in function.state:
            holders.setdefault(state.path, []).append((function.name, state))
    paths = [path for path, users in holders.items() if _matters(users)]
    if not paths:
        return None
    ranked = sorted(paths, key=lambda path: not any(state.written for _, state in holders[path]))
    uses = [_use(name, s) for path in ranked[:MOST] for name, s in holders[path]]
    names = list(dict.fromkeys(use.function for use in uses))[:MOST]
    uses = [use for use in uses if use.function in names]
    words = "; ".join(_words(use) for use in uses)
    parts: list[Part] = [
        Section((), (Picture(_draw(names, ranked[:MOST], uses), f"shared state: {words}"),), medium="html"),
        _table(ranked[:MOST], names, uses),
    ]
    if len(paths) > MOST:
        parts.append(Para((Phrase(f"… {counted(len(paths) - MOST, 'variable')} more"),)))
    count = f" {counted(len(paths), 'variable')} of {counted(len(names), 'function')}"
    return Section((Phrase("shared state:", "strong"), Phrase(count)), tuple(parts), fold=True)


def _matters(users: Sequence[tuple[str, State]]) -> bool:
    """More than one function has it, and it is no value that is frozen in all of them."""
    several = len({name for name, _ in users}) > 1
    return several and any(state.role == "dynamic" or state.written for _, state in users)


def _use(name: str, state: State) -> VariableUse:
    return VariableUse(name, state.path, reads=bool(state.lines) or not state.written, writes=state.written)


def _words(use: VariableUse) -> str:
    how = "reads and writes" if use.reads and use.writes else "writes" if use.writes else "reads"
    return f"{use.function} {how} {use.path}"


def _table(paths: Sequence[str], names: Sequence[str], uses: Sequence[VariableUse]) -> Table:
    at = {(use.path, use.function): use for use in uses}
    rows = []
    for path in paths:
        cells = [at.get((path, name)) for name in names]
        words = [_words(use).split(" ", 1)[1].removesuffix(f" {path}") if use else "" for use in cells]
        rows.append(((Phrase(brief(path, 40), "code"),), *((Phrase(word),) for word in words)))
    return Table(("variable", *(brief(name, 24) for name in names)), tuple(rows))


def _draw(names: Sequence[str], paths: Sequence[str], uses: Sequence[VariableUse]) -> str:
    """Functions at the left, variables at the right; a dashed arrow is read, a full one is written."""
    height = ROW * max(len(names), len(paths)) + ROW + 12
    tops = _tops(len(names), len(paths))
    left = {name: y for name, y in zip(names, tops[0], strict=True)}
    right = {path: y for path, y in zip(paths, tops[1], strict=True)}
    arrows = [arrow for use in uses for arrow in _arrows(use, left[use.function], right[use.path])]
    boxes = [_box(10, y, LEFT - 10, name) for name, y in left.items()]
    boxes += [_box(RIGHT, y, WIDTH - RIGHT - 10, path) for path, y in right.items()]
    legend = (
        f'<path class="r" d="M12 {height - 14}h30"/><text class="k" x="48" y="{height - 10}">reads</text>'
        f'<path class="w" d="M112 {height - 14}h30"/><text class="k" x="148" y="{height - 10}">writes</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
        f'<style>{STYLE}</style><rect width="{WIDTH}" height="{height}" rx="4" class="g"/>'
        f"{''.join(arrows)}{''.join(boxes)}{legend}</svg>"
    )


def _tops(left: int, right: int) -> tuple[list[float], list[float]]:
    """Middles of the boxes, the shorter column centred."""
    most = max(left, right)

    def column(count: int) -> list[float]:
        first = 8 + (most - count) * ROW / 2 + ROW / 2
        return [first + i * ROW for i in range(count)]

    return column(left), column(right)


def _box(x: float, middle: float, width: float, text: str) -> str:
    label = for_html(one_line(brief(text, 22)))
    return (
        f'<rect class="n" x="{x}" y="{middle - 11:g}" width="{width}" height="22" rx="4"/>'
        f'<text x="{x + 8}" y="{middle + 4:g}">{label}</text>'
    )


def _arrows(use: VariableUse, left: float, right: float) -> list[str]:
    shift = 4 if use.reads and use.writes else 0
    out = []
    if use.reads:  # from the variable to the function
        a, b = right - shift, left - shift
        out.append(f'<path class="r" d="M{RIGHT} {a:g}L{LEFT + 8} {b:g}"/>{_head(LEFT, b, 1, "rh")}')
    if use.writes:
        a, b = left + shift, right + shift
        out.append(f'<path class="w" d="M{LEFT} {a:g}L{RIGHT - 8} {b:g}"/>{_head(RIGHT, b, -1, "wh")}')
    return out


def _head(x: float, y: float, towards: int, kind: str) -> str:
    return f'<polygon class="{kind}" points="{x},{y:g} {x + 9 * towards},{y - 4:g} {x + 9 * towards},{y + 4:g}"/>'
