"""Four typical reports, word by word.

The snapshots were read before they were accepted. After a wanted change run once with
`UPDATE_SNAPSHOTS=1` and read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jitmagic import render
from tests.render import samples

HERE = Path(__file__).parent / "snapshots"


def check(name: str, content: str) -> None:
    path = HERE / name
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(content + "\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == content + "\n"


@pytest.mark.parametrize("name", samples.TYPICAL)
def test_text(name):
    check(f"{name}.txt", render.text(samples.TYPICAL[name]()))


@pytest.mark.parametrize("name", samples.TYPICAL)
def test_html(name):
    check(f"{name}.html", render.html(samples.TYPICAL[name]()))
