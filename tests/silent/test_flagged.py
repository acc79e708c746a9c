"""One compiled run that marks every operation blames what a run operation by operation blames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jitmagic.measure.reference import CannotEvaluate
from jitmagic.silent import finite, flagged


def overflow(x: Any) -> Any:
    return jnp.log(jnp.linalg.det(x * jnp.eye(60))) + x.sum()


def product(x: Any) -> Any:
    return 0.0 * jnp.exp(1000.0 * x).sum()


def meant(x: Any) -> Any:
    return jnp.max(jnp.where(x > 100, x, -jnp.inf), initial=-jnp.inf)


def turns(x: Any) -> Any:
    def turn(carry: Any, step: Any) -> Any:
        grown = jnp.exp(carry) * step
        return grown, jnp.log(grown)

    return jax.lax.scan(turn, x, jnp.arange(1.0, 9.0))


def slope(x: Any) -> Any:
    return jax.grad(lambda v: jnp.where(v < 100, v, jnp.sqrt(v - 100)).sum())(x - x + 100.0)


def inner(x: Any) -> Any:
    return jax.jit(lambda v: jnp.arccos(v + 3))(x) * 2


def missing(x: Any) -> Any:
    return jnp.where(x > 1, jnp.cumsum(x) * 2, jnp.nan) + x


@pytest.mark.parametrize("f", [overflow, product, meant, missing, turns, slope, inner])
def test_both_blame_the_same(f: Callable[[Any], Any]) -> None:
    x = jnp.float32(50.0) if f is overflow else jnp.arange(3.0)
    program = jax.jit(f).trace(x).jaxpr
    one_by_one = finite.first_not_finite(program, [x], 60.0)
    assert flagged.first_not_finite(program, [x]) == one_by_one
    assert (one_by_one is None) == (f in (meant, missing))


def test_the_turn_of_a_loop_in_which_it_happens_is_not_the_last() -> None:
    found = flagged.first_not_finite(jax.jit(turns).trace(jnp.ones(2)).jaxpr, [jnp.ones(2)])
    assert found is not None and found.operation == "exp" and found.infinite


def test_a_while_loop_is_left_to_the_other_way() -> None:
    def f(x: Any) -> Any:
        return jax.lax.while_loop(lambda v: (v < 1e30).all(), lambda v: v * 1e30, x)

    with pytest.raises(CannotEvaluate):
        flagged.first_not_finite(jax.jit(f).trace(1e10).jaxpr, [jnp.float32(1e10)])


def test_long_programs_are_not_dispatched_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite, "_NotFiniteWatch", None)
    program = jax.jit(turns).trace(jnp.ones(2)).jaxpr
    monkeypatch.setattr(finite, "MANY", 5)
    found = finite.first_not_finite(program, [jnp.ones(2)])
    assert found is not None and found.operation == "exp"
