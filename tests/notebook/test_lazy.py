"""`MagicsManager.lazy_magics`: the magics without `%load_ext`, where the user has said so once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

CONFIG = 'c.MagicsManager.lazy_magics = {"jit": "jitmagic", "jitcheck": "jitmagic"}\n'
FAILING = "%%jitcheck f(2.0)\ndef f(x):\n    if x > 0:\n        return x\n    return -x"
WORKING = "%%jit --no-time f(2.0)\ndef f(x):\n    return 2 * x\n\nprint('ran')"


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the cells print in an IPython that reads this configuration; each table row is a session of its own."""
    profile = tmp_path_factory.mktemp("ipython")
    (profile / "profile_default").mkdir()
    (profile / "profile_default" / "ipython_config.py").write_text("c = get_config()\n" + CONFIG)

    def run(*cells: str) -> str:
        code = f"""
        import sys
        from IPython.terminal.ipapp import TerminalIPythonApp
        app = TerminalIPythonApp.instance()
        app.initialize(["--HistoryManager.enabled=False", "--no-banner", "--colors=NoColor"])
        app.shell.run_cell("import sys; print('jitmagic' in sys.modules)")
        for cell in {cells!r}:
            app.shell.run_cell(cell)
        """
        found = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True, text=True, timeout=300, env={**os.environ, "IPYTHONDIR": str(profile)},
        )  # fmt: skip
        return found.stdout + found.stderr

    return run


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        (WORKING, ("ran", "✓ f")),
        (FAILING, ("✗ f  can't be compiled", "JM101")),
        ("%jitcheck --explain JM101", ("JM101 tracer-bool",)),
        (
            "%jit --no-time\ndef f(x):\n    return 2 * x\n\nf(1.0)",
            ("loaded jitmagic in its middle: run it again",),
        ),
    ],
)
def test_the_first_use_loads_the_extension(printed, cell, told):
    text = printed(cell)
    assert "False\n" in text.partition(told[0])[0]  # nothing is imported before
    assert all(words in text for words in told), text
