"""Functions that are jitted anew each time, told by what jax compiles."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Iterator
from typing import Any

import pytest

from jitmagic.checking import remade
from jitmagic.silent import events

_numbers = itertools.count(1)
SETUP = "import functools\nimport jax\nimport jax.numpy as jnp\n"


@pytest.fixture
def watcher() -> Iterator[events.Watcher]:
    found = events.Watcher()
    found.start()
    yield found
    found.stop()


def run(cell: str) -> None:
    """Run a cell under a file name that linecache knows."""
    file = f"<ipython-input-{next(_numbers)}-events>"
    linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {}
    exec(SETUP, namespace)
    exec(compile(cell, file, "exec"), namespace)


ANEW = [
    ("def run(x):\n    step = jax.jit(lambda v: jnp.tanh(v))\n    return step(x)\nfor _ in range(4):\n    run(1.0)\n", "step = jax.jit(lambda v: jnp.tanh(v))", "step"),
    ("for k in range(4):\n    jax.jit(lambda v: v * k)(1.0)\n", "jax.jit(lambda v: v * k)(1.0)", "k"),
    ("def loss(w, b):\n    return w * b\ndef train(w):\n    for b in range(4):\n        w = jax.jit(jax.grad(functools.partial(loss, b=b)))(w)\ntrain(1.0)\n",
     "w = jax.jit(jax.grad(functools.partial(loss, b=b)))(w)", "b"),
    ("class M:\n    def __init__(self):\n        self.w = 2.0\n    def __call__(self, x):\n        @jax.jit\n        def forward(x):\n            return self.w * x\n        return forward(x)\nm = M()\nfor _ in range(4):\n    m(1.0)\n",
     "@jax.jit", "forward"),
    ("def predict(w, x):\n    return jax.jit(lambda v: w * v)(x)\nfor _ in range(4):\n    predict(2.0, 1.0)\n", "return jax.jit(lambda v: w * v)(x)", "w"),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "line", "culprit"), ANEW)
def test_a_function_that_is_jitted_anew(watcher: events.Watcher, cell: str, line: str, culprit: str) -> None:
    run(cell)
    (found,) = remade.findings(watcher.events)
    assert found.kind == "recompile-new-function"
    assert found.span is not None and found.span.source == line
    assert culprit in found.culprits


@pytest.mark.parametrize(
    "cell",
    [
        "@jax.jit\ndef g(x):\n    return x * 2\nfor _ in range(4):\n    g(1.0)\n",
        "def make(k):\n    return jax.jit(lambda v: v * k)\ng = make(2.0)\nfor _ in range(4):\n    g(1.0)\n",
        "class M:\n    fn = None\n    def __call__(self, x):\n        if self.fn is None:\n            self.fn = jax.jit(lambda v: v * 2)\n        return self.fn(x)\nm = M()\nfor _ in range(4):\n    m(1.0)\n",
        "def loss(w):\n    return w * 2\nfor i in range(4):\n    jax.jit(loss)(1.0)\n",
    ],
)
def test_functions_that_are_jitted_once(watcher: events.Watcher, cell: str) -> None:
    run(cell)
    assert remade.findings(watcher.events) == ()


def test_nothing_is_heard_after_the_end(watcher: events.Watcher) -> None:
    watcher.stop()
    run("for k in range(4):\n    jax.jit(lambda v: v * k)(1.0)\n")
    assert watcher.events == []
