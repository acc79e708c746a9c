"""A failing call raises as usual; what is shown of it is the diagnosis, not pages of internal frames."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

from jitmagic.report import Finding


def shorten(exc: BaseException, findings: Callable[[], Sequence[Finding]], line: int | None = None) -> None:
    """Have IPython show this exception in a few lines, once; `%tb` then shows the whole traceback.

    `line` is where it was raised in the user's cell: the finding there speaks for it.
    """

    def render() -> list[str]:
        del exc._render_traceback_  # type: ignore[attr-defined]
        return _lines(exc, findings(), line)

    exc._render_traceback_ = render  # type: ignore[attr-defined]


def _lines(exc: BaseException, findings: Sequence[Finding], line: int | None) -> list[str]:
    """The user's own frames, then the error in the words of the first finding, or in its own."""
    from jitmagic.tracing.locate import is_user_file

    frames = [f for f in traceback.extract_tb(exc.__traceback__) if is_user_file(f.filename)]
    out = ["Traceback (your own frames; %tb shows all):"]
    out += [f"  line {f.lineno}, in {f.name}\n    {f.line or ''}" for f in frames]
    name = type(exc).__name__
    serious = [f for f in findings if f.severity == "error"]
    first = next(
        (f for f in serious if f.span is not None and f.span.line == line), serious[0] if serious else None
    )
    text = str(exc).strip()
    if first is None:
        return [*out, f"{name}: {text}"]
    return [
        *out,
        f"{name}: {first.message}",
        *([f"help: {first.help}"] if first.help else []),
        *_advice(first),
    ]


def _advice(finding: Finding) -> list[str]:
    fix = next((x for x in finding.fixes if x.verified), None)
    return [f"proved: {fix.title}"] if fix is not None else []
