"""The timeline begins with jax itself, in whatever cell that is imported."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap

import pytest

from jitmagic.notebook.arrival import Arrival


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Makes a module that can be imported, once per test."""

    def make(source: str) -> str:
        (tmp_path / "awaited_here.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "awaited_here", raising=False)
        importlib.invalidate_caches()
        return "awaited_here"

    yield make
    sys.modules.pop("awaited_here", None)


def test_it_calls_once_when_the_module_has_run_and_leaves_nothing(module):
    name, seen = module("x = 1\ny = 2\n"), []
    arrival = Arrival(name, lambda: seen.append(vars(sys.modules[name]).get("y")))
    before = list(sys.meta_path)
    arrival.wait()
    import json.tool  # noqa: F401  other imports are no business of ours

    assert seen == []
    made = importlib.import_module(name)
    assert seen == [2] and sys.meta_path == before
    assert "exec_module" not in vars(made.__loader__) and made.__spec__.loader is made.__loader__
    del sys.modules[name]
    importlib.import_module(name)
    assert seen == [2]


def test_what_it_calls_cannot_break_the_import(module):
    name = module("x = 1\n")
    arrival = Arrival(name, lambda: 1 / 0)
    arrival.wait()
    assert importlib.import_module(name).x == 1 and arrival not in sys.meta_path


def test_an_import_that_fails_is_waited_for_again(module):
    name, seen = module("raise ImportError('not yet')\n"), []
    arrival = Arrival(name, lambda: seen.append(name))
    arrival.wait()
    with pytest.raises(ImportError, match="not yet"):
        importlib.import_module(name)
    assert seen == [] and arrival in sys.meta_path
    module("x = 1\n")
    importlib.import_module(name)
    assert seen == [name] and arrival not in sys.meta_path


def test_a_module_that_is_there_or_missing_changes_nothing():
    there, missing = Arrival("json", lambda: None), Arrival("no_such_module_here", lambda: None)
    there.wait()
    assert there not in sys.meta_path
    missing.wait()
    with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
        importlib.import_module("no_such_module_here")
    missing.stop()
    missing.stop()
    assert missing not in sys.meta_path


def session(*cells: str) -> list[str]:
    """What cells print in a new IPython with the extension loaded."""
    code = f"""
    import sys
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config
    shell = InteractiveShell(config=Config(HistoryManager={{"enabled": False}}))
    shell.user_ns["sys"] = sys
    for cell in {cells!r}:
        shell.run_cell(cell, store_history=True).raise_error()
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    return run.stdout.splitlines()


def test_what_the_cell_that_imports_jax_compiles_is_in_the_timeline():
    lines = session(
        "%load_ext jitmagic\nprint('jax' in sys.modules)",
        "import jax, jax.numpy as jnp\n@jax.jit\ndef f(x):\n    return jnp.sin(x)\ny = f(jnp.ones(3))",
        "r = %jitcheck --session -o",
        "print([(c.function, c.cell, c.reason) for c in r.session.compilations if c.origin == 'user'])",
        "print(any('jitmagic' in type(f).__module__ for f in sys.meta_path), type(jax.__loader__).__name__)",
    )
    assert lines[0] == "False" and lines[-2:] == ["[('f', 2, 'first')]", "False SourceFileLoader"]


def test_without_the_extension_nothing_waits():
    lines = session(
        "before = list(sys.meta_path)",
        "%load_ext jitmagic\nprint(len(sys.meta_path) - len(before))",
        "%unload_ext jitmagic\nprint(sys.meta_path == before)",
    )
    assert lines == ["1", "True"]


def test_a_report_before_any_computation_starts_no_device():
    lines = session(
        "%load_ext jitmagic\nimport jax",
        "%%jit -q --trace-only\ndef f(x):\n    return x * 2\n_ = f(jax.ShapeDtypeStruct((3,), 'float32'))",
        "r = %jitcheck -o\nprint([f.name for f in r.functions], repr(r.backend))",
        "jax.config.update('jax_num_cpu_devices', 3)\nprint(len(jax.devices()))",
        "r = %jitcheck -o\nprint(r.backend)",
    )
    assert lines[-3:] == ["['f'] ''", "3", "cpu"]
