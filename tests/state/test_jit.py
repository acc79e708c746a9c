"""`jitmagic.jit`: what the plain function does to Python state, the compiled one does."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
import threading
import types
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitmagic
from jitmagic.state import adapters
from jitmagic.state.compiled import StaleConstantWarning, StateError
from jitmagic.state.values import contains_tracer


@pytest.fixture(autouse=True)
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error", StaleConstantWarning)
        yield


def module(source, **names):
    """Names of a module that runs `source`, `names` bound before."""
    space = {"__name__": "user", "jnp": jnp, "jax": jax, "np": np, "jitmagic": jitmagic, **names}
    exec(compile(source, "<user>", "exec"), space)
    return types.SimpleNamespace(**{"space": space}), space


class Traces:
    """Counts how often the body of a function runs; a generator, because nothing puts one of those back."""

    def __init__(self):
        self._turns = self._turning()

    @staticmethod
    def _turning():
        n = 0
        while True:
            n += 1
            yield n

    def __call__(self):
        next(self._turns)

    @property
    def count(self):
        return self._turns.gi_frame.f_locals.get("n", 0)


class Box:
    def __init__(self, **kw):
        self.__dict__.update(kw)


class Slots:
    __slots__ = ("w", "__weakref__")

    def __init__(self, w):
        self.w = w


@dataclasses.dataclass(frozen=True)
class Frozen:
    w: object
    name: str = "a"


class Pair(NamedTuple):
    a: object
    b: object


w = b = params = items = box = counter = lr = table = None


def put(**kw):
    globals().update(kw)


class TestReads:
    def test_globals_follow_and_never_trace_again(self):
        traces = Traces()
        put(w=jnp.ones((2, 3)), b=jnp.zeros(3))

        @jitmagic.jit(dyn_vars="w, b")
        def f(x):
            traces()
            return x @ w + b

        for k in range(4):
            put(w=jnp.full((2, 3), k), b=jnp.full(3, 2.0 * k))
            np.testing.assert_allclose(f(jnp.ones(2)), jnp.ones(2) @ w + b)
        assert traces.count <= 2  # full(…, k) is int32 once, ones is float32

    @pytest.mark.parametrize("shape", [(2,), (3,), (4,)])
    def test_a_new_shape_is_one_more_trace(self, shape):
        traces = Traces()
        put(w=jnp.ones(()))

        @jitmagic.jit(dyn_vars="w")
        def f(x):
            traces()
            return x * w

        for _ in range(3):
            f(jnp.ones(()))
        put(w=jnp.ones(shape))
        for _ in range(3):
            assert f(jnp.ones(())).shape == shape
        assert traces.count == 2

    @pytest.mark.parametrize(
        ("start", "read", "path"),
        [
            (lambda v: v, lambda o: o, "box"),
            (lambda v: Box(sub=Box(w=v)), lambda o: o.sub.w, "box.sub.w"),
            (lambda v: Box(sub=Box(w=v)), lambda o: o.sub.w, "box"),
            (lambda v: {"a": [v]}, lambda o: o["a"][0], "box['a'][0]"),
            (lambda v: {"a": [v]}, lambda o: o["a"][0], "box"),
            (Slots, lambda o: o.w, "box.w"),
            (Frozen, lambda o: o.w, "box.w"),
            (lambda v: Pair(v, v), lambda o: o.a + o.b, "box"),
            (lambda v: types.SimpleNamespace(w=v), lambda o: o.w, "box.w"),
            (lambda v: {1: v, ("a", 2): v}, lambda o: o[1] + o[("a", 2)], "box"),
        ],
    )
    def test_containers(self, start, read, path):
        def f(x):
            return x * read(box)

        put(box=start(jnp.float32(2.0)))
        g = jitmagic.jit(f, dyn_vars=path)
        for v in (2.0, 3.0, 4.0):
            put(box=start(jnp.float32(v)))
            assert float(g(1.0)) == float(f(1.0))
        assert g._cache_size() == 1

    def test_closure_and_default_scalars(self):
        def make():
            n = 1.0

            def f(x):
                return x * n

            def change(v):
                nonlocal n
                n = v

            return f, change

        f, change = make()
        g = jitmagic.jit(f, dyn_vars="n")
        assert float(g(2.0)) == 2.0
        change(5.0)
        assert float(g(2.0)) == 10.0 and g._cache_size() == 1

    def test_module_attribute(self):
        mod = types.ModuleType("settings")
        mod.rate = 0.5
        f, space = module("def f(x):\n    return x * settings.rate\n", settings=mod)
        g = jitmagic.jit(space["f"], dyn_vars="settings.rate")
        assert float(g(2.0)) == 1.0
        mod.rate = 2.0
        assert float(g(2.0)) == 4.0

    def test_by_value(self):
        put(w=jnp.ones(3), params={"a": jnp.ones(2), "b": [jnp.zeros(2)]})

        def f(x):
            return (x * w).sum() + params["a"].sum() + params["b"][0].sum()

        g = jitmagic.jit(f, dyn_vars=[w, {"p": params["a"]}, (params["b"][0],)])
        assert float(g(1.0)) == 5.0
        put(w=jnp.zeros(3))
        params["b"][0] = jnp.ones(2)
        assert float(g(1.0)) == 4.0
        with pytest.raises(ValueError, match="does not read"):
            jitmagic.jit(f, dyn_vars=jnp.ones(7))

    @pytest.mark.parametrize("path", ["nothing", "box.nothing", "box['k']", "w +", "f(x)"])
    def test_bad_paths(self, path):
        put(box=Box(w=1.0))

        def f(x):
            return x * box.w

        with pytest.raises(ValueError):
            jitmagic.jit(f, dyn_vars=path)

    def test_numpy_state(self):
        put(w=np.ones(3))

        def f(x):
            return x + w

        g = jitmagic.jit(f, dyn_vars="w")
        g(1.0)
        w[:] = 5.0
        assert g(1.0).tolist() == [6.0] * 3

    def test_nothing_dynamic_is_the_real_jit(self, monkeypatch):
        def f(x):
            return x + 1

        monkeypatch.setattr(adapters, "any_installed", lambda: False)
        assert type(jitmagic.jit(f)) is type(jax.jit(f))

    def test_property_reads_its_attribute(self):
        class P:
            def __init__(self):
                self._w = 1.0

            @property
            def w(self):
                return self._w

        put(box=P())

        def f(x):
            return x * box.w

        g = jitmagic.jit(f, dyn_vars="box._w")
        box._w = 3.0
        assert float(g(2.0)) == 6.0
        with pytest.raises(ValueError, match="property"):
            jitmagic.jit(f, dyn_vars="box.w")


class TestWrites:
    CASES = {
        "global": (lambda: 0, "global box\n    box = box + x", "box"),
        "augmented": (lambda: 0, "global box\n    box += x", "box"),
        "attribute": (lambda: Box(n=0), "box.n += x", "box"),
        "slots": (lambda: Slots(0), "box.w += x", "box.w"),
        "item": (lambda: {"n": 0}, "box['n'] += x", "box"),
        "list": (lambda: [0, 1], "box[0] += x", "box"),
        "nested": (lambda: {"a": [Box(n=0)]}, "box['a'][0].n += x", "box"),
        "new dict": (lambda: {"n": 0, "m": 1}, "global box\n    box = {k: v + x for k, v in box.items()}", "box"),
        "new list": (lambda: [0, 1], "global box\n    box = [v + x for v in box]", "box"),
        "new tuple": (lambda: (0, 1), "global box\n    box = tuple(v + x for v in box)", "box"),
        "namedtuple": (lambda: Pair(0, 1), "global box\n    box = box._replace(a=box.a + x)", "box"),
        "frozen": (lambda: Frozen(0), "global box\n    box = dataclasses.replace(box, w=box.w + x)", "box"),
        "inner dict": (lambda: Box(p={"n": 0}), "box.p = {'n': box.p['n'] + x}", "box.p"),
        "tree map": (lambda: {"a": {"b": 0}}, "global box\n    box = jax.tree.map(lambda v: v + x, box)", "box"),
        "swap": (lambda: [1, 2], "box[0], box[1] = box[1], box[0]", "box"),
        "constant": (lambda: {"n": 3}, "box['n'] = 0", "box"),
        "append": (lambda: [0], "box.append(box[-1] + x)", "box"),
        "new key": (lambda: {"n": 0}, "box['m%d' % len(box)] = box['n'] + x", "box"),
        "delete": (lambda: {"n": 0, "m": 1}, "if len(box) > 1: del box['m']\n    box['n'] += x", "box"),
        "new attribute": (lambda: Box(n=0), "box.last = x * 2\n    box.n += 1", "box"),
        "argument kept": (lambda: {"n": 0.0}, "box['n'] = x", "box"),
        "text": (lambda: {"n": 0, "s": "a"}, "box['s'] = 'b'\n    box['n'] += x", "box"),
    }  # fmt: skip

    @pytest.mark.parametrize("name", CASES)
    def test_as_the_plain_function(self, name):
        start, body, path = self.CASES[name]
        source = f"import dataclasses\ndef f(x):\n    {body}\n    return x\n"
        _, plain = module(source, box=start())
        _, ours = module(source, box=start())
        g = jitmagic.jit(ours["f"], dyn_vars=path)
        for x in (1, 2, 3, 4):
            plain["f"](x)
            g(x)
            assert same(plain["box"], ours["box"]), (plain["box"], ours["box"])
            assert not contains_tracer(ours["box"])

    def test_a_container_bound_anew_is_new(self):
        _, space = module("def f(x):\n    global p\n    p = {'w': p['w'] + x}\n", p={"w": jnp.zeros(())})
        g = jitmagic.jit(space["f"], dyn_vars="p")
        for k in range(3):
            before = space["p"]
            g(1.0)
            assert space["p"] is not before and float(before["w"]) == k
        assert g._cache_size() == 1

    def test_only_what_is_written_comes_back(self):
        put(params={k: jnp.ones(2) for k in "abc"}, counter=jnp.int32(0))

        def f(x):
            global counter
            counter = counter + 1
            return sum(params.values()) * x

        g = jitmagic.jit(f, dyn_vars="params, counter")
        before = dict(params)
        g(1.0)
        assert all(params[k] is before[k] for k in params) and int(counter) == 1
        assert [g.__jitmagic__.program.places[i].path for i in g.__jitmagic__.program.written] == ["counter"]

    @pytest.mark.parametrize("order", [(True, False, True, False), (False, True, False, True)])
    def test_write_sets_that_differ_by_static_argument(self, order):
        traces = Traces()

        def f(x, train):
            traces()
            box.calls = box.calls + 1
            if train:
                box.mean = box.mean + x
            return x - box.mean

        put(box=Box(calls=0, mean=0.0))
        g = jitmagic.jit(f, dyn_vars="box", static_argnames="train")
        mean = 0.0
        for k, train in enumerate(order):
            held = box.mean
            out = g(1.0, train)
            mean += train
            assert float(out) == 1 - mean and float(box.mean) == mean and int(box.calls) == k + 1
            assert train or box.mean is held
        assert traces.count == 2

    def test_write_sets_that_differ_by_shape(self):
        traces = Traces()

        def f(x):
            traces()
            if x.ndim:
                box.n = box.n + x.sum()
            else:
                box.m = box.m + x
            return x

        put(box=Box(n=jnp.float32(0), m=jnp.float32(0)))
        g = jitmagic.jit(f, dyn_vars="box")
        for _ in range(3):
            g(jnp.ones(2))
            g(jnp.float32(1))
        assert (float(box.n), float(box.m), traces.count) == (6.0, 3.0, 2)

    def test_lazy_structure_is_one_further_trace(self):
        traces = Traces()

        class Lazy:
            def __init__(self):
                self.layers = []

            def __call__(self, x):
                traces()
                if not self.layers:
                    self.layers.append({"w": jnp.ones(3)})
                self.layers[0]["w"] = self.layers[0]["w"] * x
                return self.layers[0]["w"]

        put(box=Lazy())

        def f(x):
            return box(x)

        g = jitmagic.jit(f, dyn_vars="box")
        assert [g(2.0).tolist()[0] for _ in range(3)] == [2.0, 4.0, 8.0]
        assert traces.count == 2

    def test_containers_that_grow_between_calls(self):
        put(items=[jnp.ones(())])

        def f(x):
            return sum(items) * x

        g = jitmagic.jit(f, dyn_vars="items")
        for k in range(1, 4):
            assert float(g(1.0)) == k
            items.append(jnp.ones(()))

    def test_python_scalars_compile_once(self):
        traces = Traces()

        def f(x):
            global counter
            traces()
            counter = counter + 1
            return x * counter

        put(counter=0)
        g = jitmagic.jit(f, dyn_vars="counter")
        for _ in range(3):
            g(1.0)
        put(counter=10)
        assert float(g(1.0)) == 11.0 and traces.count == 1

    def test_an_object_made_by_the_function_keeps_its_sharing(self):
        def f(x):
            box.a = Box(w=x * 2)
            box.b = box.a
            box.n = box.n + 1

        put(box=Box(n=0))
        g = jitmagic.jit(f, dyn_vars="box")
        for k in (1.0, 2.0, 3.0):
            g(k)
            assert box.a is box.b and float(box.a.w) == 2 * k


def same(a, b):
    if type(a).__name__ != type(b).__name__:
        return bool(jnp.ndim(a) == jnp.ndim(b) == 0 and a == b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (Box, Slots, Frozen)):
        names = [n for n in ("w", "n", "m", "p", "name", "last") if hasattr(a, n) or hasattr(b, n)]
        return all(same(getattr(a, n), getattr(b, n)) for n in names)
    return bool(np.all(a == b))


class Model:
    def __init__(self, w=1.0):
        self.w, self.calls, self.rate = jnp.float32(w), 0, 2.0

    @jitmagic.jit(dyn_vars="self.w, self.calls")
    def step(self, x, k=1.0):
        """Doc."""
        self.calls += 1
        self.w = self.w + x * k
        return self.w * self.rate

    def plain(self, x):
        self.w = self.w + x
        return self.w

    def __call__(self, x):
        self.w = self.w + x
        return self.w


class Sub(Model):
    def step(self, x, k=1.0):
        return super().step(x, k) + 100


class TestMethods:
    def test_in_a_class_body(self):
        a, c = Model(), Model(10.0)
        assert [float(a.step(1.0)), float(c.step(1.0)), float(a.step(1.0, k=2.0))] == [4.0, 22.0, 8.0]
        assert (int(a.calls), int(c.calls), float(c.w)) == (2, 1, 11.0)
        assert Model.step.__doc__ == "Doc." and Model.step.__name__ == "step"

    def test_frozen_attributes_are_the_instances_own(self):
        a, c = Model(), Model()
        c.rate = 3.0
        assert (float(a.step(1.0)), float(c.step(1.0))) == (4.0, 6.0)

    def test_subclasses(self):
        s = Sub()
        assert float(s.step(1.0)) == 104.0 and int(s.calls) == 1

    def test_an_instance_can_go(self):
        import gc
        import weakref

        a = Model()
        a.step(1.0)
        gone = weakref.ref(a)
        del a
        gc.collect()
        assert gone() is None

    def test_a_method_holds_its_object(self):
        step = Model().step
        assert float(step(1.0)) == 4.0

    def test_bound_method_and_object(self):
        a = Model()
        g = jitmagic.jit(a.plain, dyn_vars="self.w")
        assert [float(g(1.0)) for _ in range(2)] == [2.0, 3.0] and float(a.w) == 3.0
        h = jitmagic.jit(a, dyn_vars="self.w")
        assert float(h(1.0)) == 4.0 and float(a.w) == 4.0

    def test_decorators(self):
        def twice(fn):
            @functools.wraps(fn)
            def wrapper(x):
                return fn(fn(x))

            return wrapper

        put(counter=0)

        @jitmagic.jit(dyn_vars="counter")
        @twice
        def f(x):
            global counter
            counter = counter + 1
            return x + counter

        assert float(f(0.0)) == 3.0 and int(counter) == 2

    @pytest.mark.parametrize(
        ("head", "calls"),
        [
            ("x, y=2", ["1", "1, 3", "1, y=3", "x=1"]),
            ("x, /, y=2, *, z=3", ["1", "1, 5", "1, z=5", "1, 4, z=5"]),
            ("x=1, y=2, z=3", ["", "5", "z=7", "1, z=2"]),
            ("*args, **kw", ["1", "1, 2", "1, k=2"]),
            ("x, *args, k", ["1, k=2", "1, 2, k=3"]),
            ("x, y='text'", ["1", "1, 5"]),
            ("_a, _dyn0=4", ["1", "1, 5"]),
        ],
    )
    def test_signatures(self, head, calls):
        names = [p.strip(" */").split("=")[0] for p in head.split(",") if p.strip(" */")]
        parts = [f"total({n})" for n in names]
        source = (
            f"import inspect\ndef total(v):\n    if isinstance(v, str): return len(v)\n"
            f"    if isinstance(v, dict): v = tuple(v.values())\n    return sum(v) if isinstance(v, tuple) else v\n"
            f"def f({head}):\n    global n\n    n = n + 1\n    return n * 1000 + {' + '.join(parts)}\n"
        )
        _, space = module(source, n=0)
        _, plain = module(source, n=0)
        g = space["g"] = jitmagic.jit(space["f"], dyn_vars="n")
        for _ in range(2):
            for call in calls:
                assert float(eval(f"g({call})", space)) == eval(f"f({call})", plain)
        import inspect

        assert inspect.signature(g) == inspect.signature(plain["f"])


class TestComposition:
    @pytest.fixture
    def loss(self):
        put(w=jnp.float32(3.0), counter=jnp.int32(0))

        def f(x):
            return (w * x) ** 2

        return jitmagic.jit(f, dyn_vars="w")

    @pytest.fixture
    def count(self):
        put(w=jnp.float32(3.0), counter=jnp.int32(0))

        def f(x):
            global counter
            counter = counter + 1
            return w * x * x

        return jitmagic.jit(f, dyn_vars="w, counter")

    @pytest.mark.parametrize("warm", [False, True])
    def test_grad_vmap_scan_cond(self, loss, count, warm):
        if warm:
            loss(1.0), count(1.0)
            put(counter=jnp.int32(0))
        assert float(jax.grad(loss)(2.0)) == 36.0
        assert float(jax.grad(count)(2.0)) == 12.0 and int(counter) == 1
        assert jax.vmap(loss)(jnp.arange(3.0)).tolist() == [0.0, 9.0, 36.0]
        assert jax.vmap(count)(jnp.arange(3.0)).tolist() == [0.0, 3.0, 12.0] and int(counter) == 2
        assert jax.lax.scan(lambda c, x: (c + loss(x), x), 0.0, jnp.arange(3.0))[0] == 45.0
        assert float(jax.lax.cond(True, loss, lambda x: x, 2.0)) == 36.0
        put(w=jnp.float32(1.0))
        assert float(jax.grad(loss)(2.0)) == 4.0
        assert not contains_tracer([w, counter])

    @pytest.mark.parametrize("warm", [False, True])
    def test_scan_that_would_lose_a_write(self, count, warm):
        if warm:
            count(1.0)
        before = counter
        with pytest.raises(StateError, match="counter"):
            jax.lax.scan(lambda c, x: (c, count(x)), 0.0, jnp.arange(3.0))
        assert counter is before
        assert float(count(1.0)) == 3.0

    @pytest.mark.parametrize("warm", [False, True])
    def test_outer_jit_that_does_not_know(self, loss, count, warm):
        if warm:
            loss(1.0), count(1.0)
        before = counter
        for inner, name in ((loss, "w"), (count, "w|counter")):
            with pytest.raises(StateError, match=name):
                jax.jit(lambda x, inner=inner: inner(x) + 1)(2.0)
        assert counter is before and not contains_tracer([w, counter])
        assert float(loss(1.0)) == 9.0

    @pytest.mark.parametrize("warm", [False, True])
    @pytest.mark.parametrize("declared", ["w, counter", "b", None])
    def test_in_another_stateful_function(self, count, warm, declared):
        if warm:
            count(1.0)
        put(b=jnp.float32(0.0), counter=jnp.int32(0))

        def outer(x):
            global b
            b = b + 1 if declared == "b" else b
            return count(x) + count(x)

        g = jitmagic.jit(outer, dyn_vars=declared)
        for k in (1, 2, 3):
            assert float(g(1.0)) == 2 * float(w) and int(counter) == 2 * k
            put(w=w + 1)
        assert float(b) == (3.0 if declared == "b" else 0.0)

    def test_grad_inside_a_stateful_step(self):
        put(params={"w": jnp.ones(3), "b": jnp.zeros(())}, lr=0.5)

        def loss(p, x):
            return ((x @ p["w"] + p["b"]) ** 2).mean()

        def step(x):
            global params
            value, g = jax.value_and_grad(loss)(params, x)
            params = jax.tree.map(lambda p, d: p - lr * d, params, g)
            return value

        f = jitmagic.jit(step, dyn_vars="params, lr")
        x = jnp.ones((4, 3))
        wanted = {"w": jnp.ones(3), "b": jnp.zeros(())}
        for rate in (0.5, 0.1, 0.1):
            put(lr=rate)
            d = jax.grad(loss)(wanted, x)
            wanted = jax.tree.map(lambda p, q, rate=rate: p - rate * q, wanted, d)
            f(x)
            np.testing.assert_allclose(params["w"], wanted["w"], rtol=1e-5)
        assert f._cache_size() == 1


class TestOptions:
    def test_static_by_name_given_by_position_and_back(self):
        put(w=jnp.float32(1.0))

        def f(x, n):
            return x * w * sum(range(n))

        for kw in ({"static_argnames": "n"}, {"static_argnums": 1}, {"static_argnums": -1}):
            g = jitmagic.jit(f, dyn_vars="w", **kw)
            assert [float(g(1.0, 3)), float(g(1.0, n=4)), float(g(x=1.0, n=4))] == [3.0, 6.0, 6.0]

    def test_donation_of_state(self):
        put(w=jnp.ones(1000), b=jnp.ones(1000))

        def f(x):
            global w
            w = w + x
            return b[0]

        g = jitmagic.jit(f, dyn_vars="w, b", donate_argnames="w")
        for k in range(3):
            old = w
            g(1.0)
            assert old.is_deleted() and not w.is_deleted() and not b.is_deleted() and float(w[0]) == k + 2

    def test_donated_and_not_written(self):
        put(w=jnp.ones(1000))

        def f(x):
            return x + w.sum()

        g = jitmagic.jit(f, dyn_vars="w", donate_argnames="w")
        assert [float(g(1.0)) for _ in range(3)] == [1001.0] * 3

    def test_donated_containers_and_arguments(self):
        put(params={"a": jnp.ones(1000), "b": jnp.ones(1000)})

        def f(x):
            params["a"] = params["a"] + x
            return x * 2

        g = jitmagic.jit(f, dyn_vars="params", donate_argnames=("params", "x"))
        x = jnp.ones(1000)
        g(x)
        assert x.is_deleted() and float(params["a"][0]) == 2 and float(params["b"][0]) == 1

    def test_stages(self):
        put(counter=0)
        traces = Traces()

        def f(x):
            global counter
            traces()
            counter = counter + 1
            return x + counter

        g = jitmagic.jit(f, dyn_vars="counter", keep_unused=True, inline=True)
        assert g.eval_shape(1.0).shape == ()
        assert "add" in str(g.trace(1.0).jaxpr)
        assert g.lower(1.0).compile() is not None and counter == 0
        assert float(g(1.0)) == 2.0 and traces.count == 1
        g.clear_cache()
        assert float(g(1.0)) == 3.0 and traces.count == 2

    @pytest.mark.parametrize(
        "options",
        [{"static_argnames": "k"}, {"donate_argnames": "k"}, {"static_argnums": 3}, {"donate_argnums": 7}],
    )
    def test_an_argument_that_is_not_there(self, options):
        put(w=jnp.float32(1.0))

        def f(x):
            return x * w

        with pytest.raises(ValueError):
            jax.jit(f, **options)
        with pytest.raises(ValueError):
            jitmagic.jit(f, dyn_vars="w", **options)

    def test_numbers_and_names_that_disagree(self):
        put(w=jnp.float32(1.0))

        def f(x, y):
            return x * w + (len(y) if isinstance(y, str) else y)

        g = jitmagic.jit(f, dyn_vars="w", static_argnums=1, static_argnames=())
        assert float(g(2.0, "foo")) == 5.0 and float(g(1.0, y=2)) == 3.0

    def test_attributes_of_the_function(self):
        put(w=jnp.float32(1.0))

        def f(x):
            return x * w

        f.unit = "mV"
        assert jitmagic.jit(f, dyn_vars="w").unit == "mV"

    def test_device(self):
        put(w=jnp.float32(2.0))

        def f(x):
            return x * w

        assert float(jitmagic.jit(f, dyn_vars="w", device="cpu:0")(2.0)) == 4.0
        with pytest.raises(ValueError, match="no device"):
            jitmagic.jit(f, dyn_vars="w", device="cpu:77")(2.0)


class TestNothingIsLost:
    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_while_tracing(self, error):
        put(box=Box(w=jnp.ones(2), log=[], sub={"a": 1.0}), w=jnp.zeros(2))

        def f(x, fail):
            global w
            w = w + x
            box.w = box.w * x
            box.log.append(x)
            box.sub = {"a": box.w}
            box.new = w
            if fail:
                raise error("no")
            return x

        before = (w, dict(vars(box)))
        g = jitmagic.jit(f, dyn_vars="w, box", static_argnames="fail")
        for _ in range(2):
            with pytest.raises(error):
                g(2.0, True)
            assert w is before[0] and vars(box) == before[1] and box.log == []
        g(2.0, False)
        assert float(box.w[0]) == 2.0 and len(box.log) == 1 and not contains_tracer([w, box])

    def test_while_compiling_and_running(self):
        put(w=jnp.ones(2))

        def check(v):
            raise RuntimeError("callback")

        def f(x):
            global w
            w = w + x
            return jax.pure_callback(check, jax.ShapeDtypeStruct((), jnp.float32), w.sum())

        g = jitmagic.jit(f, dyn_vars="w")
        before = w
        with pytest.raises(Exception, match="callback"):
            jax.block_until_ready(g(1.0))
        assert not contains_tracer(w) and (w is before or w.shape == (2,))

    def test_an_error_on_the_hot_path(self):
        put(w=jnp.ones(2))

        def f(x):
            global w
            w = w + x
            return w

        g = jitmagic.jit(f, dyn_vars="w")
        g(1.0)
        before = w
        with pytest.raises(TypeError):
            g(jnp.ones(3))
        assert w is before
        with pytest.raises(TypeError):
            g()
        assert g(1.0).tolist() == [3.0, 3.0]

    def test_two_threads(self):
        put(counter=jnp.int32(0))

        def f(x):
            global counter
            counter = counter + 1
            return counter * x

        g = jitmagic.jit(f, dyn_vars="counter")
        errors = []

        def work(shape):
            try:
                for k in range(150):
                    g(jnp.ones(shape + (k % 3,)))
            except Exception as exc:
                errors.append(exc)

        threads = [threading.Thread(target=work, args=((k,),)) for k in range(2)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not errors and int(counter) == 300

    def test_copies(self):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(vars(Model)["step"])
        a = Model()
        a.step(1.0)
        c = copy.deepcopy(a)
        c.step(1.0)
        assert (float(a.w), float(c.w)) == (2.0, 3.0)


class TestGuards:
    @pytest.mark.parametrize(
        ("before", "after", "path"),
        [
            ("h = jnp.ones(2)", "h = jnp.zeros(2)", "h"),
            ("h = 2.0", "h = 3.0", "h"),
            ("h = {'rate': 2.0}", "h['rate'] = 3.0", "h['rate']"),
            ("h = np.ones(1000)", "h[:] = 3.0", "h"),
            ("def h():\n    return 1.0", "def h():\n    return 2.0", "h"),
        ],
    )
    def test_a_frozen_value_that_changed_is_told_once(self, before, after, path):
        use = {"h['rate']": "h['rate']"}.get(path, "h() if callable(h) else jnp.sum(jnp.asarray(h))")
        _, space = module(f"{before}\nw = 1.0\ndef f(x):\n    return x * w * ({use})\n")
        g = jitmagic.jit(space["f"], dyn_vars="w")
        first = float(g(1.0))
        exec(after, space)
        with pytest.warns(StaleConstantWarning, match=path.replace("[", r"\[")):
            assert float(g(1.0)) == first
        assert float(g(1.0)) == first  # not told again: that would be an error here

    def test_equal_values_are_no_change(self):
        _, space = module("h = 2.0\na = jnp.ones(2)\ndef f(x):\n    return x * w * h + a\n", w=1.0)
        g = jitmagic.jit(space["f"], dyn_vars="w")
        for k in range(20):
            space.update(h=1.0 + 1.0 * (k >= 0), a=jnp.ones(2))
            g(1.0)

    def test_the_line_of_a_value_that_decides_a_branch(self):
        put(counter=3)

        def f(x):
            return x if counter > 2 else -x

        with pytest.raises(jax.errors.TracerBoolConversionError):
            jitmagic.jit(f, dyn_vars="counter")(1.0)
        assert counter == 3

    def test_a_variable_that_decides_a_shape_or_a_branch_is_named_in_the_error(self):
        box = Box()
        box.n, box.up = jnp.array(3), True
        shaped = jitmagic.jit(lambda x: jnp.zeros(box.n) + x, dyn_vars="box.n")
        chosen = jitmagic.jit(lambda x: x + 1 if box.up else x - 1, dyn_vars="box.up")
        for call, path in ((shaped, "box.n"), (chosen, "box.up")):
            with pytest.raises(TypeError) as caught:
                call(1.0)
            [note] = [n for n in caught.value.__notes__ if "_dyn0" in n]
            assert f"_dyn0 is {path}, a dynamic variable" in note
        assert int(box.n) == 3 and box.up is True


class Moments(NamedTuple):
    count: jax.Array
    mean: dict


def test_an_optimizers_state_of_named_tuples_is_one_variable_of_a_declared_object():
    class Fit:
        def __init__(self):
            self.w, self.state = jnp.ones(2), (Moments(jnp.zeros((), int), {"w": jnp.zeros(2)}), ())

    def step(fit):
        moments = fit.state[0]
        mean = {"w": 0.5 * moments.mean["w"] + fit.w}
        fit.state = (moments._replace(count=moments.count + 1, mean=mean), ())
        fit.w = fit.w - 0.1 * mean["w"]
        return fit.w.sum()

    plain, fit = Fit(), Fit()
    compiled = jitmagic.jit(lambda: step(fit), dyn_vars=fit)
    for _ in range(3):
        assert float(compiled()) == pytest.approx(float(step(plain)))
    assert int(fit.state[0].count) == 3 and isinstance(fit.state[0], Moments)
    np.testing.assert_allclose(fit.state[0].mean["w"], plain.state[0].mean["w"])
    assert compiled.__jitmagic__.compiled._cache_size() == 1


def test_a_declared_function_is_followed_and_compiled_once_for_each():
    traces = Traces()
    _, space = module(
        "def f(x):\n    traces()\n    return gain * act(x)", gain=2.0, act=jnp.negative, traces=traces
    )
    f = jitmagic.jit(space["f"], dyn_vars="gain, act")
    assert f(1.0) == -2.0 and f(3.0) == -6.0 and traces.count == 1
    space["act"] = lambda x: x + 1
    assert f(1.0) == 4.0 and traces.count == 2
    space["act"], space["gain"] = jnp.negative, 5.0
    assert f(1.0) == -5.0 and traces.count == 2
    alone = jitmagic.jit(space["f"], dyn_vars="act")
    space["act"] = jax.jit(lambda x: x * 10)
    assert alone(1.0) == 50.0
