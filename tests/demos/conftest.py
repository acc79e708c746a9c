"""Demos executed once per session in a real kernel; tests read their outputs and reports."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
REPORT = "application/vnd.jitmagic.v1+json"


@cache
def _runner() -> Any:
    spec = importlib.util.spec_from_file_location("run_demo", ROOT / "tools" / "run_demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_demo"] = module
    spec.loader.exec_module(module)
    return module


class Executed:
    """An executed notebook. A cell is found by one of its `tags`."""

    def __init__(self, notebook: Any) -> None:
        self.notebook = notebook

    def cell(self, tag: str) -> Any:
        """The cell with this tag."""
        cells = [cell for cell in self.notebook.cells if tag in cell.metadata.get("tags", ())]
        assert len(cells) == 1, f"{len(cells)} cells are tagged {tag!r}"
        return cells[0]

    def text(self, tag: str) -> str:
        """All that the cell shows, as plain text: streams, results and errors."""
        parts, before = [], None
        for output in self.cell(tag).outputs:
            if output.output_type == "stream" and before == "stream":
                parts[-1] += output.text  # the kernel sends what is printed in pieces, as time goes by
            elif output.output_type == "stream":
                parts.append(output.text)
            elif output.output_type == "error":
                parts.append("\n".join([output.ename, output.evalue, *output.traceback]))
            else:
                parts.append(output.data.get("text/plain", ""))
            before = output.output_type
        return "\n".join(parts)

    def reports(self, tag: str) -> list[dict[str, Any]]:
        """The reports that the cell shows, as `Report.to_dict()`."""
        return [
            output.data[REPORT]
            for output in self.cell(tag).outputs
            if output.output_type in ("display_data", "execute_result") and REPORT in output.data
        ]

    def findings(self, tag: str) -> list[dict[str, Any]]:
        """The findings of these reports."""
        return [finding for report in self.reports(tag) for finding in report["findings"]]

    def kinds(self, tag: str, *severities: str) -> list[str]:
        """Kinds of the findings, of these severities only where some are given."""
        return [f["kind"] for f in self.findings(tag) if not severities or f["severity"] in severities]


@pytest.fixture(scope="session")
def executed() -> Any:
    """`executed("pln")`: demos/pln.ipynb, run to its end; an error that no tag `raises-exception` expects fails."""

    @cache
    def run(name: str) -> Executed:
        notebook, error = _runner().execute(ROOT / "demos" / f"{name}.ipynb")
        assert error is None, error
        return Executed(notebook)

    return run
