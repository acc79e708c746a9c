from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.measure import compare as module
from jitmagic.measure.compare import compare


def only(differences):
    assert len(differences) == 1, differences
    return differences[0]


def test_equal_results_do_not_differ():
    tree = {"w": jnp.arange(3.0), "n": [jnp.int32(3), None, True]}
    assert compare(tree, jax.tree.map(jnp.asarray, tree)) == ()


@pytest.mark.parametrize(
    ("eager", "jit"),
    [
        (2.5, jnp.float32(2.5)),
        (0.1, jnp.float32(0.1)),
        (3, jnp.int32(3)),
        (True, jnp.bool_(True)),
        (1 + 2j, jnp.complex64(1 + 2j)),
        (np.float64(0.1), jnp.float32(0.1)),
        (np.array([1, 2]), jnp.array([1, 2], jnp.int32)),
        (np.linspace(0, 1, 7), jnp.linspace(0, 1, 7)),
        (jnp.asarray(1.0), jnp.float32(1.0)),
    ],
)
def test_python_and_64_bit_values_that_agree_in_32_bits(eager, jit):
    assert compare(eager, jit) == ()


def test_a_function_that_is_made_at_each_call_is_compared_by_what_it_takes_along():
    def made(weight):
        def apply(weight, x):
            return weight * x

        return {"apply": jax.tree_util.Partial(apply, jnp.float32(weight))}

    assert compare(made(2.0), made(2.0)) == ()
    assert only(compare(made(2.0), made(3.0))).reason == "values"
    one, other = (jax.tree_util.Partial(g, 1.0) for g in (lambda x: x + 1, lambda x: x + 2))
    assert only(compare(one, other)).reason == "structure"


def test_leaves_are_named_by_path():
    difference = only(compare(({"w": jnp.ones(2)}, 1.0), ({"w": 2 * jnp.ones(2)}, jnp.float32(1))))
    assert (difference.leaf, difference.reason) == ("[0]['w']", "values")
    assert (difference.eager, difference.jit, difference.worst) == ("1", "2", 1.0)
    assert only(compare(jnp.float32(1), jnp.float32(3))).leaf == "result"


@pytest.mark.parametrize(
    ("eager", "jit", "reason"),
    [
        ((1.0, 2.0), [1.0, 2.0], "structure"),
        ({"a": 1.0}, {"b": 1.0}, "structure"),
        (jnp.ones((2, 3)), jnp.ones((3, 2)), "shape"),
        (jnp.ones(2, jnp.int32), jnp.ones(2), "dtype"),
        (jnp.ones(2, jnp.bfloat16), jnp.ones(2), "dtype"),
        (np.ones(2, np.float32), jnp.ones(2, jnp.int32), "dtype"),
        (20, jnp.float32(2.0), "values"),
        (np.ones(2, np.float32), jnp.array([1, 2]), "values"),
        (True, jnp.int32(3), "values"),
        (2**24 + 1, jnp.float32(2**24), "dtype"),
        (jnp.array([1.0, jnp.nan]), jnp.array([1.0, 2.0]), "NaN"),
        (jnp.array([1.0, 2.0]), jnp.array([1.0, jnp.nan]), "NaN"),
        (jnp.float32(jnp.inf), jnp.float32(-jnp.inf), "values"),
        (jnp.float32(1e30), jnp.float32(jnp.inf), "values"),
        (2**40, jnp.int32(0), "values"),
        (np.array([2**31]), jnp.array([-(2**31)], jnp.int32), "values"),
        (jnp.array([True, False]), jnp.array([True, True]), "values"),
        (jnp.array([1, 2]), jnp.array([1, 3]), "values"),
    ],
)
def test_what_differs(eager, jit, reason):
    assert only(compare(eager, jit)).reason == reason


def test_nan_and_infinity_in_the_same_places_agree():
    values = jnp.array([jnp.nan, jnp.inf, -jnp.inf, 1.0])
    assert compare(values, values + 0) == ()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32, jnp.complex64])
def test_rounding_passes_and_a_percent_more_than_that_does_not(dtype):
    eps = float(jnp.finfo(dtype).eps)
    values = jnp.linspace(1, 2, 50).astype(dtype)
    near = (values * (1 + eps)).astype(dtype)
    assert compare(values, near) == ()
    far = values.at[7].mul(1.1)
    assert only(compare(values, far)).reason == "values"


def test_double_precision_is_held_to_double_precision():
    values = np.linspace(1, 2, 50)
    jax.config.update("jax_enable_x64", True)
    try:
        assert compare(values, jnp.asarray(values) * (1 + 1e-15)) == ()
        assert only(compare(values, jnp.asarray(values) * (1 + 1e-9))).reason == "values"
    finally:
        jax.config.update("jax_enable_x64", False)


def test_large_sums_may_differ_more():
    assert compare(jnp.float32(1.0), jnp.float32(1.0001))
    assert compare(jnp.float32(1.0), jnp.float32(1.0001), terms=10_000) == ()


def test_cancellation_is_measured_by_the_leaf():
    eager = jnp.array([1e4, 1e-4])
    assert compare(eager, jnp.array([1e4, 2e-4])) == ()
    assert compare(eager[1:], jnp.array([2e-4]))


def test_random_keys_are_compared_by_their_data():
    assert compare(jax.random.key(3), jax.random.key(3)) == ()
    assert only(compare(jax.random.key(3), jax.random.key(4))).reason == "values"


def test_large_arrays_are_read_in_pieces(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 10)
    values = np.arange(7 * 5 * 4, dtype=np.float32).reshape(7, 5, 4)
    other = values.copy()
    assert compare(values, jnp.asarray(other)) == ()
    other[6, 4, 3] += 5
    difference = only(compare(values, jnp.asarray(other)))
    assert (difference.eager, difference.jit) == ("139", "144")


@pytest.mark.parametrize("shape", [(), (0,), (3,), (25,), (4, 25), (25, 4), (2, 3, 50), (30, 0)])
def test_pieces_cover_every_element_once(shape):
    seen = np.zeros(shape, int)
    for piece in module._pieces(shape, limit=10):
        assert seen[piece].size <= 10
        seen[piece] += 1
    assert (seen == 1).all()


def test_the_worst_element_is_reported():
    difference = only(compare(jnp.ones(4), jnp.array([1.0, 2.0, 5.0, 1.5])))
    assert (difference.worst, difference.jit) == (4.0, "5")
    assert 0 < difference.allowed < 1e-3


def test_the_reference_is_asked_only_when_values_differ():
    asked = []
    compare(jnp.ones(2), jnp.ones(2), reference=lambda: asked.append(1))
    compare(jnp.ones(2), jnp.ones(3), reference=lambda: asked.append(1))
    assert asked == []
    compare(jnp.ones(2), jnp.zeros(2), reference=lambda: asked.append(1) or jnp.ones(2))
    assert asked == [1]


def test_the_compiler_is_blamed_when_the_program_gives_the_plain_result():
    assert only(compare(jnp.ones(2), jnp.zeros(2), reference=lambda: [jnp.ones(2)])).compiler
    assert not only(compare(jnp.ones(2), jnp.zeros(2), reference=lambda: [jnp.zeros(2)])).compiler


def test_a_reference_that_fails_changes_nothing():
    def broken():
        raise MemoryError

    assert only(compare(jnp.ones(2), jnp.zeros(2), reference=broken)) == only(
        compare(jnp.ones(2), jnp.zeros(2))
    )


class Reference:
    def __init__(self, plain, noisy) -> None:
        self.plain, self.moved = plain, noisy

    def __call__(self):
        return self.plain

    def noisy(self):
        if self.moved is None:
            raise RuntimeError
        return self.moved


def test_a_difference_that_rounding_explains_is_dropped():
    eager, jit = jnp.array([1e-7]), jnp.array([3e-7])
    assert only(compare(eager, jit)).reason == "values"
    assert compare(eager, jit, reference=Reference([eager], [jnp.array([2e-7])])) == ()
    assert only(compare(eager, jit, reference=Reference([eager], [eager]))).compiler


def test_the_compiler_is_not_blamed_where_rounding_could_not_be_tried():
    assert not only(compare(jnp.ones(1), jnp.zeros(1), reference=Reference([jnp.ones(1)], None))).compiler


def test_a_worst_of_an_infinity_is_infinite():
    assert math.isinf(only(compare(jnp.float32(1e30), jnp.float32(jnp.inf))).worst)
