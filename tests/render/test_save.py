"""Files by their suffix."""

from __future__ import annotations

import json

import pytest

from jitmagic import render
from jitmagic.render import Report
from tests.render import samples


def test_json_reads_back(tmp_path):
    path = tmp_path / "report.json"
    render.save(samples.stale(), str(path))
    assert Report.from_dict(json.loads(path.read_text(encoding="utf-8"))) == samples.stale()


def test_text_is_the_whole_text(tmp_path):
    path = tmp_path / "REPORT.TXT"
    render.save(samples.stale(), str(path))
    assert path.read_text(encoding="utf-8") == render.text(samples.stale()) + "\n"


def test_html_is_a_page_of_its_own(tmp_path):
    path = tmp_path / "report.html"
    render.save(samples.stale(), str(path))
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and '<meta charset="utf-8">' in page
    assert render.html(samples.stale()) in page and "<title>jitmagic: predict</title>" in page


@pytest.mark.parametrize("suffix", [".html", ".json", ".txt"])
def test_hostile_text_can_be_saved(tmp_path, suffix):
    path = tmp_path / f"report{suffix}"
    render.save(samples.hostile(), str(path))
    content = path.read_text(encoding="utf-8")
    assert "alert(1)" in content and ("<script" not in content or suffix != ".html")
    if suffix == ".json":
        assert Report.from_dict(json.loads(content)) == samples.hostile()


@pytest.mark.parametrize("name", ["report.pdf", "report", "report.html.gz", ".html"])
def test_another_suffix_names_the_three(tmp_path, name):
    with pytest.raises(ValueError, match=r"\.html, \.json or \.txt"):
        render.save(samples.good(), str(tmp_path / name))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path):
    with pytest.raises(OSError):
        render.save(samples.good(), str(tmp_path / "missing" / "report.html"))
