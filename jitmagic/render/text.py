"""The tree of parts as plain text, complete in itself; with ANSI colours where a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jitmagic.render.escape import columns, fit, one_line
from jitmagic.render.parts import (
    Bar,
    Buttons,
    Cell,
    Diff,
    Document,
    Inline,
    Listing,
    Para,
    Part,
    Phrase,
    Picture,
    Row,
    Section,
    Table,
    Tone,
    VerdictLine,
    crop,
    runs,
    segments,
    shown,
)
from jitmagic.render.strips import Strip, as_text

MIN_WIDTH = 40
STEP = "  "
NAMES = 24
"""Columns up to which the verdicts' names are aligned."""

BAR = 12
"""Columns of a full bar."""

ENOUGH = 24
"""Columns that any cell of a table can be broken to."""

DEEP = 8
"""Columns by which the rest of a long line of a diff is moved in."""

ANSI: dict[Tone, str] = {
    "strong": "1",
    "dim": "2",
    "code": "36",
    "ok": "32",
    "error": "1;31",
    "warning": "33",
    "note": "34",
}

Piece = tuple[str, Tone]
Line = list[Piece]


def render(document: Document, *, width: int = 88, color: bool = False) -> str:
    """`document` in at most `width` columns (at least 40), without a newline at the end."""
    blocks = _blocks(document, max(width, MIN_WIDTH))
    return "\n\n".join("\n".join(_paint(line, color) for line in block) for block in blocks if block)


def _blocks(document: Document, width: int) -> Iterator[list[Line]]:
    names = max((columns(_head(v)) for v in document.verdicts), default=0)
    yield [line for verdict in document.verdicts for line in _verdict(verdict, min(names, NAMES), width)]
    yield from (_part(part, width) for part in document.parts)
    yield wrap(document.foot, width)


def _paint(line: Line, color: bool) -> str:
    text = "".join(text for text, _ in line).rstrip()
    if not color:
        return text
    left, painted = len(text), []
    for piece, tone in line:
        kept = piece[:left]
        left -= len(kept)
        painted.append(f"\x1b[{ANSI[tone]}m{kept}\x1b[0m" if tone in ANSI and kept.strip() else kept)
    return "".join(painted)


def _head(verdict: VerdictLine) -> str:
    return f"{verdict.sign} {one_line(verdict.name)}"


def _verdict(verdict: VerdictLine, names: int, width: int) -> list[Line]:
    head = _head(verdict)
    pad = " " * max(names - columns(head), 0)
    room = width - columns(head + pad) - 2
    if room < width // 2:
        lines = _fill([(head, verdict.tone)], width, 2)
        return [*lines, *_indented(wrap(verdict.runs, width - 4), "    ")]
    first, *rest = wrap(verdict.runs, room) or [[]]
    hang = " " * (width - room)
    return [[(head, verdict.tone), (f"{pad}  ", "plain"), *first], *_indented(rest, hang)]


def _part(part: Part, width: int) -> list[Line]:
    match part:
        case Para():
            return _para(part, width)
        case Section():
            return _section(part, width)
        case Listing():
            return _listing(part, width)
        case Diff():
            return _diff(part, width)
        case Table():
            return _table(part, width)
        case Picture():
            return wrap(runs(part.words), width)
        case Buttons():
            return []


def _para(part: Para, width: int) -> list[Line]:
    if not part.label:
        return wrap(part.runs, width)
    label = "-" if part.label == "-" else f"{part.label}:"
    return wrap((Phrase(label, "strong"), Phrase(" "), *part.runs), width, hang=2)


def _section(part: Section, width: int) -> list[Line]:
    if part.medium == "html":
        return []
    lines = wrap(part.title, width, hang=2)
    for child in part.parts:
        apart: list[Line] = [[]] if isinstance(child, Section) and child.tone != "plain" else []
        lines += apart + _indented(_part(child, width - len(STEP)))
    return lines


def _indented(lines: Iterable[Line], by: str = STEP) -> list[Line]:
    return [[(by, "plain"), *line] if line else line for line in lines]


def _listing(part: Listing, width: int) -> list[Line]:
    if not part.gutter:
        return [[(STEP, "plain"), (crop(shown(row), width - 2).text.rstrip(), "plain")] for row in part.rows]
    digits = max((len(str(row.number)) for row in part.rows if row.number is not None), default=1)
    return [line for row in part.rows for line in _row(row, digits, width)]


def _row(row: Row, digits: int, width: int) -> list[Line]:
    number = "" if row.number is None else str(row.number)
    row = crop(shown(row), width - digits - 3)
    lines: list[Line] = [[(f"{number:>{digits}} | ", "dim"), (row.text, "dim" if row.around else "plain")]]
    if row.marks:
        lines.append([(f"{'':>{digits}} | ", "dim"), *(_carets(*piece) for piece in segments(row))])
    return lines


def _carets(text: str, tone: Tone | None) -> Piece:
    return ("^" if tone else " ") * columns(text), tone or "plain"


def _diff(part: Diff, width: int) -> list[Line]:
    tones: dict[str, Tone] = {"+": "ok", "-": "error"}
    lines: list[Line] = []
    for line in part.lines:
        piece = (shown(Row(None, line)).text, tones.get(line[:1], "plain"))
        lines.append(_append(piece, [], lines, width - len(STEP), DEEP))
    return _indented(lines)


def _table(part: Table, width: int) -> list[Line]:
    head = tuple((Phrase(name, "dim"),) for name in part.head)
    grid = [[_pieces(_cell(cell), ticks=False) for cell in row] for row in (head, *part.rows)]
    used = [i for i in range(len(part.head)) if any(grid_row[i] for grid_row in grid[1:])]
    for spare in part.spare:
        if sum(min(max(_columns(row[i]) for row in grid), ENOUGH) + 2 for i in used) > width + 2:
            used = [i for i in used if i != spare]
    widest = [max(_columns(row[i]) for row in grid) for i in used]
    least = [max(_columns(word) for row in grid for word in ([], *_words(row[i]))) for i in used]
    widths = _widths(widest, least, width)
    lines: list[Line] = []
    for row in grid:
        cells = [_fill(row[i], w, 0) for i, w in zip(used, widths, strict=True)]
        lines += _beside(cells, widths, [i in part.right for i in used])
    return lines


def _widths(widest: list[int], least: list[int], width: int) -> list[int]:
    """Column widths: as wide as the contents, then the widest cut down until a row fits; first those that can
    be broken between words, whose longest is `least`."""
    widths = list(widest)
    room = max(width - 2 * (len(widths) - 1), len(widths))
    while sum(widths) > room:
        loose = [i for i, w in enumerate(widths) if w > least[i]] or [
            i for i, w in enumerate(widths) if w > 1
        ]
        widths[max(loose, key=lambda i: widths[i])] -= 1
    return widths


def _beside(cells: list[list[Line]], widths: list[int], right: list[bool]) -> list[Line]:
    lines: list[Line] = []
    for i in range(max(map(len, cells), default=0)):
        line: Line = []
        for cell, width, to_right in zip(cells, widths, right, strict=True):
            text = cell[i] if i < len(cell) else []
            pad: Piece = (" " * (width - _columns(text)), "plain")
            line += [("  ", "plain")] if line else []
            line += [pad, *text] if to_right else [*text, pad]
        lines.append(line)
    return lines


def _cell(cell: Cell) -> Inline:
    match cell:
        case Bar():
            return (Phrase(bar(cell.share), cell.tone),)
        case Strip():
            return (Phrase(as_text(cell)),)
        case _:
            return cell


def bar(share: float, width: int = BAR) -> str:
    """A bar of block characters, in eighths of a column; a share above 0 always shows something."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    eighths = max(eighths, 1) if share > 0 else 0
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]


def wrap(inline: Inline, width: int, hang: int = 0) -> list[Line]:
    """`inline` in lines of at most `width` columns, broken at spaces, the later ones indented by `hang`."""
    return _fill(_pieces(inline), width, hang)


def _fill(pieces: Line, width: int, hang: int) -> list[Line]:
    lines: list[Line] = []
    line: Line = []
    for word in _words(pieces):
        if line and _columns(line) + 1 + _columns(word) > width:
            lines.append(line)
            line = []
        line += [(" ", "plain")] if line else [(" " * hang, "plain")] if lines and hang else []
        for piece in word:
            line = _append(piece, line, lines, width, hang)
    return [*lines, line] if line else lines


def _append(piece: Piece, line: Line, lines: list[Line], width: int, hang: int) -> Line:
    """`piece` after `line`, broken where it is longer than a line; full lines go to `lines`."""
    text, tone = piece
    while columns(text) > (room := width - _columns(line)):
        count = fit(text, room)
        if count == 0 and _columns(line) <= hang:
            count = 1  # a wide character in a column of one
        lines.append([*line, (text[:count], tone)])
        line, text = [(" " * hang, "plain")] if hang else [], text[count:]
    return [*line, (text, tone)] if text else line


def _words(pieces: Line) -> Iterator[Line]:
    word: Line = []
    for text, tone in pieces:
        for i, token in enumerate(text.split(" ")):
            if i and word:
                yield word
                word = []
            if token:
                word.append((token, tone))
    if word:
        yield word


def _columns(line: Line) -> int:
    return sum(columns(text) for text, _ in line)


def _pieces(inline: Inline, ticks: bool = True) -> Line:
    """Each run on one line, made visible, its outer blanks kept as one space; code between backticks."""
    pieces: Line = []
    for run in inline:
        text = one_line(run.text)
        if text and ticks and run.tone == "code":
            text = f"`{text}`"
        head = " " if run.text[:1].isspace() else ""
        tail = " " if text and run.text[-1:].isspace() else ""
        if head + text + tail:
            pieces.append((head + text + tail, run.tone))
    return pieces
