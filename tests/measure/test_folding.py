from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.measure.folding import constant_operations, folded, remaining_operations

A = jnp.asarray(np.random.default_rng(0).standard_normal((64, 64)), jnp.float32)


def stages(f, *args):
    trace = jax.jit(f).trace(*args)
    return trace.jaxpr, trace.lower().compile()


@pytest.mark.parametrize(
    ("f", "args", "expected"),
    [
        (lambda: (A @ A).sum(), (), True),
        (lambda x: x + (A @ A).sum(), (1.0,), True),
        (lambda a: (a @ a).sum(), (A,), False),
        (lambda x: x @ A, (A,), False),
        (lambda x: x * 2 * 3 * 4 * 5 * 6 * 7 * 8 * 9 * 10 * 11 * 12, (A,), False),
        (lambda x: x.T, (A,), False),
        (lambda x: jax.lax.scan(lambda c, _: (c @ c, None), x, None, 50)[0], (A,), False),
    ],
)
def test_what_the_compiler_did_beforehand(f, args, expected):
    assert folded(*stages(f, *args)) is expected


def test_a_program_without_text_is_not_folded():
    class Silent:
        def as_text(self):
            return None

    assert folded(stages(lambda: (A @ A).sum())[0], Silent()) is False


def test_operations_on_constants_alone():
    other = jnp.ones(64)

    def f(x):
        k = jnp.log(jnp.abs(A)).sum()
        return x * k + other

    program = jax.jit(f).trace(jnp.ones(64)).jaxpr
    names = sorted(op.name for op in constant_operations(program))
    assert names == ["abs", "log", "reduce_sum"]


def test_inputs_reach_through_inner_programs():
    def f(x):
        carry, _ = jax.lax.scan(lambda c, _: (jax.jit(jnp.tanh)(c @ A), None), x, None, 3)
        return jax.lax.cond(carry.sum() > 0, lambda: A * 2, lambda: A * 3) + 1

    found = constant_operations(jax.jit(f).trace(A).jaxpr)
    # The branch's product is on constants alone; its result is not, for the choice is not.
    assert [op.name for op in found] == ["mul"]


def test_a_carry_that_an_input_reaches_late_is_no_constant():
    def f(x):
        def step(c, _):
            a, b = c
            return (jnp.sin(b), b + x), None

        return jax.lax.scan(step, (A, A), None, 4)[0][0]

    assert constant_operations(jax.jit(f).trace(1.0).jaxpr) == []


def test_a_program_without_constants_has_none():
    assert constant_operations(jax.jit(lambda x: x + 1).trace(1.0).jaxpr) == []


HLO = """
ENTRY %main.2 (x.1: f32[]) -> f32[] {
  %x.1 = f32[3,4]{1,0} parameter(0)
  %c = f32[] constant(0)
  %r = f32[] reduce(%x.1, %c), dimensions={0,1}, to_apply=%region
  %p = (f32[2]{0}, s32[]) tuple(%a, %b)
  %d = f32[3,3]{1,0} dot(%x.1, %x.1), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT %wrapped = f32[] add(%r, %c)
}
"""


def test_reading_an_optimised_program():
    assert remaining_operations(HLO) == 12 + 2 * 9 * 4 + 1
    assert math.isinf(remaining_operations(HLO + "  %w = f32[] while(%x.1), condition=%a\n"))
