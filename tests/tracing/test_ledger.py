"""Every trace and compilation by cell, with its reason: counts and words are exact, seconds only positive."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jitmagic.tracing import ledger as module
from jitmagic.tracing.ledger import Ledger, unasked

X = jnp.ones(3)


@pytest.fixture
def ledger() -> Any:
    made = Ledger(cell=lambda: 7, is_ours=module.is_unasked)
    made.start()
    yield made
    made.stop()
    assert made.failed == 0


def told(ledger: Ledger, name: str) -> list[tuple[str, str]]:
    return [(c.reason, c.argument) for c in ledger.session().compilations if c.function.endswith(name)]


def test_each_stage_is_timed_once(ledger: Ledger) -> None:
    def f(x: Any) -> Any:
        return x * 3

    jax.jit(f)(X)
    (made,) = [c for c in ledger.session().compilations if c.function == "f"]
    assert made.origin == "user" and made.cell == 7 and made.reason == "first" and not made.cached
    assert made.trace_s > 0 and made.lower_s > 0 and made.compile_s > 0
    assert made.seconds == pytest.approx(made.trace_s + made.lower_s + made.compile_s)
    assert made.line == test_each_stage_is_timed_once.__code__.co_firstlineno + 4


def test_the_argument_that_changed_is_named(ledger: Ledger) -> None:
    def f(x: Any, n: Any = 1, cfg: Any = None) -> Any:
        return x * n

    g = jax.jit(f, static_argnames="cfg")
    g(X, 1.0)
    g(jnp.ones(4), 1.0)
    g(X, jnp.float32(1.0))
    g(X.astype(int), 1.0)
    g(X, 1.0, cfg="a")
    g(X, 1.0, cfg="b")
    assert told(ledger, "f") == [
        ("first", ""), ("shape", "x"), ("weak-type", "n"), ("dtype", "x"), ("structure", "cfg"), ("static", "cfg"),
    ]  # fmt: skip
    weak = next(c for c in ledger.session().compilations if c.reason == "weak-type")
    assert (weak.before, weak.after) == ("weak float32", "strong float32")


def test_functions_made_anew_and_cleared_caches(ledger: Ledger) -> None:
    for i in range(3):
        jax.jit(lambda x, i=i: x + i)(X)
    assert [r for r, _ in told(ledger, "<lambda>")] == ["first", "new-function", "new-function"]

    def again(x: Any) -> Any:
        return x - 2

    g = jax.jit(again)
    g(X)
    g.clear_cache()
    g(X)
    assert [r for r, _ in told(ledger, "again")] == ["first", "again"]


def test_operations_and_checks_are_no_functions_of_the_users(ledger: Ledger) -> None:
    jax.clear_caches()
    jnp.ones((2, 3, 5)) * 2
    assert {c.origin for c in ledger.session().compilations} == {"operation"}
    with unasked():
        jax.jit(lambda x: x + 1)(X)
    assert ledger.session().compilations[-1].origin == "check"


def test_a_trace_alone_has_no_compilation(ledger: Ledger) -> None:
    jax.jit(lambda x: x + 5).trace(X)
    assert ledger.session().compilations[-1].compile_s is None


def test_inner_functions_belong_to_the_outer_trace(ledger: Ledger) -> None:
    inner = jax.jit(lambda x: x * 2)
    jax.jit(lambda x: inner(x) + 1)(X)
    assert len([c for c in ledger.session().compilations if c.origin == "user"]) == 1


def test_no_value_is_kept_alive(ledger: Ledger) -> None:
    import gc
    import weakref

    class Thing:
        pass

    thing = Thing()

    seen = weakref.ref(thing)
    jax.jit(lambda x, held=thing: x + (1 if held else 2), static_argnames="held")(X, held=thing)
    del thing
    jax.clear_caches()
    gc.collect()
    assert seen() is None


def test_what_is_kept_is_limited(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    for i in range(4):
        jax.jit(lambda x, i=i: x + i)(X)
    session = ledger.session()
    assert len(session.compilations) == 2 and session.left_out >= 2


def test_nothing_is_heard_after_the_end() -> None:
    ledger = Ledger()
    ledger.start()
    ledger.stop()
    jax.jit(lambda x: x * 9)(X)
    assert ledger.session().compilations == ()


def test_how_long_a_stage_took_last_time(ledger: Ledger) -> None:
    def f(x: Any) -> Any:
        return x * 31

    assert ledger.last("f", "compiling") is None
    jax.jit(f)(X)
    name = "test_how_long_a_stage_took_last_time.<locals>.f".rpartition(".")[2]
    (made,) = [c for c in ledger.session().compilations if c.function == name]
    assert ledger.last(name, "compiling") == made.compile_s and ledger.last(name, "tracing") == made.trace_s
    assert ledger.last(name, "waiting") is None
