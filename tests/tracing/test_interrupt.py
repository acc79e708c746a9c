"""A compilation that takes long can be interrupted; the persistent cache says whether it served."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jitmagic.tracing import stages
from jitmagic.tracing.stages import counted, run_stages

X = jnp.ones(3)


class Slow:
    """A jitted function whose compilation waits until it may go on."""

    def __init__(self, fn: Any, go: threading.Event) -> None:
        self.fn, self.go = jax.jit(fn), go
        self.begun = threading.Event()

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        traced, slow = self.fn.trace(*args, **kwargs), self

        class Lowered:
            def compile(self) -> Any:
                slow.begun.set()
                assert slow.go.wait(30)
                return traced.lower().compile()

        class Traced:
            fun_name, jaxpr = "patient", traced.jaxpr

            def lower(self) -> Any:
                return Lowered()

        return Traced()


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to send")
def test_an_interrupt_ends_the_wait_and_tells_what_goes_on() -> None:
    def patient(x: Any) -> Any:
        return x * 17

    go = threading.Event()
    slow = Slow(patient, go)

    def interrupt() -> None:
        assert slow.begun.wait(30)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match="XLA can't be stopped: it goes on in the background"):
        run_stages(slow, (X,), {})
    assert time.monotonic() - start < 25 and len(stages._pending) == 1
    go_on = jax.jit(lambda x: x * 18)  # another program does not wait
    assert float(run_stages(go_on, (X,), {}).compiled(X)[0]) == 18.0
    told: list[str] = []

    class Stage:
        def __init__(self, name: str) -> None:
            told.append(name)
            if name.startswith("waiting"):
                go.set()

        def __enter__(self) -> None: ...
        def __exit__(self, *exc: Any) -> None: ...

    with counted() as counts:
        staged = run_stages(slow, (X,), {}, progress=Stage)
    assert told == ["tracing", "lowering", "waiting for the compilation that was interrupted", "compiling"]
    assert counts.compiles("patient") == 1 and not stages._pending
    assert float(staged.compiled(X)[0]) == 17.0 and staged.stages.compile_s is not None


def test_an_error_of_the_compiler_passes_through() -> None:
    class Broken:
        jaxpr = None

        def trace(self, *args: Any) -> Any:
            return self

        lower = trace

        def compile(self) -> Any:
            raise MemoryError("too large")

    with pytest.raises(MemoryError, match="too large"):
        run_stages(Broken(), (), {})
    assert not stages._pending


def test_outside_the_main_thread_it_compiles_there() -> None:
    names: list[str] = []

    class Here:
        jaxpr = None

        def trace(self, *args: Any) -> Any:
            return self

        lower = trace

        def compile(self) -> Any:
            names.append(threading.current_thread().name)

    thread = threading.Thread(target=lambda: run_stages(Here(), (), {}), name="mine")
    thread.start()
    thread.join()
    assert names == ["mine"]


def test_without_a_persistent_cache_nothing_is_said() -> None:
    assert run_stages(jax.jit(lambda x: x * 3), (X,), {}).stages.cached is None


CACHED = """
import sys, jax, jax.numpy as jnp
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
from jitmagic.tracing.ledger import Ledger
from jitmagic.tracing.stages import run_stages
ledger = Ledger()
ledger.start()
def f(x):
    return jnp.sin(x) * 5
print(run_stages(jax.jit(f), (jnp.ones(3),), {}).stages.cached, ledger.session().compilations[-1].cached)
"""


def test_a_persistent_cache_that_serves(tmp_path: Any) -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", CACHED, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert outputs == ["False False", "True True"]
