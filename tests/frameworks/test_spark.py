"""Spark's modules (`spark-snn`) as they are: built by their first call, split and merged, through a method of one's own."""

from __future__ import annotations

import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitmagic
from jitmagic.state.values import contains_tracer

if sys.version_info < (3, 12):
    pytest.skip("needs Python 3.12: spark-snn", allow_module_level=True)
spark = pytest.importorskip("spark", reason="needs spark-snn")
if not hasattr(spark, "SpikeArray"):
    pytest.skip("needs spark-snn", allow_module_level=True)

STEPS = 12


@pytest.fixture(scope="module")
def spikes():
    return spark.SpikeArray(jax.random.uniform(jax.random.key(1), (16,), jnp.float16) < 0.5)


@pytest.fixture(scope="module")
def config():
    """Models made with the same configuration draw the same random numbers."""
    return spark.nn.neurons.ALIFNeuron(
        units=(8,), max_delay=4, inhibitory_rate=0.2, _s_async_spikes=True, _s_units=(8,)
    ).config


@pytest.fixture
def model(config):
    return spark.nn.neurons.ALIFNeuron(config=config)


@pytest.fixture(scope="module")
def wanted(config, spikes):
    plain = spark.nn.neurons.ALIFNeuron(config=config)
    out = [leaves(plain(in_spikes=spikes)) for _ in range(STEPS)]
    return out, leaves(spark.split(plain)[1])


def leaves(tree):
    def keys(x):
        return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    return [np.asarray(keys(x), np.float64) for x in jax.tree.leaves(tree)]


def check(got, model, wanted):
    for a, b in zip(itertools.chain(*got), itertools.chain(*wanted[0]), strict=True):
        np.testing.assert_array_equal(a, b)
    state = leaves(spark.split(model)[1])
    assert len(state) == len(wanted[1])
    for a, b in zip(state, wanted[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=0.01, atol=0.01)  # half precision
    assert not contains_tracer(model)


def test_a_model_that_builds_itself_is_one_further_trace(model, spikes, wanted):
    ticks = itertools.count()

    def run(**inputs):
        traces.append(next(ticks))
        return model(**inputs)

    traces = []
    step = jitmagic.jit(run)
    got = [leaves(step(in_spikes=spikes)) for _ in range(STEPS)]
    check(got, model, wanted)
    assert step._cache_size() == 1 and traces == [0, 1]
    assert len(step.__jitmagic__.program.places) > 10


@pytest.mark.parametrize("built", [False, True])
def test_the_model_itself(model, spikes, wanted, built):
    first = [leaves(model(in_spikes=spikes))] if built else []
    step = jitmagic.jit(model)
    check([*first, *(leaves(step(in_spikes=spikes)) for _ in range(STEPS - built))], model, wanted)


def test_an_error_while_it_is_built_leaves_it_unbuilt(model, spikes, wanted):
    fail = True

    def run(**inputs):
        out = model(**inputs)
        if fail:
            raise ValueError("no")
        return out

    before = set(vars(model))
    step = jitmagic.jit(run)
    with pytest.raises(ValueError, match="no"):
        step(in_spikes=spikes)
    assert set(vars(model)) == before and not contains_tracer(model)
    fail = False
    check([leaves(step(in_spikes=spikes)) for _ in range(STEPS)], model, wanted)


def test_split_and_merge(model, spikes, wanted):
    first = leaves(model(in_spikes=spikes))
    graph, state = spark.split(model)

    @jitmagic.jit
    def run(graph, state, **inputs):
        merged = spark.merge(graph, state)
        out = merged(**inputs)
        return out, spark.split(merged)[1]

    got = [first]
    for _ in range(STEPS - 1):
        out, state = run(graph, state, in_spikes=spikes)
        got.append(leaves(out))
    check(got, spark.merge(graph, state), wanted)
    assert run._cache_size() == 1
