"""How large reports are, and how long a browser takes to show one.

Each report is put into a page of Chromium, laid out, and taken away again; its plain text in one `pre` takes
turns with it, so that a slow moment of the machine hits both. Milliseconds are medians, from the assignment of
the HTML to the end of the layout; the reports' folded parts count as folded.

    python benchmarks/report.py [--rounds 21]

Exit status 1 where a typical report is 60 KB or more, or takes 100 ms or more.
"""

from __future__ import annotations

import argparse
import html
import statistics
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jitmagic import render  # noqa: E402
from tests.browser import driver  # noqa: E402
from tests.render import samples  # noqa: E402
from tests.render.test_payload import enormous  # noqa: E402

REPORTS = {
    **samples.TYPICAL,
    "ten findings, three functions": samples.everything,
    "5,000 lines, 10,000 equations": enormous,
}
SHOW = """source => {
  const holder = document.createElement('div');
  document.body.append(holder);
  const start = performance.now();
  holder.innerHTML = source;
  holder.getBoundingClientRect();
  const ms = performance.now() - start;
  holder.remove();
  return ms;
}"""


def main() -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    status = 0
    print(f"{'report':32} {'HTML':>9} {'shown in':>10} {'text alone':>11} {'ratio':>6}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=driver.chromium(), args=driver.BROWSER_ARGS)
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        for name, make in REPORTS.items():
            source, plain = render.html(make()), f"<pre>{html.escape(render.text(make()))}</pre>"
            taken = [(page.evaluate(SHOW, source), page.evaluate(SHOW, plain)) for _ in range(rounds)]
            ms, text_ms = (statistics.median(column) for column in zip(*taken, strict=True))
            size = len(source.encode())
            status |= name in samples.TYPICAL and (size >= 60_000 or ms >= 100)
            ratio = f"{ms / text_ms:6.1f}" if text_ms else f"{'–':>6}"
            print(f"{name:32} {size / 1000:6.1f} kB {ms:7.1f} ms {text_ms:8.1f} ms {ratio}")
        browser.close()
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
