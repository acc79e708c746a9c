"""The documentation is what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def make_docs():
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "tools" / "make_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_of_the_rules_are_up_to_date():
    assert make_docs().stale() == [], "run tools/make_docs.py"


@pytest.mark.parametrize(
    "page", sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md")) + ["README.md"]
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
    assert [t for t in targets if not ((ROOT / page).parent / t).exists()] == []


def test_every_option_of_the_table_exists():
    from jitmagic.notebook.magics import JitMagics

    table = (ROOT / "docs" / "magics.md").read_text(encoding="utf-8")
    named = set(
        re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", "".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
    )
    known = {s for a in JitMagics.jit.parser._actions for s in a.option_strings} - {"--cell", "--explain"}
    assert named == known


def test_every_kind_of_the_readme_count():
    from jitmagic.rules import RULES

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{len(RULES)} kinds" in text
