"""The recording run: everything in one pass, no false findings, nothing left behind."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cells import cell, function

from jitmagic.tracing import compat
from jitmagic.tracing.locate import locate
from jitmagic.tracing.recording import available, record

X = jnp.arange(3.0) + 1

LONG = """
SCALE = jnp.ones(3)
@functools.lru_cache
def coefficient(a): return a
def f(x, n, flag, cfg, mask):
    é = "ü"; y = x * 2; z = 3 if flag else 4
    if n > 2 and flag:
        y = y + 1
    for i in range(n):
        y = y + i
    assert cfg["lo"] <= n < 100
    a = float(x[0])
    b = int(n)
    s = math.sqrt(x.sum())
    q = np.cos(x)
    buf = np.zeros(3)
    buf[0] = x[1]
    w = x[mask]
    v = x[:n]
    u = jnp.zeros(n)
    d = {3: 1}[n]
    text = f"{y[0]:.3f}"
    y[0] = 4.0
    y[n - 1] += 1
    if (SCALE > 0).all(): y = y * SCALE
    k = coefficient(n)
    g = jax.grad(lambda t: t * t if t > 0 else t)(x[1])
    h = jax.vmap(lambda t: float(t))(x)
    m = x.tolist()
    o = x[0].item()
    r = jnp.nonzero(x)
    l = [p for p in (1, 2) if x[0] > p]
    jj = x.reshape(jnp.prod(jnp.array(x.shape)))
    return y, not n
"""
FOUND = [
    ("bool", "flag", ("flag",)), ("bool", "n > 2", ("n",)), ("bool", "flag", ("flag",)),
    ("index", "range(n)", ("n",)), ("bool", 'cfg["lo"] <= n < 100', ("n", "cfg['lo']")),
    ("float", "float(x[0])", ("x",)), ("int", "int(n)", ("n",)), ("float", "math.sqrt(x.sum())", ("x",)),
    ("array", "np.cos(x)", ("x",)), ("setitem", "buf[0]", ("x",)), ("boolean-mask", "x[mask]", ("mask",)),
    ("slice", "x[:n]", ("n",)), ("shape", "jnp.zeros(n)", ("n",)), ("hash", "{3: 1}[n]", ("n",)),
    ("format", 'f"{y[0]:.3f}"', ("x",)), ("setitem", "y[0]", ("x",)), ("setitem", "y[n - 1]", ("x",)),
    ("bool", "(SCALE > 0).all()", ("SCALE",)), ("hash", "coefficient(n)", ("n",)), ("bool", "t > 0", ("x",)),
    ("float", "float(t)", ("x",)), ("tolist", "x.tolist()", ("x",)), ("item", "x[0].item()", ("x",)),
    ("boolean-mask", "jnp.nonzero(x)", ("x",)), ("bool", "x[0] > p", ("x",)),
    ("shape", "x.reshape(jnp.prod(jnp.array(x.shape)))", ()), ("bool", "n", ("n",)),
]  # fmt: skip


def seen(run: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(p.op, p.where.text, p.leaves) for p in run.problems]


def test_available() -> None:
    assert available()


def test_one_pass_finds_everything() -> None:
    names = cell(LONG)
    mask = jnp.array([True, False, True])
    run = record(
        names["f"],
        (X, 3, True),
        {"mask": mask, "cfg": {"lo": 1}},
        constants={id(names["SCALE"]): "SCALE"},
        budget_s=60,
    )
    assert run.complete and run.error is None, run
    assert seen(run) == FOUND
    assert all(p.recorded for p in run.problems)
    assert next(p.value for p in run.problems if p.construct == "range") == "3"
    assert names["coefficient"].cache_info().currsize == 0


@pytest.mark.parametrize(
    ("source", "args"),
    [
        ("def f(x):\n    return x if x > 0 else -x", (2.0,)),
        ("def f(x, n):\n    return x[:n]", (X, 2)),
        ("def f(n):\n    return jnp.arange(n)", (3,)),
        ("def f(x):\n    return x[x > 1]", (X,)),
        ("def f(x):\n    return np.sum(np.asarray(x))", (X,)),
        ("def f(x):\n    x[0] = 1\n    return x", (X,)),
        ("def f(x):\n    return jax.vmap(lambda t: 1 if t > 0 else 2)(x)", (X,)),
        ("def f(x, k):\n    return jnp.repeat(x, k)", (X, 2)),
        ("def f(x):\n    return jax.lax.top_k(x, 2)[0][0].item()", (X,)),
    ],
)
def test_first_finding_is_jits_first_error(source: str, args: Any) -> None:
    fn = function(source)
    with compat.full_tracebacks(), pytest.raises(Exception) as caught:
        jax.jit(fn)(*args)
    real = locate(caught.value)
    first = record(fn, args, {}).problems[0]
    assert (first.op, first.where, first.construct, first.locals) == (
        real.op, real.where, real.construct, real.locals,
    )  # fmt: skip


CLEAN = """
def f(x, key):
    p = jax.random.normal(key, (3,)) ** 2 + jnp.power(x, 2)
    o = jnp.where(p > 0, p, 0)[jnp.argmax(p)]
    o = jax.nn.softmax(x) + jnp.linalg.norm(x) + jnp.sort(x)[0]
    c = jax.lax.cond(o.sum() > 0, lambda: x, lambda: -x)
    c = jax.lax.fori_loop(0, 3, lambda i, c: c + x[i], c)
    c = jax.lax.while_loop(lambda c: c.sum() < 3, lambda c: c + 1, c)
    f = jax.vmap(jax.grad(lambda t: jax.nn.gelu(t)))(x)
    x = x.at[0].set(2.0)
    jax.debug.print("{x}", x=x)
    try:
        n = int(x[0])
    except TypeError:
        n = 3
    return jnp.roll(x, x[0].astype(int)), x.std(), f"{x}", n
"""


@pytest.mark.parametrize("inside", [False, True])
def test_no_findings_where_jit_has_none(inside: bool, capfd: pytest.CaptureFixture[str]) -> None:
    fn = function(CLEAN)
    jax.jit(lambda x, key: fn(x, key)[:2])(X, jax.random.key(0))
    capfd.readouterr()
    run = record(fn, (X, jax.random.key(0)), {}, budget_s=60, reach_inside=inside)
    assert (run.problems, run.error, run.complete) == ((), None, True)
    assert capfd.readouterr() == ("", "")


def test_bodies_are_reached_without_jit() -> None:
    fn = function(
        "def f(x):\n    def body(c, v):\n        if c > 0: c = c + v\n        return c, v\n"
        "    return jax.lax.scan(body, x, jnp.arange(3.0))"
    )
    outside, inside = record(fn, (1.0,), {}), record(fn, (1.0,), {}, reach_inside=True)
    assert not outside.complete and outside.problems[-1].where.text == "c > 0"
    assert seen(inside) == [("bool", "c > 0", ("x",))] and inside.problems[0].count == 3


def test_static_leaves_stay_plain() -> None:
    fn = function(
        "def f(x, n, cfg):\n    if cfg['deep'] and cfg['wide']:\n        return x\n    return jnp.zeros(n)"
    )
    args = (X, 2, {"deep": True, "wide": False})
    assert seen(record(fn, args, {}, static=("n", "cfg['deep']"))) == [
        ("bool", "cfg['wide']", ("cfg['wide']",))
    ]


def test_the_users_own_error_ends_the_run_and_is_told() -> None:
    try:
        jax.jit(bool)(1.0)
    except jax.errors.TracerBoolConversionError:  # what is being handled is no cause of it
        run = record(function("def f(x):\n    if x > 0: pass\n    return {}['gone']"), (1.0,), {})
    assert [p.op for p in run.problems] == ["bool", "user"]
    assert not run.complete and run.error == "KeyError: 'gone'" and "KeyError" in run.note


def test_budget_ends_the_run() -> None:
    fn = function(
        "def f(x):\n    while True:\n        try:\n            x = x + 1\n        except Exception:\n            pass"
    )
    run = record(fn, (1.0,), {}, budget_s=0.05)
    assert not run.complete and "0.05 s" in run.note


def test_nothing_stays_patched_and_traces_die() -> None:
    before = {
        n: compat.Tracer.__dict__[n] for n in ("to_concrete_value", "__float__", "__complex__", "__array__")
    }
    kept: list[Any] = []
    names = cell("def f(x):\n    kept.append(x * 2)\n    raise RuntimeError")
    names["kept"] = kept
    record(names["f"], (1.0,), {}, reach_inside=True)
    assert all(compat.Tracer.__dict__[n] is v for n, v in before.items())
    assert not jax.config.jax_disable_jit
    assert compat.trace_state_clean() and not compat.trace_of(kept[0]).is_valid()
    assert float(jnp.float32(2.0) + 1) == 3.0
    assert isinstance(np.asarray(X), np.ndarray)


def test_helpers_jitted_by_the_user_work_afterwards() -> None:
    names = cell("@jax.jit\ndef g(v):\n    return v * 2\ndef f(x, n):\n    return g(x) + jnp.zeros(n)")
    for inside in (False, True):
        assert seen(record(names["f"], (X, 3), {}, reach_inside=inside)) == [
            ("shape", "jnp.zeros(n)", ("n",))
        ]
    assert np.allclose(names["g"](X), 2 * X)


LOOPS = """
def f(x, n):
    y = jnp.zeros(n)
    def body(i, c):
        if i > 1:
            return c + x
        return c
    a = jax.lax.fori_loop(0, 3, body, 0.0)
    def step(c):
        if c[0] > 2:
            return c[0] + 1, c[1]
        return c[0] + 1, c[1] * 2
    b = jax.lax.while_loop(lambda c: c[0] < 4, step, (0, a))
    def grow(carry, t):
        if carry > 0:
            return carry, t
        return carry + 1, t
    return jax.lax.scan(grow, 0, jnp.arange(3.0)), b
"""


def test_counters_and_first_states_of_loops_are_traced_values() -> None:
    before = jax.lax.fori_loop, jax.lax.while_loop, jax.lax.scan
    run = record(function(LOOPS), (1.0, 3), {}, reach_inside=True, budget_s=60)
    assert run.error is None
    assert [p.where.source for p in run.problems if p.where] == [
        "y = jnp.zeros(n)", "if i > 1:", "if c[0] > 2:", "if carry > 0:"
    ]  # fmt: skip
    assert (jax.lax.fori_loop, jax.lax.while_loop, jax.lax.scan) == before


def test_a_list_times_a_traced_number() -> None:
    run = record(function("def f(x, n):\n    return [x] * n, n * (1, 2)\n"), (1.0, 3), {}, budget_s=60)
    assert run.error is None
    assert [(p.op, p.where.text, p.leaves) for p in run.problems if p.where] == [
        ("index", "[x] * n", ("n",)), ("index", "n * (1, 2)", ("n",))
    ]  # fmt: skip


def lines(parameters: str, body: str, before: str = "") -> Any:
    return function(f"{before}def f({parameters}):\n" + "".join(f"    {line}\n" for line in body.split("\n")))


def test_a_run_on_compiled_operations_compiles_nothing_anew() -> None:
    from jitmagic.tracing import stages

    body = "y = jnp.sin(x) * 2 - x @ x\ny = jnp.where(y > 0, y, -y)\nif y[0] > n: y = y + 1\nreturn y.sum()"
    fn, x = lines("x, n", body), X
    fn(x, 2.0)
    with stages.counted() as counts:
        run = record(fn, (x, 2.0), {})
    assert [(p.op, p.leaves) for p in run.problems] == [("bool", ("x", "n"))]
    assert [name for stage, name, _ in counts.events if stage == stages.COMPILE] == []


def test_compiled_functions_of_libraries_keep_leaves_static_arguments_and_errors() -> None:
    assert compat._can_answer()
    body = (
        "a = jnp.clip(x, min=0.0, max=n)\nb = jnp.sum(y, axis=0, keepdims=True)\nc = jnp.round(x, decimals=1)\n"
        "if a[0] > 0: a = a + 1\nif b[0] > 0: b = b + 1\nif c[0] > 0: c = c + 1\n"
        "q = jax.nn.softmax(x, axis=-1)\nif q[0] > 0: q = q + 1\nreturn a, b, c"
    )
    run = record(lines("x, y, n", body), (X, X, 2.0), {})
    assert [p.leaves for p in run.problems] == [("x", "n"), ("y",), ("x",), ("x",)]
    refused = record(lines("x, y", "return jnp.sin(x) + jnp.dot(x, y[:2])"), (X, X), {})
    assert refused.error is not None and "shape" in refused.error


def test_the_users_own_compiled_functions_are_looked_into() -> None:
    inner = "@jax.jit\ndef inner(v):\n    return jnp.sin(v) * 2\n"
    fn = lines("x, y", "if inner(x)[0] > inner(y)[0]: x = -x\nreturn x", inner)
    run = record(fn, (X, X + 1), {})
    assert [(p.op, p.leaves) for p in run.problems] == [("bool", ("x", "y"))]


def test_operators_under_vmap_and_grad_stay_with_jax() -> None:
    body = (
        "w = jax.vmap(lambda v: jnp.sin(v) * x[0] + v)(y)\n"
        "g = jax.grad(lambda v: (v * y).sum() * jnp.cos(v))(x[0])\nif w[0] > g: x = -x\nreturn x"
    )
    run = record(lines("x, y", body), (X, X), {})
    assert [(p.op, p.leaves) for p in run.problems] == [("bool", ("x", "y"))]


def test_a_compiled_function_that_gives_its_arguments_away_leaves_them() -> None:
    inner = "@functools.partial(jax.jit, donate_argnums=0)\ndef inner(v): return v * 2\n"
    fn = lines("x", "y = inner(x + 0)\nif y[0] > 0: y = -y\nreturn y", inner)
    x = jnp.arange(3.0) + 1
    run = record(fn, (x,), {})
    assert [(p.op, p.leaves) for p in run.problems] == [("bool", ("x",))] and not x.is_deleted()


def test_what_jax_asks_for_its_own_use_is_no_problem() -> None:
    body = (
        "x = jax.device_put(x, jax.devices()[0])\ny = jax.lax.reduce(x, 0.0, jax.lax.add, (0,))\n"
        "z = jax.lax.reduce_window(x, 0.0, jax.lax.add, (2,), (1,), 'VALID')\nif y > 0: z = -z\nreturn z"
    )
    run = record(lines("x", body), (X,), {})
    assert run.error is None
    assert [(p.op, p.where.source) for p in run.problems if p.where] == [("bool", "if y > 0: z = -z")]


def test_a_random_key_is_not_to_blame_for_a_size() -> None:
    body = "a, b = jax.random.split(key)\nn, m = sizes\nreturn jax.random.normal(a, (n, m))"
    run = record(lines("key, sizes", body), (jax.random.key(0), (3, 4)), {})
    assert [(p.op, p.locals) for p in run.problems] == [("shape", ("n", "m"))]


@pytest.mark.parametrize("call", ["jnp.sin(x)", "jnp.where(x > 1, x, 0.0)", "jnp.sum(x, axis=0)"])
def test_functions_of_a_library_are_called_on_the_values_themselves(call: str, monkeypatch) -> None:
    from jitmagic.tracing.shadow import ShadowTrace

    answered: list[Any] = []
    answer = ShadowTrace.call

    def noting(self: ShadowTrace, *args: Any) -> Any:
        answered.append(answer(self, *args))
        return answered[-1]

    monkeypatch.setattr(ShadowTrace, "call", noting)
    run = record(function(f"def f(x):\n    return {call}\n"), (X,), {})
    assert run.error is None and any(a is not NotImplemented for a in answered)
