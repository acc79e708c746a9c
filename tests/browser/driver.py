"""A private JupyterLab (or Notebook) server, and a page of it driven through Playwright.

Nothing is guessed from the page where the application can be asked: the driver talks to `window.jupyterapp`,
waits on the session, on a command's promise, on the marks, never on the clock.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "jitmagic" / "labextension"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER_ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-color-profile=srgb",
]  # fmt: skip
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"
CONFIG = """\
c.LabApp.news_url = None
c.LabApp.expose_app_in_browser = True
c.JupyterNotebookApp.expose_app_in_browser = True
c.LabApp.extension_manager = "readonly"
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
"""
PYTHON = os.environ.get("JITMAGIC_LAB_PYTHON", sys.executable)
"""The interpreter that the server runs with."""
QUIET = '{"fetchNews": "false", "checkForUpdates": false}'


def chromium() -> str | None:
    """Path of a Chromium that starts: JITMAGIC_CHROMIUM, one on PATH, or None for Playwright's own."""
    named = os.environ.get("JITMAGIC_CHROMIUM")
    if named:
        return named
    for found in filter(None, map(shutil.which, NAMES)):
        # Some distributions have a stub of that name which only tells what to install.
        if subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    return None


@dataclass(frozen=True)
class Server:
    """A running server: where it listens, where its notebooks and its data lie."""

    url: str
    token: str
    root: Path
    data: Path


@contextmanager
def server(root: Path, app: str = "jupyterlab", timeout_s: float = 90) -> Iterator[Server]:
    """A server of its own directories, with this checkout's bundle as its only extension of ours.

    JITMAGIC_LAB_PYTHON names another interpreter, to try another version of JupyterLab.
    """
    state = Path(tempfile.mkdtemp(prefix="jitmagic-lab-"))
    data = state / "jupyter_data_dir"
    env = _environment(state)
    (data / "labextensions").mkdir()
    (data / "labextensions" / "jitmagic").symlink_to(BUNDLE, target_is_directory=True)
    port, token = _free_port(), secrets.token_hex(16)
    command = [
        PYTHON, "-m", app, "--allow-root", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
        "--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}", f"--IdentityProvider.token={token}",
    ]  # fmt: skip
    with open(state / "log", "w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait(f"http://127.0.0.1:{port}/api/status?token={token}", process, state / "log", timeout_s)
        yield Server(f"http://127.0.0.1:{port}", token, root, data)
    finally:
        _stop(process)
        shutil.rmtree(state, ignore_errors=True)


def _environment(state: Path) -> dict[str, str]:
    # Without the last, an older bundle that is installed beside this Python comes first.
    env = dict(os.environ, JAX_PLATFORMS="cpu", PYTHONPATH=str(ROOT), JUPYTER_PREFER_ENV_PATH="0")
    for key in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
                "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR"):  # fmt: skip
        (state / key.lower()).mkdir()
        env[key] = str(state / key.lower())
    for name in ("jupyter_lab_config.py", "jupyter_notebook_config.py"):
        (state / "jupyter_config_dir" / name).write_text(CONFIG)
    settings = state / "jupyterlab_settings_dir" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(QUIET)
    # The kernel is this Python, also where the lab is another one's.
    kernel = state / "own" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python 3 (ipykernel)", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    env["JUPYTER_PATH"] = str(state / "own")
    return env


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _wait(url: str, process: subprocess.Popen[bytes], log: Path, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while True:
        if process.poll() is not None:
            raise RuntimeError(log.read_text())
        try:
            urllib.request.urlopen(url, timeout=2).read()
            return
        except OSError:
            if time.monotonic() > end:
                raise RuntimeError(log.read_text()) from None
            time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Terminated politely, so that it takes its kernels along; they end by themselves where it does not."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(4)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Lab:
    """One page of the server, with one notebook open in it."""

    def __init__(self, page: Any, at: Server) -> None:
        self.page, self.server = page, at
        self.errors: list[str] = []
        page.set_default_timeout(20_000)
        page.on("pageerror", self._heard)

    def _heard(self, error: Any) -> None:
        """Keep an error of the page, unless every frame of it is in the lab's own code.

        The lab stumbles over cells that are pasted, merged or closed before they are drawn
        (`_cellToolbarOverlapsContents` in 4.2, "The node to be removed is not a child" in 4.4 and 4.6).
        """
        told = error.stack or str(error)
        if "/jitmagic/" in told or "/static/" not in told:
            self.errors.append(told)

    def open(self, name: str, *, kernel: bool = True) -> Lab:
        """Open a notebook, alone in the lab, with its kernel up and idle, or without any."""
        if "/lab/" not in self.page.url:
            self._go(f"lab/workspaces/t{secrets.token_hex(4)}")
            self.page.wait_for_function("() => window.jupyterapp?.restored.then(() => true)", timeout=60_000)
            self.page.wait_for_selector("#jupyterlab-splash", state="detached")
            self.js("() => window.jupyterapp.shell.collapseLeft()")
        self.shut()
        # not awaited: it is done when the dialog about the kernel is answered
        self.js("path => void window.jupyterapp.commands.execute('docmanager:open', {path})", name)
        self._is_open(name)
        if not kernel:
            self.page.locator(".jp-Dialog").get_by_role("button", name="No Kernel").click()
            return self
        self.idle()
        return self

    def open_too(self, name: str) -> None:
        """Open another notebook on the kernel of the one that is open."""
        self.js(
            """path => { const id = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.id;
               void window.jupyterapp.commands.execute('docmanager:open', {path, kernel: {id}}); }""",
            name,
        )
        self._is_open(name)
        self.idle()

    def idle(self) -> None:
        """Wait for the kernel. The toolbar's first "idle" is only its initial value: the session itself is asked."""
        self.page.wait_for_function(
            """() => { const s = window.jupyterapp.shell.currentWidget.sessionContext;
               return s.isReady && s.session?.kernel?.connectionStatus === 'connected'
                      && s.session.kernel.status === 'idle'; }""",
            timeout=60_000,
        )

    def open_notebook7(self, name: str) -> Lab:
        """Open in the Notebook application, whose pages are `/notebooks/…`; without a kernel."""
        self._go(f"notebooks/{name}")
        self._is_open(name)
        self.page.locator(".jp-Dialog").get_by_role("button", name="No Kernel").click()
        return self

    def _go(self, path: str) -> None:
        self.page.goto(f"{self.server.url}/{path}?token={self.server.token}")

    def _is_open(self, name: str) -> None:
        self.page.wait_for_function(
            """name => { const w = window.jupyterapp?.shell.currentWidget;
               return w?.context?.path === name && w.context.isReady; }""",
            arg=name,
            timeout=60_000,
        )

    def shut(self) -> None:
        """End the kernel of the open notebook and close it, unsaved, in every view of it."""
        self.js(
            """async () => { const w = window.jupyterapp?.shell.currentWidget;
               if (w?.context) { await w.sessionContext.shutdown(); }
               for (const one of [...(window.jupyterapp?.shell.widgets('main') ?? [])]) {
                 if (one.context) { one.dispose(); }
               } }"""
        )

    def reload(self) -> None:
        """Load the page anew, as after a restart of the browser, with nothing open."""
        self.shut()
        self.page.goto("about:blank")

    def js(self, code: str, arg: Any = None) -> Any:
        """The value of a JavaScript expression or function."""
        return self.page.evaluate(code, arg)

    def command(self, name: str, **args: Any) -> Any:
        """Run a command of the application and wait for its promise."""
        call = "([name, args]) => window.jupyterapp.commands.execute(name, args).then(() => null)"
        return self.js(call, [name, args])

    def cell(self, index: int) -> Any:
        """The cell's element, scrolled into sight."""
        found = self.page.locator(f"{PANEL} .jp-Notebook-cell").nth(index)
        found.scroll_into_view_if_needed()
        return found

    def select(self, index: int) -> None:
        """Make a cell the active one."""
        self.js("i => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = i; }", index)

    def scroll_to(self, index: int) -> None:
        """Bring a cell into sight, which JupyterLab may have drawn nothing of."""
        self.js("i => window.jupyterapp.shell.currentWidget.content.scrollToItem(i)", index)

    def run(self, index: int) -> Any:
        """Run a cell; returns when the kernel has replied."""
        self.select(index)
        self.command("notebook:run-cell")
        return self.output(index)

    def output(self, index: int) -> Any:
        """The outputs of a cell."""
        return self.cell(index).locator(".jp-OutputArea-output")

    def source(self, index: int) -> str:
        """The text of a cell."""
        return self.js(
            "i => window.jupyterapp.shell.currentWidget.content.widgets[i].model.sharedModel.getSource()",
            index,
        )

    def set_source(self, index: int, text: str) -> None:
        """Write another text into a cell."""
        self.js(
            """([i, text]) => window.jupyterapp.shell.currentWidget.content.widgets[i]
               .model.sharedModel.setSource(text)""",
            [index, text],
        )

    def squiggles(self, index: int, kind: str = "error", count: int | None = None) -> list[str]:
        """The texts underlined in a cell, after waiting for `count` (or any) of them."""
        marks = self.cell(index).locator(f".cm-lintRange-{kind}")
        if count:
            marks.nth(count - 1).wait_for()
        else:
            marks.first.wait_for()
        return marks.all_text_contents()

    def no_marks(self, index: int) -> None:
        """Wait until nothing of ours is left in a cell."""
        cell = self.cell(index)
        for what in (".cm-lintRange", ".jm-note", ".jm-heat", ".cm-lint-marker"):
            cell.locator(what).first.wait_for(state="detached")

    def clip(self, index: int, *, extra: int = 0, outputs: int = 1) -> dict[str, float]:
        """The stretch of the page with a cell's source and its first outputs, and `extra` pixels below."""
        cell = self.cell(index)
        settled = "e => new Promise(done => requestAnimationFrame(() => { e.scrollIntoView(true); done(); }))"
        for _ in range(3):  # cells above are drawn, and grow, only when they come into sight
            cell.evaluate(settled)
        top = cell.bounding_box()
        last = self.output(index).nth(outputs - 1).bounding_box() if outputs else None
        height = last["y"] + last["height"] - top["y"] if last else 0
        return {"x": top["x"], "y": top["y"], "width": top["width"], "height": height + extra}

    def no_hover(self) -> None:
        """Point elsewhere, and wait until no tooltip is left."""
        self.page.mouse.move(5, 5)
        self.page.locator(".cm-tooltip-lint").wait_for(state="detached")

    def hover(self, target: Any) -> Any:
        """Point at an element; the tooltip that comes."""
        target.scroll_into_view_if_needed()
        target.hover()
        tip = self.page.locator(".cm-tooltip-lint")
        tip.wait_for()
        return tip

    def theme(self, name: str) -> None:
        """`JupyterLab Light` or `JupyterLab Dark`, drawn."""
        self.command("apputils:change-theme", theme=name)
        light = str(name == "JupyterLab Light").lower()
        self.page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached")

    def settings(self, **values: bool) -> None:
        """Store these of our settings and no others; read when the page is loaded again."""
        save = """values => window.jupyterapp.serviceManager.settings.save(
            'jitmagic:plugin', JSON.stringify(values))"""
        self.js(save, values)

    def save(self) -> None:
        """Write the notebook to disk."""
        self.js("() => window.jupyterapp.shell.currentWidget.context.save()")

    def close(self) -> None:
        """End the kernel and the page."""
        self.shut()
        self.page.close()
