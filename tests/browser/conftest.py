"""A browser, a server and an executed notebook for the whole session; a fresh page for each test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser import cells, driver

SHOTS = Path(__file__).with_name("screenshots")
IMAGES = driver.ROOT / "docs" / "images"
"""With JITMAGIC_DOCS_IMAGES set, pictures named `docs-…` go there too."""
METADATA = {
    "language_info": {
        # No kernel speaks it, so that the lab asks instead of starting one; the colours come from the mode.
        "name": "read only",
        "mimetype": "text/x-python",
        "codemirror_mode": {"name": "ipython", "version": 3},
    }
}
WINDOW = {"width": 1000, "height": 1100}
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        path = driver.chromium()
        if path is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("no browser: see tools/get_browser.sh")
        started = playwright.chromium.launch(executable_path=path, args=driver.BROWSER_ARGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[driver.Server]:
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
    with driver.server(tmp_path_factory.mktemp("notebooks")) as started:
        yield started


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A bare page."""
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def _lab(browser: Any, server: driver.Server) -> Iterator[driver.Lab]:
    made = driver.Lab(browser.new_page(viewport=WINDOW), server)
    yield made
    made.close()


@pytest.fixture
def lab(_lab: driver.Lab) -> Iterator[driver.Lab]:
    """The one page of the lab, in its light theme; an error of any script on it fails the test."""
    _lab.errors.clear()
    yield _lab
    if "/lab/" in _lab.page.url:
        _lab.page.set_viewport_size(WINDOW)
        _lab.page.mouse.move(5, 5)
        _lab.theme("JupyterLab Light")
    assert _lab.errors == []


@pytest.fixture(scope="session")
def executed(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    """The cells of `cells.ALL`, run in a real kernel, as a reader would find them saved."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    notebook = _notebook(cells.ALL, kernel=True)
    where = {"metadata": {"path": str(tmp_path_factory.mktemp("run"))}}
    nbclient.NotebookClient(notebook, timeout=300, allow_errors=True, resources=where).execute()
    return notebook


def _notebook(sources: tuple[str, ...], kernel: bool) -> nbformat.NotebookNode:
    made = [nbformat.v4.new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(sources)]
    metadata = {"language_info": {"name": "python"}, "kernelspec": KERNEL} if kernel else METADATA
    return nbformat.v4.new_notebook(cells=made, metadata=metadata)


@pytest.fixture(scope="session")
def write_notebook(server: driver.Server) -> Callable[[str, tuple[str, ...]], str]:
    """Writes a notebook of cells that have not run; its name."""

    def write(name: str, sources: tuple[str, ...]) -> str:
        nbformat.write(_notebook(sources, kernel=True), server.root / name)
        return name

    return write


@pytest.fixture
def saved(
    server: driver.Server, executed: nbformat.NotebookNode, request: pytest.FixtureRequest
) -> Callable[..., str]:
    """Writes the executed notebook, which opens without a kernel; trusted where that is asked for."""

    def write(trusted: bool = False, at: driver.Server = server) -> str:
        name = f"saved-{request.node.name.replace('[', '-').replace(']', '')}.ipynb"
        # The signature is over the content, so each test's has to be its own.
        notebook = nbformat.from_dict({**executed, "metadata": {**METADATA, "test": request.node.name}})
        if trusted:
            from nbformat.sign import NotebookNotary

            NotebookNotary(data_dir=str(at.data)).sign(notebook)
        nbformat.write(notebook, at.root / name)
        return name

    return write


@pytest.fixture(scope="session", autouse=True)
def _shots() -> None:
    SHOTS.mkdir(exist_ok=True)


@pytest.fixture
def shot() -> Callable[..., Path]:
    """Saves a screenshot of a page or of an element, as an artefact to be looked at."""

    def take(target: Any, name: str, **options: Any) -> Path:
        path = SHOTS / f"{name}.png"
        target.screenshot(path=str(path), **options)
        if name.startswith("docs-") and os.environ.get("JITMAGIC_DOCS_IMAGES"):
            shutil.copy(path, IMAGES / f"{name.removeprefix('docs-')}.png")
        return path

    return take
