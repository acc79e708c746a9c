from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.measure.compare import compare
from jitmagic.measure.reference import CannotEvaluate, TracedProgram, largest_reduction, mended


def traced(f, *args):
    return jax.jit(f).trace(*args).jaxpr


def op_by_op(program, *args):
    return TracedProgram(program, args)()


def logs(y):
    return jnp.sum(jnp.log(y) + jnp.log(2 * y))


@pytest.mark.parametrize("size", [1000, 4096])
def test_a_miscompiled_sum_is_the_compilers_fault(size):
    """XLA:CPU of jaxlib 0.10 to 0.12 is off by a quarter here; NumPy tells whether this one is too."""
    y = jnp.full(size, 3.0)
    truth = size * (np.log(3.0) + np.log(6.0))
    compiled = jax.jit(logs)(y)
    wrong = not np.isclose(float(compiled), truth, rtol=1e-3)
    program = traced(logs, y)
    found = compare(
        logs(y), compiled, reference=TracedProgram(program, [y]), terms=largest_reduction(program)
    )
    assert bool(found) == wrong
    assert all(d.compiler and d.reason == "values" for d in found)
    assert float(TracedProgram(program, [y])()[0]) == pytest.approx(truth, rel=1e-4)


def test_a_wrong_compiler_is_blamed_whatever_this_one_does():
    y = jnp.full(4096, 3.0)
    program = traced(logs, y)
    (found,) = compare(logs(y), jnp.float32(8999.8), reference=TracedProgram(program, [y]), terms=4096)
    assert found.compiler and found.eager.startswith("118") and found.jit == "8999.8"


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="this compiler neither errs nor has the option")
def test_the_remedy_gives_the_right_sum_and_is_not_tried_where_it_would_print_twice():
    y = jnp.full(4096, 3.0)
    assert float(mended(traced(logs, y), [y])[0]) == pytest.approx(
        4096 * (np.log(3.0) + np.log(6.0)), rel=1e-4
    )
    with pytest.raises(CannotEvaluate):
        mended(traced(lambda x: jax.debug.print("{}", x) or x, 1.0), [1.0])


def test_an_impure_function_is_not_the_compilers_fault():
    program = traced(lambda x: x * 2, jnp.ones(3))
    (found,) = compare(jnp.ones(3) * 3, jnp.ones(3) * 2, reference=TracedProgram(program, [jnp.ones(3)]))
    assert not found.compiler


def scans(x):
    return jax.lax.scan(
        lambda c, s: (c * 0.5 + s, (c.sum(), s)), x, jnp.arange(12.0).reshape(4, 3), reverse=True
    )


def loops(x):
    return jax.lax.while_loop(lambda c: c.sum() < 100 + x.sum(), lambda c: c * 2 + x[0], x)


def choices(x):
    return jax.lax.switch((x.sum() > 0).astype(int) + 1, [jnp.sin, jnp.cos, lambda v: v * (v @ v)], x)


def inner(x):
    return jax.grad(lambda v: jnp.linalg.norm(jax.nn.relu(v)) + jax.jit(jnp.var)(v))(x)


def keys(x):
    return jax.lax.map(lambda k: jax.random.fold_in(k, 1), jax.random.split(jax.random.key(0), 3)), x


def solves(x):
    a = x[:, None] * x[None, :] + jnp.eye(3)
    return jnp.linalg.solve(a, x), jax.checkpoint(jnp.tanh)(x)


@pytest.mark.parametrize("f", [scans, loops, choices, inner, keys, solves])
def test_every_construct_gives_the_compiled_result(f):
    x = jnp.array([0.5, 1.0, 2.0])
    flat = TracedProgram(traced(f, x), [x])()
    result = jax.jit(f)(x)
    assert compare(result, jax.tree.unflatten(jax.tree.structure(result), flat), terms=10) == ()


def test_each_operation_runs_by_itself(monkeypatch):
    from jitmagic.measure.reference import Evaluator

    ran = []
    plain = Evaluator.primitive
    monkeypatch.setattr(
        Evaluator, "primitive", lambda self, e, args: ran.append(e.primitive.name) or plain(self, e, args)
    )
    program = traced(lambda x: jax.lax.scan(lambda c, _: (jax.jit(jnp.sin)(c), None), x, None, 3)[0], 1.0)
    TracedProgram(program, [jnp.float32(1.0)])()
    assert ran == ["sin"] * 3


def test_closed_over_arrays_keep_their_values():
    w = jnp.arange(3.0)
    (result,) = TracedProgram(traced(lambda x: x @ w, jnp.ones(3)), [jnp.ones(3)])()
    assert float(result) == 3.0


def test_prints_are_not_repeated(capfd):
    def f(x):
        jax.debug.print("seen {}", x)
        return x + 1

    program = traced(f, 1.0)
    assert float(TracedProgram(program, [1.0])()[0]) == 2.0
    jax.effects_barrier()
    assert "seen" not in capfd.readouterr().out


def test_side_effects_are_refused():
    calls = []

    def f(x):
        return jax.experimental.io_callback(lambda v: calls.append(1) or v, x, x)

    with pytest.raises(CannotEvaluate):
        TracedProgram(traced(f, jnp.float32(1)), [jnp.float32(1)])()
    assert calls == []


def test_the_budget_ends_a_long_evaluation():
    ticks = iter(range(10_000))
    program = traced(lambda x: jax.lax.fori_loop(0, 1000, lambda i, c: c * 1.5, x), 1.0)
    with pytest.raises(CannotEvaluate):
        TracedProgram(program, [1.0], budget_s=20, clock=lambda: next(ticks))()
    assert next(ticks) < 100


def test_noise_is_small_where_rounding_is_harmless_and_large_where_it_is_not():
    x = jnp.float32(0.3)

    def chaotic(x):
        return jax.lax.fori_loop(0, 60, lambda i, c: 3.9 * c * (1 - c), x)

    for f, harmless in ((lambda x: jnp.sin(x) * 2, True), (chaotic, False)):
        program = TracedProgram(traced(f, x), [x])
        moved = abs(float(program()[0]) - float(program.noisy()[0]))
        assert (moved < 1e-5) == harmless


def test_noise_leaves_exact_numbers_alone():
    x = jnp.array([0.0, 1.0, -3.0, jnp.inf, jnp.nan])
    program = TracedProgram(traced(lambda x: (x + 1, jnp.int32(3)), x), [x])
    np.testing.assert_array_equal(program.noisy()[0], x + 1)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32, jnp.complex64])
def test_noise_moves_by_one_unit(dtype):
    x = jnp.linspace(0.3, 0.9, 5).astype(dtype)
    (moved,) = TracedProgram(traced(lambda v: v, x), [x]).noisy()
    off = np.abs(np.asarray(moved, complex) - np.asarray(x, complex))
    assert (off > 0).all() and (off <= float(jnp.finfo(dtype).eps)).all()


@pytest.mark.parametrize(
    ("f", "terms"),
    [
        (lambda x: x + 1, 1),
        (lambda x: x @ x.T, 30),
        (lambda x: x.sum(), 600),
        (lambda x: jax.jit(jnp.mean)(x), 600),
        (lambda x: jnp.cumsum(x, axis=1), 30),
        (lambda x: jax.lax.scan(lambda c, r: (c + r.sum(), None), 0.0, x)[0], 600),
    ],
)
def test_largest_reduction(f, terms):
    assert largest_reduction(traced(f, jnp.ones((20, 30)))) == terms


B = jnp.ones((64, 64))
HALVES = np.random.default_rng(3).standard_normal(3000).astype(np.float32)
CANCELLING = np.random.default_rng(4).permutation(np.concatenate([HALVES, -HALVES * np.float32(1.0000001)]))


def total(x):
    return np.asarray(x, np.float64)


PATTERNS = {
    "largest": (
        lambda y: jnp.max(jnp.log(y) + jnp.log(2 * y)),
        jnp.full(4096, 3.0),
        np.log(3.0) + np.log(6.0),
    ),
    "least": (lambda y: jnp.min(jnp.log(y) + jnp.log(2 * y)), jnp.full(4096, 3.0), np.log(3.0) + np.log(6.0)),
    "layer": (lambda x: jnp.sum(jnp.tanh(x @ x) @ B), jnp.ones((64, 64)), 64.0**3),
    "mean": (lambda x: jnp.mean(jnp.tanh(x @ x) @ B, axis=0), jnp.ones((64, 64)), np.full(64, 64.0)),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_other_patterns_of_the_same_fault(name):
    """NumPy tells whether this compiler gets it wrong; where it does it is found, where it does not nothing is."""
    f, x, truth = PATTERNS[name]
    compiled, program = jax.jit(f)(x), traced(f, x)
    wrong = not np.allclose(total(compiled), truth, rtol=1e-3)
    found = compare(f(x), compiled, reference=TracedProgram(program, [x]), terms=largest_reduction(program))
    assert bool(found) == wrong and all(d.compiler for d in found)


def iterated(x):
    for _ in range(60):
        x = 3.9 * x * (1 - x) + jnp.sin(x) * 0.01
    return x


ORDINARY = {
    "cancellation": (lambda b: jnp.sum(jnp.tanh(b)), CANCELLING),
    "chaos": (iterated, np.linspace(0.1, 0.3, 500, dtype=np.float32)),
    "softmax": (lambda a: jax.nn.logsumexp(a * 100, axis=-1), HALVES.reshape(30, 100)),
    "normalised": (lambda a: (a - a.mean()) / jnp.sqrt(a.var() + 1e-12), HALVES),
    "variance": (lambda a: jnp.var(a + 1e4), HALVES),
    "half": (lambda a: jnp.sum(a.astype(jnp.float16)), HALVES),
    "gradient": (jax.grad(lambda a: jnp.sum(jnp.tanh(a @ a.T) ** 2)), HALVES[:900].reshape(30, 30)),
    "solve": (
        lambda a: jnp.linalg.solve(a @ a.T + 1e-3 * jnp.eye(20), a[:, 0]),
        HALVES[:380].reshape(20, 19),
    ),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_rounding_is_not_blamed_on_anybody(name):
    f, x = ORDINARY[name][0], jnp.asarray(ORDINARY[name][1])
    program = traced(f, x)
    assert (
        compare(f(x), jax.jit(f)(x), reference=TracedProgram(program, [x]), terms=largest_reduction(program))
        == ()
    )


def test_the_first_line_that_goes_wrong(monkeypatch):
    from jitmagic.measure import parting
    from jitmagic.tracing.compat import jaxpr_of

    def f(x):
        y = x * 2 + 1
        z = jnp.sin(y)
        w = jnp.sum(z)
        return w * 3

    first = f.__code__.co_firstlineno
    x, program = jnp.ones(5), traced(f, jnp.ones(5))
    assert parting.first_parting(program, [x], __file__) is None
    honest = parting._compiled

    def broken(closed, index, args):
        """A compiler that gets every sum wrong, and with it what is made of it."""
        names = [e.primitive.name for e in jaxpr_of(closed).eqns[: index + 1]]
        return [v * 1.5 if "reduce_sum" in names else v for v in honest(closed, index, args)]

    monkeypatch.setattr(parting, "_compiled", broken)
    assert parting.first_parting(program, [x], __file__) == first + 3
    assert parting.first_parting(program, [x], __file__, budget_s=-1.0) is None


def test_the_first_line_of_a_real_fault(notebook):
    notebook.ok(
        "%%jit -q --no-time\ndef f(y):\n    a = jnp.log(y)\n    b = a + jnp.log(2 * y)\n    s = jnp.sum(b)\n    return s * 2\nf(jnp.full(4096, 3.0))"
    )
    wrong = [f for f in notebook.report().findings if f.kind == "jit-differs-from-eager"]
    for finding in wrong:  # this compiler may be right
        assert finding.span.line == 5 and "first line that goes wrong" in finding.message
