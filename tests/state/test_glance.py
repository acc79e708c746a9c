"""Which functions are not read: those that use libraries alone."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic.state.roots import uses_libraries_alone

WEIGHTS = np.ones(3)
MODULES = {"jnp": jnp, "np": np, "math": math}


def made(source: str, **names: object):
    namespace: dict[str, object] = {**MODULES, **names}
    exec(source, namespace)
    return namespace["f"]


@pytest.mark.parametrize(
    "body",
    [
        "return jnp.sin(x) * math.pi",
        "y = x\n    for i in range(3):\n        y = y + jnp.where(x > 0, x, -x)\n    return y",
        "return x.w + len(x.parts) + x['a']",
        "assert x.shape[0] > 1, 'short'\n    return x.at[0].set(1)",
    ],
)
def test_arguments_libraries_and_builtins_need_no_look(body: str) -> None:
    assert uses_libraries_alone(made(f"def f(x):\n    {body}\n"))


@pytest.mark.parametrize(
    "body",
    [
        "return x * WEIGHTS",
        "return helper(x)",
        "return sin(x)",
        "global count\n    count = 1\n    return x",
        "x.w = 1\n    return x",
        "x['a'] = 1\n    return x",
        "x[0:2] = 1\n    return x",
        "del x['a']\n    return x",
        "return getattr(x, 'w')",
        "return globals()['WEIGHTS'] * x",
        "return next(x)",
        "return x.__dict__",
        "import os\n    return x",
        "return (lambda y: y + 1)(x)",
        "def inner():\n        return x\n    return inner()",
        "return x * absent + WEIGHTS",
    ],
)
def test_what_reaches_further_is_read(body: str) -> None:
    fn = made(f"def f(x):\n    {body}\n", WEIGHTS=WEIGHTS, helper=abs, sin=jnp.sin)
    assert not uses_libraries_alone(fn)


def test_a_name_that_gets_another_meaning_is_looked_at_anew() -> None:
    fn = made("def f(x):\n    return jnp.sin(x)\n")
    assert uses_libraries_alone(fn)
    fn.__globals__["jnp"] = np.ones(2)
    assert not uses_libraries_alone(fn)


def test_a_closure_is_read() -> None:
    scale = 2.0

    def fn(x):
        return x * scale

    assert not uses_libraries_alone(fn)


def test_a_module_of_the_users_is_read(tmp_path, monkeypatch) -> None:
    (tmp_path / "settings_of_mine.py").write_text("rate = 0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import settings_of_mine

    assert not uses_libraries_alone(made("def f(x):\n    return x * conf.rate\n", conf=settings_of_mine))
