"""The generated wrapper: the user's signature, the variables spelled out, all written or nothing."""

from __future__ import annotations

import inspect
import re

import jax.numpy as jnp
import pytest

import jitmagic
from jitmagic.state import plan, wrapper


class Box:
    def __init__(self, **kw):
        self.__dict__.update(kw)


class Slow:
    """Assignments go through a method, so an interrupt can come between two of them."""

    def __init__(self):
        object.__setattr__(self, "a", jnp.float32(0))
        object.__setattr__(self, "b", jnp.float32(0))

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


@pytest.fixture
def sources(monkeypatch):
    """The source of every wrapper that is generated."""
    found, define = [], wrapper.define
    monkeypatch.setattr(
        wrapper, "define", lambda source, *rest: (found.append(source), define(source, *rest))[1]
    )
    return found


def counting(box, **options):
    def step(x, k=1.0, *, sign=1):
        box.n = box.n + x * k * sign
        return box.n

    return jitmagic.jit(step, dyn_vars="box", **options)


def test_signature_and_names(sources):
    step = counting(Box(n=jnp.float32(0)))
    step(1.0)
    assert str(inspect.signature(step)) == "(x, k=1.0, *, sign=1)" and step.__name__ == "step"
    assert "box.n" in sources[-1] and "def call(x, k=" in sources[-1]  # a free variable: no `cell_contents`
    assert [float(step(1.0)), float(step(1.0, 2.0)), float(step(1.0, sign=-1))] == [2.0, 4.0, 3.0]


def test_variables_are_written_in_the_order_in_which_they_are_declared(sources):
    names = ["late", "early", "w", "b", "momentum", "a"]
    box = Box(**dict.fromkeys(names, jnp.float32(0)))

    def step(x):
        for name in sorted(names):
            setattr(box, name, getattr(box, name) + x)

    jitmagic.jit(step, dyn_vars=[f"box.{name}" for name in names])(1.0)
    written = re.findall(r"\.(\w+) = _jm_n", sources[-1])
    assert written == names and float(box.w) == 1.0


@pytest.mark.parametrize("given", ["args", "kwargs", "call", "self"])
def test_free_variables_with_names_of_the_wrapper(given):
    source = f"def make({given}):\n    def f(*a, **k):\n        {given}.n = {given}.n + 1\n        return {given}.n\n    return f\n"
    space = {}
    exec(source, space)
    step = jitmagic.jit(space["make"](Box(n=jnp.float32(0))), dyn_vars=given)
    assert [float(step()) for _ in range(3)] == [1.0, 2.0, 3.0]


def test_an_unused_default_is_not_passed_on():
    w = Box(n=jnp.float32(1))

    def f(x, mode="text"):
        return x * w.n * len(mode)

    assert float(jitmagic.jit(f, dyn_vars="w")(2.0)) == 8.0


def test_one_plan_is_told_by_unpacking_several_by_length(sources):
    box = Box(n=jnp.float32(0), m=jnp.float32(0))

    def f(x, both):
        box.n = box.n + x
        if both:
            box.m = box.m + x
        return x

    step = jitmagic.jit(f, dyn_vars="box", static_argnames="both")
    step(1.0, False)
    assert "len(_jm_r)" not in sources[-1]
    step(1.0, True)
    step(1.0, False)
    assert "len(_jm_r)" in sources[-1] and (float(box.n), float(box.m)) == (3.0, 1.0)


def test_frozen_values_that_the_function_does_not_name_are_not_watched(sources):
    options = Box(rate=2.0, unused=3.0, helper=len)
    box = Box(n=jnp.float32(0))

    def f(x):
        box.n = box.n + x * options.rate
        return x

    step = jitmagic.jit(f, dyn_vars="box")
    step(1.0)
    assert "options.rate" in sources[-1] and "unused" not in sources[-1]
    options.unused = 4.0
    step(1.0)
    options.rate = 5.0
    with pytest.warns(jitmagic.state.compiled.StaleConstantWarning, match=r"options\.rate"):
        step(1.0)


@pytest.mark.parametrize("warm", [0, 1, 2])
@pytest.mark.parametrize("at", ["a", "b"])
def test_an_interrupt_between_two_writes(monkeypatch, at, warm):
    box = Slow()

    def f(x):
        object.__setattr__(box, "a", box.a + x)
        object.__setattr__(box, "b", box.b + x)
        return x

    step = jitmagic.jit(f, dyn_vars="box")
    for _ in range(warm):
        step(1.0)
    put, pending = plan.paths.put_attribute, [at]

    def interrupted(holder, name, value, *rest):
        put(holder, name, value, *rest)
        if pending and name == pending[0] and type(value).__name__ == "ArrayImpl" and float(value) > warm:
            pending.clear()
            raise KeyboardInterrupt

    monkeypatch.setattr(plan.paths, "put_attribute", interrupted)
    for key in [k for k in step.__globals__ if k.endswith("_put")]:
        monkeypatch.setitem(step.__globals__, key, interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(1.0)
    assert not pending
    assert (float(box.a), float(box.b)) == (warm + 1, warm + 1)


@pytest.mark.parametrize("donated", [None, "box.n"])
def test_an_interrupt_before_the_writes(monkeypatch, donated):
    box = Box(n=jnp.ones(1000), m=jnp.zeros(()))

    def f(x):
        box.n, box.m = box.n + x, box.m + x
        return x

    step = jitmagic.jit(f, dyn_vars="box", donate_argnames=donated)
    step(1.0)
    before = dict(vars(box))
    key = [k for k, v in step.__globals__.items() if v is step.__jitmagic__.compiled][-1]

    def interrupted(*args):
        step.__jitmagic__.compiled(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setitem(step.__globals__, key, interrupted)
        with pytest.raises(KeyboardInterrupt) as told:
            step(1.0)
    assert all(vars(box)[k] is v for k, v in before.items())
    if donated is None:
        step(1.0)
        assert float(box.m) == 2.0 and float(box.n[0]) == 3.0
        return
    assert "box.n: donated" in "".join(told.value.__notes__) and "assign it again" in "".join(
        told.value.__notes__
    )
    with pytest.raises(Exception, match="deleted") as again:
        step(1.0)
    assert any("box.n: donated" in note for note in again.value.__notes__)
    box.n = jnp.ones(1000)
    step(1.0)
    assert float(box.m) == 2.0


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f(2.0, gain=3.0),
        lambda f: f(x=2.0, gain=3.0),
        lambda f: f(2.0, shift=1.0),
        lambda f: f(2.0, shift=1.0, gain=3.0),
    ],
)
def test_a_call_by_name_is_traced_once(call):
    box = Box(n=jnp.ones(3))

    def f(x, gain=1.0, *, shift=0.0):
        box.n = box.n * gain + shift
        return box.n * x

    step = jitmagic.jit(f, dyn_vars="box.n")
    for _ in range(3):
        call(step)
    assert step._cache_size() == 1


KEYS = ["W_{1}", "{}", "{x", "%s", "a'b", 'a"b', "a\nb", "a\\", "_jm_s0", "class", "args", "é", ""]


@pytest.mark.parametrize("key", KEYS)
def test_no_text_of_the_users_gets_into_the_code(sources, key):
    params, box = {key: jnp.ones(3), "b": jnp.zeros(3)}, Box(**{key: jnp.ones(3)})

    def f(x):
        params[key] = params[key] + x
        setattr(box, key, getattr(box, key) + 1)
        return params[key].sum() + params["b"].sum()

    step = jitmagic.jit(f, dyn_vars=(params, box))
    assert [float(step(1.0)) for _ in range(3)] == [6.0, 9.0, 12.0]
    assert list(params) == [key, "b"] and params[key].tolist() == [4.0] * 3 == getattr(box, key).tolist()
    assert key.isidentifier() or not any(repr(key) in source for source in sources)
