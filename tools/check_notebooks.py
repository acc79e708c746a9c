"""Run the code cells of notebooks under `%%jit` and without the extension, and say where the two part.

    python tools/check_notebooks.py NOTEBOOK... [--timeout 300] [--skip TEXT ...]

Each notebook is run twice, in processes of its own: as it is, and with `%%jit -q --no-time` in front of each cell that
defines a function. Listed are

* failed inside: notes of a diagnosis that itself failed
* errors: cells that raise another exception than without the extension
* findings: errors and warnings about cells, for a reader to judge (a cell that fails under `jax.jit` is right to)

A notebook is an `.ipynb` file, or a page of Markdown with MyST's `{code-cell}` blocks, as jax's documentation has them.
Cells with other cell magics, shell commands or `--skip` texts are left out of both. The exit status is 1 where
something failed inside.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

LEFT_OUT = ("%%", "%timeit", "%time", "!pip", "%pip", "google.colab", "input(", "profiler.trace")

MYST = re.compile(
    r"^(?P<fence>`{3,}|~{3,})\{code-cell\}[^\n]*\n(?:---\n.*?^---\n|(?::[\w-]+:[^\n]*\n)*)(?P<source>.*?)^(?P=fence)\s*$",
    re.M | re.S,
)
"""A code cell of a MyST page: the fence, its options, the source."""


def cells(path: Path, skip: list[str]) -> list[tuple[int, str]]:
    """(number, source) of the code cells that are run."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        texts = list(enumerate(m["source"] for m in MYST.finditer(text)))
    else:
        found = json.loads(text)["cells"]
        texts = [(i, "".join(c["source"])) for i, c in enumerate(found) if c["cell_type"] == "code"]
    return [(i, t) for i, t in texts if t.strip() and not any(w in t for w in (*LEFT_OUT, *skip))]


def defines_a_function(source: str) -> bool:
    """Whether `%%jit` has something to take in this cell."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False
    return any(isinstance(n, ast.FunctionDef) for n in tree.body)


def run(path: Path, watched: bool, skip: list[str]) -> None:
    """Run the cells and print one line of JSON for each."""
    os.environ["MPLBACKEND"] = "Agg"
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=config)
    if watched:
        shell.run_cell("%load_ext jitmagic\n%config JitMagics.budget = 5")
    for number, source in cells(path, skip):
        magic = watched and defines_a_function(source)
        with capture_output():
            done = shell.run_cell(f"%%jit -q --no-time\n{source}" if magic else source)
            report = shell.run_cell("%jitcheck -o").result if watched else None
        error = done.error_in_exec or done.error_before_exec
        line: dict[str, Any] = {"cell": number, "error": type(error).__name__ if error else ""}
        line["message"] = " ".join(str(error).split())[:150] if error else ""
        if report is not None:
            line["findings"] = [
                [f.severity, f.kind, f.function, f.span.source if f.span else "", f.message[:160]]
                for f in report.findings
                if f.severity != "note"
            ]
            line["inside"] = [n for f in report.functions for n in f.notes if "itself failed" in n]
        print(json.dumps(line), flush=True)


def ran(path: Path, mode: str, timeout: int, skip: list[str]) -> dict[int, dict[str, Any]]:
    """What one process said about each cell, up to its time limit."""
    command = [sys.executable, __file__, str(path), "--one", mode, "--skip", *skip]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False).stdout
    except subprocess.TimeoutExpired as exc:
        out = exc.stdout.decode() if isinstance(exc.stdout, bytes) else exc.stdout or ""
        print(f"  {mode}: stopped after {timeout} s")
    lines = [json.loads(x) for x in out.splitlines() if x.startswith("{") and x.endswith("}")]
    return {x["cell"]: x for x in lines}


def compare(path: Path, timeout: int, skip: list[str]) -> int:
    """Print where the two runs part; the number of failures inside."""
    print(f"== {path.name}: {len(cells(path, skip))} cells")
    plain, watched = (ran(path, mode, timeout, skip) for mode in ("plain", "jit"))
    told, inside = set(), 0
    for number, cell in watched.items():
        before = plain.get(number, {"error": "did not run", "message": ""})
        if cell["error"] != before["error"]:
            print(
                f"  error in cell {number}: {before['error'] or 'none'} -> {cell['error'] or 'none'}: {cell['message']}"
            )
        for note in cell.get("inside", ()):
            inside += note not in told
            if note not in told:
                print(f"  FAILED INSIDE cell {number}: {note}")
            told.add(note)
        for finding in map(tuple, cell.get("findings", ())):
            if finding not in told:
                severity, kind, function, source, message = finding
                print(f"  {severity} in cell {number}: {kind} in {function}: {source}\n      {message}")
            told.add(finding)
    print(f"  {len(watched)} cells ran, {inside} failures inside")
    return inside


def main() -> None:
    """Run the notebooks that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--timeout", type=int, default=300)
    parser.add_argument("--skip", nargs="*", default=[])
    parser.add_argument("--one", choices=("plain", "jit"))
    asked = parser.parse_args()
    if asked.one:
        run(asked.notebooks[0], asked.one == "jit", asked.skip)
        return
    import jax

    print(f"jax {jax.__version__}, Python {platform.python_version()}, {jax.default_backend()}")
    sys.exit(bool(sum(compare(path, asked.timeout, asked.skip) for path in asked.notebooks)))


if __name__ == "__main__":
    main()
