"""The documentation is what the code says."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_index_of_the_rules_has_each_page():
    from jitmagic.rules import RULES

    pages = resources.files("jitmagic.rules") / "pages"
    rows = [f"| [{r.code}]({r.code}-{r.kind}.md) | {r.kind} | {r.severity} |" for r in RULES]
    index = (pages / "README.md").read_text("utf-8")
    assert [line for line in index.splitlines() if line.startswith("| [")] == rows
    assert {p.name for p in pages.iterdir()} == {"README.md", *(f"{r.code}-{r.kind}.md" for r in RULES)}


@pytest.mark.parametrize(
    "page",
    sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md"))
    + ["README.md", "jitmagic/rules/pages/README.md"],
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
