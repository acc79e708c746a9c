"""The interactive panel of `%%jit -w`: which argument is static, which variable dynamic, and what follows.

Core ipywidgets only. Every change traces again on shapes alone (no device, nothing runs); what runs the function
waits for its button. `rows`: what is chosen; `words`: what is said; `board`: the panel, and what runs.
"""

from __future__ import annotations

from jitmagic.panel.board import Panel
from jitmagic.panel.rows import parse_type

__all__ = ["Panel", "parse_type"]
