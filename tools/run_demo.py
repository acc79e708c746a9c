"""Execute a notebook in a real kernel and print what its reports found: `run_demo.py NOTEBOOK [NOTEBOOK ...]`.

The executed notebook is written to `demos/_executed/`. The exit status is 1 where a cell failed that is not
meant to fail (tag `raises-exception`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

RULE = "-" * 88


def execute(path: Path) -> tuple[Any, str | None]:
    """The executed notebook, and the error that stopped it (None: it ran to its end)."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    try:
        client.execute()
    except CellExecutionError as exc:
        return notebook, str(exc)
    return notebook, None


def narrate(notebook: Any) -> None:
    """Print the headings, the cells and the plain text of what they show."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for line in cell.source.splitlines():
                if line.startswith("#"):
                    print(f"\n{RULE}\n{line.lstrip('# ')}\n{RULE}")
            continue
        print("\n" + "\n".join(f"    {line}" for line in cell.source.splitlines()) + "\n")
        for output in cell.outputs:
            print(_text(output), end="")


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue.splitlines()[0] if output.evalue else ''}\n"
    text = output.data.get("text/plain", "")
    return f"{text}\n" if text else ""


def main(paths: list[str]) -> int:
    """Run each notebook; returns the exit status."""
    status = 0
    for name in paths:
        path = Path(name)
        needed = nbformat.read(path, as_version=4).metadata.get("requires_python", "3")
        if sys.version_info < tuple(map(int, needed.split("."))):
            print(f"left out: {path} needs Python {needed}")
            continue
        print(f"running {path} in a kernel ...", flush=True)
        notebook, error = execute(path)
        narrate(notebook)
        out = path.parent / "_executed" / path.name
        out.parent.mkdir(exist_ok=True)
        nbformat.write(notebook, out)
        print(f"\n{RULE}\nexecuted notebook: {out}")
        if error is not None:
            print(error)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
