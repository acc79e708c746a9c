from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jitmagic.measure.cost import line_costs, total_cost
from jitmagic.measure.program import walk


def flops(f, *args):
    return total_cost(jax.jit(f).trace(*args).jaxpr).flops


def ones(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def test_matrix_products():
    assert flops(jnp.matmul, ones(3, 5), ones(5, 7)) == 2 * 3 * 5 * 7
    assert flops(jnp.matmul, ones(4, 3, 5), ones(4, 5, 7)) == 4 * 2 * 3 * 5 * 7
    assert flops(jnp.dot, ones(5), ones(5)) == 2 * 5
    complex_ = ones(3, 3, dtype=jnp.complex64)
    assert flops(jnp.matmul, complex_, complex_) == 4 * 2 * 27
    assert flops(jax.vmap(jnp.matmul), ones(4, 3, 5), ones(4, 5, 7)) == 4 * 2 * 3 * 5 * 7


def conv(padding, **options):
    def run(x, k):
        return jax.lax.conv_general_dilated(x, k, (1, 1), padding, **options)

    return run


def test_convolutions():
    x, k = ones(2, 3, 8, 10), ones(5, 3, 3, 3)
    assert flops(conv("VALID"), x, k) == 2 * 2 * 5 * 6 * 8 * 3 * 9
    taps = (8 * 3 - 2) * (10 * 3 - 2)
    assert flops(conv("SAME"), x, k) == 2 * 2 * 5 * 3 * taps
    grouped = conv("VALID", feature_group_count=3)
    assert flops(grouped, x, ones(6, 1, 3, 3)) == 2 * 2 * 6 * 6 * 8 * 9


def test_both_gradients_of_a_convolution_cost_what_it_costs():
    x, k = ones(2, 3, 8, 10), ones(5, 3, 3, 3)
    forward = flops(conv("VALID"), x, k)
    both = flops(lambda x, k: jax.vjp(conv("VALID"), x, k)[1](jnp.ones((2, 5, 6, 8))), x, k)
    assert both == pytest.approx(3 * forward)


def test_agrees_with_xla_on_products_and_padded_convolutions():
    for f, args in (
        (conv("SAME"), (ones(2, 3, 8, 10), ones(5, 3, 3, 3))),
        (jnp.matmul, (ones(9, 5), ones(5, 7))),
    ):
        analysis = jax.jit(f).lower(*args).cost_analysis()
        assert flops(f, *args) == pytest.approx(analysis["flops"])


def test_a_scan_counts_its_length():
    def f(x):
        return jax.lax.scan(lambda c, _: (c @ c, None), x, None, 11)[0]

    assert flops(f, ones(4, 4)) == 11 * 2 * 4**3
    nested = flops(lambda x: jax.lax.map(f, x), ones(3, 4, 4))
    assert nested == 3 * 11 * 2 * 4**3


def test_gradient_of_a_network():
    n, d, h = 32, 10, 20

    def loss(params, x, y):
        w1, b1, w2 = params
        return jnp.mean((jnp.tanh(x @ w1 + b1) @ w2 - y) ** 2)

    params = (ones(d, h), ones(h), ones(h, 1))
    forward = 2 * n * d * h + 2 * n * h
    # Backward: dw2 and dh of the second layer, dw1 of the first; the input needs no gradient.
    products = forward + 2 * 2 * n * h + 2 * n * d * h
    total = flops(jax.grad(loss), params, ones(n, d), ones(n, 1))
    assert products <= total <= products + 12 * n * h


def test_attention():
    heads, t, d = 4, 16, 8

    def attention(q, k, v):
        scores = jnp.einsum("htd,hsd->hts", q, k) / jnp.sqrt(float(d))
        return jnp.einsum("hts,hsd->htd", jax.nn.softmax(scores), v)

    q = ones(heads, t, d)
    products = 2 * 2 * heads * t * t * d
    total = flops(attention, q, q, q)
    # Scale, maximum, subtraction, exponential, sum and quotient: six per score, give or take a row.
    assert products + 5 * heads * t * t <= total <= products + 7 * heads * t * t


def test_elementwise_and_reductions():
    assert flops(lambda x: jnp.exp(x) + 1, ones(6, 5)) == 60
    assert flops(lambda x: jnp.sum(x), ones(6, 5)) == 29
    assert flops(lambda x: x.T.reshape(-1)[3:], ones(6, 5)) == 0
    assert flops(lambda x: jnp.cumsum(x), ones(30)) == 30
    assert flops(lambda x: jnp.sort(x), ones(2, 8)) == 2 * 8 * 3
    assert flops(lambda x: x.at[jnp.array([1, 2])].add(1.0, mode="promise_in_bounds"), ones(9)) >= 2


def test_dense_linear_algebra():
    n = 12
    # Around the factorisation jax makes the input symmetric and the result triangular: up to 4 per element.
    assert n**3 / 3 <= flops(jax.lax.linalg.cholesky, ones(n, n)) <= n**3 / 3 + 4 * n**2
    assert flops(jax.lax.linalg.lu, ones(n, n)) == pytest.approx(2 * n**3 / 3)
    assert flops(lambda a: jax.lax.linalg.svd(a, compute_uv=False), ones(n, n)) == pytest.approx(8 * n**3 / 3)
    triangular = flops(
        lambda a, b: jax.lax.linalg.triangular_solve(a, b, left_side=True), ones(n, n), ones(n, 5)
    )
    assert triangular == n * n * 5
    assert flops(jnp.fft.fft, ones(64, dtype=jnp.complex64)) == 5 * 64 * 6
    assert flops(jnp.fft.rfft, ones(64)) == 5 * 64 * 6 / 2
    batched = flops(jax.vmap(jax.lax.linalg.lu), ones(3, n, n))
    assert batched == pytest.approx(3 * 2 * n**3 / 3)


def test_of_a_choice_the_dearest_branch_counts():
    def f(p, x):
        return jax.lax.cond(p, lambda v: v @ v, lambda v: v + 1, x)

    assert flops(f, ones(dtype=bool), ones(4, 4)) == 2 * 4**3
    flipped = flops(
        lambda p, x: jax.lax.cond(p, lambda v: v + 1, lambda v: v @ v, x), ones(dtype=bool), ones(4, 4)
    )
    assert flipped == 2 * 4**3


def test_a_while_loop_is_unknown():
    def f(x):
        y = x @ x
        return jax.lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c + 1, y)

    program = jax.jit(f).trace(ones(4, 4)).jaxpr
    assert total_cost(program).flops is None
    line = f.__code__.co_firstlineno + 2
    product, loop = line_costs(program, __file__)
    assert product.flops == 128 and product.line == line - 1
    assert (loop.flops, loop.bytes, loop.line) == (None, None, line)


def test_a_callback_is_unknown():
    def f(x):
        return jax.pure_callback(lambda v: v, x, x) + 1

    program = jax.jit(f).trace(jnp.ones(3)).jaxpr
    assert total_cost(program).flops is None


def test_costs_belong_to_the_innermost_line_of_the_file():
    @jax.jit
    def helper(v):
        return v @ v

    def f(x):
        y = jnp.var(x)
        z = helper(x) + y
        return jnp.tanh(z)

    jax.jit(lambda x: jnp.var(x) + helper(x))(jnp.ones((3, 3)))  # both inner programs are traced already
    program = jax.jit(f).trace(jnp.ones((3, 3))).jaxpr
    first, inside = f.__code__.co_firstlineno, helper.__wrapped__.__code__.co_firstlineno
    costs = {c.line: c for c in line_costs(program, __file__)}
    assert set(costs) == {inside + 2, first + 1, first + 2, first + 3}
    assert costs[inside + 2].flops == 54 and costs[first + 2].flops == 9 and costs[first + 3].flops == 9
    assert costs[first + 1].equations > 3
    assert sum(c.flops for c in costs.values()) == total_cost(program).flops
    assert sum(c.equations for c in costs.values()) == len(walk(program))


def test_lines_of_another_file_are_left_out():
    program = jax.jit(lambda x: x + 1).trace(1.0).jaxpr
    assert line_costs(program, "elsewhere.py") == ()


def test_bytes_in_and_out():
    def total(f, *args):
        return total_cost(jax.jit(f).trace(*args).jaxpr).bytes

    assert total(jnp.matmul, ones(3, 5), ones(5, 7)) == 4 * (15 + 35 + 21)
    assert total(lambda x: x * 2, ones(8, dtype=jnp.bfloat16)) == 2 * 16
    assert total(lambda x: jax.lax.slice(x, (0,), (2,)), ones(1000)) == 2 * 8


def test_peak_memory_is_the_backends_word_or_nothing():
    compiled = jax.jit(lambda x: x * 2).lower(ones(256)).compile()
    program = jax.jit(lambda x: x * 2).trace(ones(256)).jaxpr
    assert total_cost(program, compiled).peak_bytes >= 2048
    assert total_cost(program).peak_bytes is None

    class Silent:
        def memory_analysis(self):
            return None

    assert total_cost(program, Silent()).peak_bytes is None


def test_an_open_jaxpr_will_do():
    closed = jax.make_jaxpr(lambda x: x @ x)(jnp.ones((2, 2)))
    assert total_cost(closed.jaxpr).flops == total_cost(closed).flops == 16
