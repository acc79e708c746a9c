"""Failures of ours are raised in these tests."""

from __future__ import annotations

import pytest

from jitmagic.checking import subject
from jitmagic.fixes import families


@pytest.fixture(autouse=True)
def _failures_of_ours_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "RAISE", True)
    monkeypatch.setattr(families, "RAISE", True)
