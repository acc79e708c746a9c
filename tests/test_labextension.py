"""The bundle of the in-editor layer as it is kept in the repository: there, small, and made from these sources."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jitmagic

ROOT = Path(__file__).resolve().parent.parent
LAB = ROOT / "lab"
BUNDLE = ROOT / "jitmagic" / "labextension"
LIMIT = 60_000


def sources_sum() -> str:
    """The sum that lab/build.mjs leaves beside the bundle."""
    inside = [f"{folder}/{path.name}" for folder in ("src", "schema") for path in (LAB / folder).iterdir()]
    names = ["build.mjs", "package-lock.json", "package.json", "tsconfig.json", *inside]
    made = hashlib.sha256()
    for name in sorted(names):
        made.update(f"{name}\0".encode() + (LAB / name).read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return made.hexdigest()


def test_bundle_is_made_from_these_sources():
    made_from = (BUNDLE / "sources.sha256").read_text().strip()
    assert made_from == sources_sum(), "the bundle is older than lab/: run `npm ci && npm run build` there"


def test_bundle_is_small():
    assert sum(path.stat().st_size for path in BUNDLE.rglob("*") if path.is_file()) < LIMIT


def test_bundle_is_loadable_and_of_this_version():
    data = json.loads((BUNDLE / "package.json").read_text())
    assert (BUNDLE / data["jupyterlab"]["_build"]["load"]).is_file()
    assert data["version"] == jitmagic.__version__


def test_lock_file_names_no_registry():
    assert '"resolved"' not in (LAB / "package-lock.json").read_text()
