"""The documentation is what the code says."""

from __future__ import annotations

import ast
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


def _avoided() -> list[str]:
    """The right column of the glossary."""
    rows = re.findall(r"^\| .* \| .* \| (.*) \|$", (ROOT / "docs/glossary.md").read_text("utf-8"), re.M)
    return [w for row in rows for w in row.strip().split(", ") if w and set(w) != {"-"} and w != "not"]


def _read_by_people() -> dict[str, str]:
    """The documentation and the pages, and every text in the code that is no docstring, by file."""
    paths = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("jitmagic/rules/pages/*.md")]
    texts = {str(p.relative_to(ROOT)): p.read_text("utf-8") for p in paths if p.name != "glossary.md"}
    for path in ROOT.glob("jitmagic/**/*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        bare = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        said = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in bare)
        texts[str(path.relative_to(ROOT))] = "\n".join(v for v in said if isinstance(v, str))
    return texts


def test_the_words_of_the_glossary_are_kept_to():
    avoided = _avoided()
    assert "proved" in avoided and len(avoided) >= 6
    found = [
        (where, word) for where, text in _read_by_people().items() for word in avoided
        if re.search(rf"\b{re.escape(word)}\b", text)
    ]  # fmt: skip
    assert found == []
