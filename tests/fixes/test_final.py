"""Every correction is final: the corrected cell is clean when it is checked again, and has nothing left to correct."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from tests.fixes.cells import CASES, Case
from tests.fixes.conftest import corrections
from tests.fixes.test_silent_kinds import CELLS as SILENT

SILENT_CASES = {
    f"{kind}, {number}": Case(kind, cell, tuple(calls), "", setup, static=tuple(options.values()))
    for number, (kind, cell, calls, setup, options) in enumerate(SILENT)
}  # fmt: skip
ALL = CASES | SILENT_CASES


@pytest.fixture(autouse=True)
def _switches_are_put_back() -> Iterator[None]:
    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("name", ALL)
def test_a_corrected_cell_is_clean(name: str) -> None:
    case = ALL[name]
    before = corrections(case.cell, case.calls, case.name, case.setup, case.static)
    fixes = [
        x
        for kind, x in before
        if kind == case.kind and (x.verified or not case.proved) and x.applicability != "display"
    ]
    assert fixes
    others = {kind for kind, _ in before} - {case.kind}
    for fix in fixes:
        jax.config.update("jax_enable_x64", False)
        if fix.dyn is not None or (fix.cell is not None and "@jax.jit" in fix.cell):
            continue  # declared outside of the cell; compiled inside: not for a trace as a whole
        static = case.static if fix.static_argnames is None else fix.static_argnames
        left = corrections(fix.cell or case.cell, fix.calls or case.calls, case.name, case.setup, static)
        said = {"recompile-static", "recompile-new-function"} if "compiles again" in fix.title else set()
        assert {kind for kind, _ in left} <= others | said, fix.title
        assert all(x.cell != fix.cell for _, x in left)
