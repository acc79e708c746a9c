"""What the panel says, as HTML.

Two things a kernel can't do, writing into a cell and copying, are HTML buttons that the in-editor layer shows and
serves (lab/src/panel.ts); without it the same text can be selected.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from jitmagic.correction import corrected
from jitmagic.options import JitOptions
from jitmagic.render import Report, functions
from jitmagic.render.html import EDGES, color, to_copy
from jitmagic.render.parts import Tone
from jitmagic.report import Fix, FunctionReport
from jitmagic.settings import CellSource
from jitmagic.units import scaled, times


def verdict(report: Report) -> tuple[str, Tone]:
    """How the function fares with these settings."""
    [function] = report.functions
    if function.verdict in ("fails", "wrong"):
        words = "".join(run.text for run in functions.verdict(function, report.findings).runs)
        return f"✗ {words}", "error"
    return _traces(function), "ok"


def _traces(function: FunctionReport) -> str:
    flops = f", {scaled(function.cost.flops, 'flop')}" if function.cost.flops else ""
    timing = function.timing
    if not timing.clear:
        return f"✓ traces{flops}; compiled as fast as without jit, as far as the noise lets tell"
    ratio = f"; compiled {times(timing.speedup)} as fast as without jit" if timing.speedup else ""
    return f"✓ traces{flops}{ratio}"


def line(text: str, tone: Tone = "note") -> str:
    """The panel's one line about how things stand."""
    style = f"border-left:4px solid {EDGES[tone]};padding:2px 8px;{color(tone)}"
    return f'<div role="status" style="{style}"><b>{html.escape(text)}</b></div>'


def code(text: str) -> str:
    """`text` as code."""
    return f'<code style="background-color:transparent;color:inherit">{html.escape(text)}</code>'


def with_button(text: str) -> str:
    """`text` with a button that copies it."""
    copy = f'<button hidden class="jupyter-button jm-copy" data-jm-text="{_quoted(text)}">copy</button>'
    return to_copy(text) + copy


def into_cell(cell: CellSource, fixes: Iterable[tuple[str, Fix]]) -> str:
    """For each change of the cell a button that writes it there, and the whole cell with it to copy."""
    out, texts = [], []
    for title, fix in fixes:
        after = corrected(cell.text, fix) if cell.text else ""
        if after and after != cell.text:
            data = f'data-jm-cell="{_quoted(cell.id or "")}" data-jm-before="{_quoted(cell.text)}"'
            label = f"Put into the cell: {html.escape(title.replace('`', ''))}"
            out.append(f'<button hidden class="jupyter-button jm-write" style="width:auto" {data} '
                       f'data-jm-after="{_quoted(after)}">{label}</button>')  # fmt: skip
            told = f"the cell, to copy: {html.escape(title.replace('`', ''))}"
            summary = f'<summary style="cursor:pointer">{told}</summary>'
            texts.append(f"<details>{summary}{to_copy(after)}</details>")
    return f"<div>{' '.join(out)}</div>{''.join(texts)}" if out else ""


def proved(report: Report | None) -> list[tuple[str, Fix]]:
    """Fixes that were applied and re-run, by their titles."""
    found = report.findings if report is not None else ()
    fixes = {x.title: x for f in found for x in f.fixes if x.verified and x.applicability != "display"}
    return list(fixes.items())


def as_code(name: str, options: JitOptions, dyn: str | None) -> str:
    """The settings as a `%%jit` line and as Python."""
    names, numbers = options.static_argnames, options.static_argnums
    flags = [f"-f {name}"]
    flags += [f"--static {','.join(names)}"] if names else []
    flags += [f"--static-argnums {','.join(map(str, numbers))}"] if numbers else []
    flags += [f'--dyn "{dyn}"'] if dyn else []
    call = [name, *(f"{k}={v!r}" for k, v in options.kwargs().items() if k.startswith("static"))]
    call += [f"dyn_vars={dyn!r}"] if dyn else []
    return f"%%jit {' '.join(flags)}\n{'jitmagic' if dyn else 'jax'}.jit({', '.join(call)})"


def as_fix(options: JitOptions, dyn: str | None, before: JitOptions) -> Fix:
    """The settings as a change of the cell, which has `before` on its magic line."""
    numbers = options.static_argnums
    return Fix(
        "as it is set here", static_argnames=options.static_argnames,
        static_argnums=numbers if numbers or before.static_argnums else None,
        dyn=tuple((dyn or "").split(",")) if dyn else (),
    )  # fmt: skip


def _quoted(text: str) -> str:
    return html.escape(text, quote=True).replace("\n", "&#10;")
