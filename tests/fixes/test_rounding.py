"""Long loops carry rounding along: no reason to reject a rewrite, and no excuse for another result."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jitmagic.fixes import rewrites
from jitmagic.fixes.prove import Prover
from jitmagic.fixes.rounding import explains
from jitmagic.measure.compare import compare
from tests.fixes.conftest import corrections, fixes_of, watched

CELL = """
def f(x, r):
    for _ in range(60):
        y = r * x * (1 - x)
        if y > 1e-9:
            x = y
    return x
"""
CALL = "f(jnp.float32(0.3), jnp.float32(3.9))"


def steps(x: Any, r: Any, count: int) -> Any:
    for _ in range(count):
        x = r * x * (1 - x)
    return x


def test_a_chaotic_loop_explains_what_one_step_does_not() -> None:
    checker, _ = watched(CELL, [CALL])
    x, r = jnp.float32(0.3), jnp.float32(3.9)
    for count, explained in ((1, False), (60, True)):
        jitted = jax.jit(lambda x, r, count=count: steps(x, r, count))
        plain = steps(x, r, count)
        other = plain * jnp.float32(1.001)
        assert compare(plain, other)
        assert explains(checker, jitted, ((x, r), {}), (plain, other)) is explained


def test_another_type_is_not_rounding() -> None:
    checker, _ = watched(CELL, [CALL])
    x, r = jnp.float32(0.3), jnp.float32(3.9)
    jitted = jax.jit(lambda x, r: steps(x, r, 60))
    assert not explains(checker, jitted, ((x, r), {}), (steps(x, r, 60), jnp.int32(0)))


def test_the_readable_rewrite_of_a_chaotic_loop_is_proved() -> None:
    (fix,) = fixes_of(CELL, [CALL])
    assert fix.verified and "x = jnp.where(y > 1e-9, y, x)" in (fix.cell or "")


def test_the_evidence_says_where_rounding_was_needed() -> None:
    checker, _ = watched("def f(x, r):\n    return x * r\n", ["f(jnp.float32(0.3), jnp.float32(3.9))"])
    prover = Prover(checker)
    assert prover.options(checker.options).words == "traced; equal to the run without jit on 1 call"
    plain = steps(jnp.float32(0.3), jnp.float32(3.9), 60)
    prover._eager = [plain * jnp.float32(1.001)]
    looped = jax.jit(lambda x, r: steps(x, r, 60))
    found = prover._compare(looped, checker.options)
    assert found.holds and found.words == "traced; equal to the run without jit up to rounding on 1 call"


def test_one_search_serves_every_finding_that_stops_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[Any] = []
    run = rewrites.Search.run
    monkeypatch.setattr(
        rewrites.Search, "run", lambda self, place: searches.append(place) or run(self, place)
    )
    cell = "def f(x):\n    y = float(x.sum())\n    if x[0] > 0:\n        y = -y\n    return y\n"
    found = corrections(cell, ["f(jnp.ones(3))"])
    cells = [fix.cell or "" for _, fix in found]
    assert [kind for kind, _ in found] == ["tracer-array-conversion", "tracer-bool"]
    assert cells[0] == cells[1] and "float(" not in cells[0] and "if " not in cells[0] and len(searches) == 1
