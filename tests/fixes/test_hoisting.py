"""Functions that are compiled anew in a loop or at each call: compiled once, the compilations counted."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

CASES = {
    "lambda in a loop": (
        "xs = jnp.arange(4.0)\nfor k in range(4):\n    y = jax.jit(lambda v: v * k)(xs)\n    print(y)\n",
        ("compiled = jax.jit(lambda v, k: v * k)\nfor k in", "    y = compiled(xs, k)"),
    ),
    "lambda in a function": (
        "def predict(w, x):\n    return jax.jit(lambda v: jnp.tanh(w @ v))(x)\n"
        "for _ in range(4):\n    out = predict(jnp.eye(3), jnp.ones(3))\n",
        ("compiled = jax.jit(lambda v, w: jnp.tanh(w @ v))", "    return compiled(x, w)"),
    ),
    "gradient of a lambda": (
        "def fit(data):\n    w = jnp.zeros(2)\n    for i in range(5):\n"
        "        l, g = jax.jit(jax.value_and_grad(lambda w: jnp.mean((data @ w - 1) ** 2)))(w)\n"
        "        w = w - 0.1 * g\n    return w\nfit(jnp.ones((4, 2)))\n",
        ("jax.jit(jax.value_and_grad(lambda w, data:", "        l, g = compiled(w, data)"),
    ),
    "partial in a loop": (
        "def loss(w, b, x):\n    return jnp.sum((w * x + b) ** 2)\nw = jnp.ones(3)\n"
        "for b in [0.1, 0.2, 0.3, 0.4]:\n    step = jax.jit(jax.grad(functools.partial(loss, b=b)))\n"
        "    w = w - 0.1 * step(w, x=jnp.ones(3))\n",
        ("compiled = jax.jit(jax.grad(loss))", "compiled(w, x=jnp.ones(3), b=b)"),
    ),
    "decorated in a loop": (
        "w = jnp.ones(4)\nfor i in range(5):\n    @jax.jit\n    def update(w):\n        return w - i * jnp.sin(w)\n    w = update(w)\n",
        ("@jax.jit\ndef update(w, i):\n    return w - i * jnp.sin(w)\n\n\nfor i in range(5):\n    w = update(w, i)\n",),
    ),
    "what a factory gives": (
        "def make_step(lr):\n    def step(w, g):\n        return w - lr * g\n    return step\n"
        "w = jnp.ones(3)\nfor lr in (0.1, 0.05, 0.01):\n    f = jax.jit(make_step(lr))\n    w = f(w, w)\n",
        ("def step(w, g, lr):\n", "compiled = jax.jit(step)\n", "    w = compiled(w, w, lr=lr)"),
    ),
    "decorated inside a function": (
        "def simulate(dt, n):\n    @jax.jit\n    def step(x):\n        # one step\n        return x + dt * jnp.sin(x)\n"
        "    x = jnp.float32(1.0)\n    for _ in range(n):\n        x = step(x)\n    return x\n"
        "for dt in (0.1, 0.2, 0.3):\n    print(simulate(dt, 5))\n",
        ("@jax.jit\ndef step(x, dt):\n    # one step\n    return x + dt * jnp.sin(x)\n",
         "        x = step(x, dt)"),
    ),
    "decorated inside a method": (
        "class Model:\n    def __init__(self):\n        self.w = jnp.ones(3)\n    def __call__(self, x):\n"
        "        @jax.jit\n        def forward(x):\n            return jnp.tanh(self.w * x)\n        return forward(x)\n"
        "m = Model()\nfor _ in range(4):\n    print(m(jnp.ones(3)))\n",
        ("@jax.jit\ndef forward(x, w):\n    return jnp.tanh(w * x)\n",
         "        return forward(x, self.w)"),
    ),
    "a length that has to be known": (
        "def run(n):\n    @jax.jit\n    def f(x):\n        return jnp.zeros(n) + x\n    return f(1.0)\n"
        "for i in range(6):\n    run(2 + i % 2)\n",
        ("@functools.partial(jax.jit, static_argnames=(\"n\",))\ndef f(x, n):",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_compiled_once(notebook: Notebook, name: str) -> None:
    cell, wanted = CASES[name]
    notebook.ok("import functools")
    notebook.ok(f"%%jitcheck -q\n{cell}")
    fixes = [x for f in notebook.report().findings if f.kind == "recompile-new-function" for x in f.fixes]
    assert fixes and fixes[0].verified and fixes[0].cell is not None
    assert [w for w in wanted if w not in fixes[0].cell] == []
    assert fixes[0].evidence == "the cell re-run: same results and state"
    notebook.ok(f"%%jitcheck -q\n{fixes[0].cell}")
    assert "recompile-new-function" not in notebook.kinds("error", "warning")


@pytest.mark.parametrize(
    "cell",
    [
        "def make(k):\n    @jax.jit\n    def f(x):\n        return x * k\n    return f\nfor k in range(4):\n    make(k)(1.0)\n",
        "def run(k):\n    @jax.jit\n    def f(x):\n        return x * k\n    return jax.lax.map(f, jnp.ones(3))\n"
        "for k in range(4):\n    run(k)\n",
    ],
)
def test_a_function_that_goes_elsewhere_stays(notebook: Notebook, cell: str) -> None:
    notebook.ok(f"%%jitcheck -q\n{cell}")
    fixes = [x for f in notebook.report().findings for x in f.fixes]
    assert fixes == []
