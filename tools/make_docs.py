"""Write `docs/rules/`, a page for each rule, from the rules themselves: `make_docs.py [--check]`.

With `--check` nothing is written, and the exit status is 1 where a page is missing or old.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jitmagic.rules import RULES

FOLDER = Path(__file__).parent.parent / "docs" / "rules"


def pages() -> dict[str, str]:
    """File name to text, the index included."""
    out = {f"{r.code}-{r.kind}.md": r.page for r in RULES}
    rows = [f"| [{r.code}]({r.code}-{r.kind}.md) | {r.kind} | {r.severity} |" for r in RULES]
    head = (
        "# The rules\n\nThe same pages as `%jitcheck --explain CODE`; the tests run every cell in them.\n\n"
    )
    out["README.md"] = head + "| code | kind | severity |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    return out


def stale() -> list[str]:
    """Names of pages that are missing, old, or of no rule."""
    wanted = pages()
    have = {p.name: p.read_text(encoding="utf-8") for p in FOLDER.glob("*.md")} if FOLDER.is_dir() else {}
    return sorted(n for n in wanted.keys() | have.keys() if wanted.get(n) != have.get(n))


def main(argv: list[str]) -> int:
    """Write the pages, or with `--check` only compare them; returns the exit status."""
    old = stale()
    if "--check" in argv:
        print("\n".join(f"old or missing: docs/rules/{n}" for n in old) or "docs/rules is up to date")
        return bool(old)
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for name in old:
        if name in wanted:
            (FOLDER / name).write_text(wanted[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    print(f"{len(old)} of {len(wanted)} pages written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
