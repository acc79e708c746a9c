"""A real IPython shell with the extension loaded, for tests that run cells as a user would."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from jitmagic.checking import subject
from jitmagic.measure import timing
from jitmagic.trial import whose_run

FRAMEWORKS = ("brainpy", "brainstate", "equinox", "flax", "optax", "tensorflow_probability", "spark")
"""What a cell may import that is not installed everywhere; its test is then left out."""
REPEATING = frozenset(("checking", "fixes", "frameworks", "silent", "whatif"))
"""Rooms whose tests compile what others have."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what runs in the background so
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests last: playwright keeps an event loop running in this thread, and cells with `await` need it. First
    those that look through all there is for garbage, while there is little."""
    items.sort(key=lambda item: (item.path.stem != "test_goes_with_it", "browser" in item.path.parts))


@pytest.fixture(scope="session")
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module", autouse=True)
def _compiled_once(request: pytest.FixtureRequest, _compiled: str) -> Iterator[None]:
    """What XLA has compiled for one test is there for the next, which compiles the same `x * 2`, where neither that nor
    what is called meanwhile is looked at. All other tests are those of a notebook without a persistent cache."""
    if REPEATING.isdisjoint(request.path.parts):
        yield
        return
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    chosen = {
        "jax_compilation_cache_dir": _compiled,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: jax.config.values[name] for name in chosen}
    for settings in (chosen, before):
        for name, value in settings.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        if settings is chosen:
            yield


@pytest.fixture(scope="module", autouse=True)
def _young_garbage_only() -> Iterator[None]:
    """What one file of tests has left is not looked through for garbage all through the later ones, nor are its
    programs listed by the profiler with each cell that is timed."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    gc.freeze()


@pytest.fixture
def python_of_jax() -> Callable[..., int]:
    """How many Python functions of jax's run in a call: none where its compiled dispatch serves. Random keys are taken
    apart by one in any case."""
    import jax

    directory = os.path.dirname(jax.__file__)

    def count(call: Callable[..., Any], *args: Any) -> int:
        found = 0

        def see(frame: Any, event: str, _: Any) -> None:
            nonlocal found
            code = frame.f_code
            ours = code.co_filename.startswith(directory) and code.co_name != "prngkeyarray_flatten"
            found += event == "call" and ours

        before = sys.getprofile()
        sys.setprofile(see)
        try:
            call(*args)
        finally:
            sys.setprofile(before)
        return found

    return count


class Notebook:
    """Runs cells in a shell, and keeps what they show."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.ns = shell.user_ns
        self.text = ""

    def run(self, source: str) -> Any:
        """One cell; raises nothing. `text` is what it wrote, tracebacks included."""
        with capture_output() as captured:
            result = self.shell.run_cell(source)
        self.text = captured.stdout + captured.stderr
        error = result.error_in_exec
        if isinstance(error, ModuleNotFoundError) and error.name in FRAMEWORKS:
            pytest.skip(f"{error.name} is not installed")
        self.outputs = captured.outputs
        return result

    def ok(self, source: str) -> Any:
        """One cell that has to work; its value."""
        result = self.run(source)
        result.raise_error()
        return result.result

    def error(self, source: str) -> BaseException:
        """One cell that has to fail; its exception."""
        result = self.run(source)
        error = result.error_in_exec or result.error_before_exec
        assert error is not None, f"no error from {source!r}"
        return error

    def report(self) -> Any:
        """Everything known since the last cell with a magic."""
        return self.ok("%jitcheck -o")

    def kinds(self, *severities: str) -> list[str]:
        """Kinds of the findings in the report."""
        wanted = severities or ("error", "warning", "note")
        return [f.kind for f in self.report().findings if f.severity in wanted]


@pytest.fixture(scope="session")
def _shell() -> InteractiveShell:
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    return InteractiveShell.instance(config=config)


@pytest.fixture
def bare(_shell: InteractiveShell) -> Iterator[Notebook]:
    """A shell without the extension."""
    gc.freeze()  # what other tests have left, and all that is imported, is not looked through with each cell
    yield Notebook(_shell)
    with contextlib.suppress(Exception):
        _shell.extension_manager.unload_extension("jitmagic")
    _shell.reset(new_session=False)


@pytest.fixture
def notebook(bare: Notebook, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Notebook:
    """A shell with the extension loaded and jax imported; failures of our own are raised."""
    if "measure" not in request.path.parts:  # the figures of others are looked at by nobody
        monkeypatch.setattr(timing, "BATCH_S", 0.01)
    monkeypatch.setattr(subject, "RAISE", True)
    monkeypatch.setattr(whose_run.STATE, "plain", 0)
    bare.ok("%load_ext jitmagic\nimport jax, jax.numpy as jnp, numpy as np")
    return bare
