"""What the source asks of the world outside."""

from __future__ import annotations

import pytest

from tests.silent.cells import facts, finding, lines

ASKS = [
    ("import time\n", "t = time.perf_counter()", "clock"),
    ("from time import perf_counter as now\n", "t = now()", "clock"),
    ("import time\n", "t = time.sleep(0) or 2", "wait"),
    ("import datetime\n", "t = datetime.datetime.now().microsecond", "clock"),
    ("import os\n", "t = float(os.environ.get('NO_SUCH', '1'))", "environment"),
    ("import os\n", "t = 1.0 if 'NO_SUCH' in os.environ else 2.0", "environment"),
    ("import os\n", "t = len(os.listdir('.'))", "file"),
    ("from os import listdir\n", "t = len(listdir('.'))", "file"),
    ("import os\n", "t = 2.0 if os.path.exists('.') else 1.0", "file"),
    ("from os.path import getsize\n", "t = float(getsize('.'))", "file"),
    ("import pathlib\nplace = pathlib.Path('.')\n", "t = float(place.exists())", "file"),
    ("numbers = iter(range(9))\n", "t = next(numbers)", "iterator"),
    (
        "import contextvars\nvar = contextvars.ContextVar('var', default=2.0)\n",
        "t = var.get()",
        "asked setting",
    ),
    ("import matplotlib\n", "t = matplotlib.rcParams['lines.linewidth']", "asked setting"),
    ("from decimal import getcontext\n", "t = getcontext().prec", "asked setting"),
    ("import pandas as pd\n", "t = pd.get_option('display.max_rows')", "asked setting"),
    ("", "t = np.setbufsize(8192) * 0 + 1", "setting"),
    ("import uuid\n", "t = uuid.uuid4().int % 7", "id"),
]


@pytest.mark.parametrize(("setup", "line", "what"), ASKS)
@pytest.mark.parametrize("helper", [False, True])
def test_questions_to_the_world_outside(setup: str, line: str, what: str, helper: bool) -> None:
    for library in ("matplotlib", "pandas"):
        if f"import {library}" in setup:
            pytest.importorskip(library, reason=f"{library} is not installed")
    body = f"    {line}\n    return x * t\n"
    cell = f"def g(x):\n{body}def f(x):\n    return g(x)\n" if helper else f"def f(x):\n{body}"
    found = facts(cell, "f(1.0)", setup=setup).effects
    assert [(e.what, e.where.source) for e in found] == [(what, line)]


@pytest.mark.parametrize(
    "cell",
    [
        "def f(x):\n    it = iter([1.0, 2.0])\n    return x * next(it)\n",
        "def f(x):\n    return x * next(iter(range(3)))\n",
        "def f(time):\n    return time.sum()\n",
        "def f(x):\n    kept = np.random.get_state()\n    return x\n",
        "def f(x):\n    def show(v):\n        open('no such file')\n    jax.debug.callback(show, x)\n    return x\n",
    ],
)
def test_nothing_is_asked(cell: str) -> None:
    assert facts(cell, "f(jnp.ones(2))").effects == ()


def test_generators_of_numpy_and_python() -> None:
    cell = "def f(x):\n    return x + np.random.normal() + random.gauss(0, 1) + rng.normal()\n"
    setup = "import random\nrng = np.random.default_rng(0)\n"
    found = facts(cell, "f(1.0)", setup=setup).random
    assert sorted((r.origin, r.names[0]) for r in found) == [
        ("generator", "rng"), ("host", "np.random.normal"), ("host", "random.gauss"),
    ]  # fmt: skip


KNOWN = [
    ("n, m", "x.shape"),
    ("n", "len(x)"),
    ("n", "2 * width + int(width)"),
    ("n", "', '.join(str(i) for i in range(width))"),
]


@pytest.mark.parametrize(("target", "value"), KNOWN)
def test_a_log_of_what_is_not_traced_shows_what_it_says(target: str, value: str) -> None:
    setup = "import logging\nlog = logging.getLogger('x')\n"
    cell = f"def f(x, width):\n    {target} = {value}\n    log.info('%s of %d', n, width)\n    return x * width\n"
    (found,) = facts(cell, "f(jnp.ones((2, 3)), 2)", setup=setup, static_argnames="width").prints
    assert found.logs and not found.values


@pytest.mark.parametrize(("passed", "shown"), [("x.shape", ()), ("x", ("what",))])
def test_a_helper_logs_what_its_calls_pass(passed: str, shown: tuple[str, ...]) -> None:
    setup = "import logging\nlog = logging.getLogger('x')\n"
    cell = f"def tell(name, what):\n    log.info('%s %s', name, what)\ndef f(x):\n    tell('x', {passed})\n    return x * 2\n"
    (found,) = facts(cell, "f(jnp.ones(2))", setup=setup).prints
    assert found.values == shown


@pytest.mark.parametrize("value", ["x + 1", "jnp.zeros(2)", "float_of(x)", "[x]"])
def test_a_log_of_what_is_traced_shows_placeholders(value: str) -> None:
    setup = "import logging\nlog = logging.getLogger('x')\ndef float_of(x):\n    return x * 1.0\n"
    cell = f"def f(x, width):\n    n = {value}\n    log.info('%s of %d', n, width)\n    return x * width\n"
    (found,) = facts(cell, "f(1.0, 2)", setup=setup, static_argnames="width").prints
    assert found.values == ("n",)


def test_prints_of_values_and_of_shapes() -> None:
    cell = "def f(x):\n    y = x + 1\n    print('shape', y.shape)\n    print('y', y)\n    return y\n"
    found = facts(cell, "f(1.0)").prints
    assert [p.values for p in found] == [(), ("y",)]


def test_a_flag_compared_by_identity() -> None:
    cell = "def f(x, train):\n    if train is True:\n        return x * 2\n    return x if train is not None else x\n"
    found = finding("jit-differs-from-eager", cell, "f(1.0, True)")
    assert found.culprits == ("train",) and found.span and found.span.source == "if train is True:"


def test_what_is_tested_before_a_raise_is_named() -> None:
    cell = "def f(x, k):\n    if not isinstance(k, int):\n        raise TypeError('k')\n    return x * k\n"
    assert finding("user-error", cell, "f(1.0, 3)").culprits == ("k",)


def test_whole_numbers_that_wrap_around_are_told_where_they_do() -> None:
    cell = "def f(n, x):\n    k = n + 1\n    total = k * n\n    return x / total\n"
    found = finding("jit-differs-from-eager", cell, "f(100_000, 1e10)")
    assert found.span and found.span.source == "total = k * n"


def test_units_of_large_floats_that_are_cut() -> None:
    cell = "def f(t):\n    return t % 60.0\n"
    found = finding("dtype-truncation", cell, "f(np.array([1.7e9 + 0.25, 1.7e9 + 31.5]))")
    assert found.culprits == ("t",)


def test_digits_of_floats_that_are_cut_and_matter() -> None:
    """Days since a date, whose fractions are what counts; rounding that changes next to nothing is not told."""
    cell = "def f(t):\n    seconds = (t - 55000.0) * 86400.0\n    return jnp.cos(seconds)\n"
    found = finding("dtype-truncation", cell, "f(55000.0 + np.array([0.02, 17.31, 250.5]) / 7)")
    assert (
        found.culprits == ("t",) and found.span and found.span.source == "seconds = (t - 55000.0) * 86400.0"
    )
    with pytest.raises(AssertionError, match=r"\[\]"):
        finding(
            "dtype-truncation", cell.replace("* 86400.0", "* 3.0"), "f(np.array([0.02, 17.31, 250.5]) / 7)"
        )


def test_tests_of_a_type_and_errors_taken_for_answers() -> None:
    cell = (
        "def f(x, n, y=None):\n    if isinstance(x, float):\n        x = x + 1\n    if type(x) is T or isinstance(n, int):\n"
        "        x = x + 1\n    if isinstance(x, (jax.Array, float)):\n        x = x + 1\n    try:\n        k = int(x)\n"
        "    except TypeError:\n        k = 0\n    if x is y or x is T or x is True:\n        x = x + k\n    return x\n"
    )
    found = facts(cell, "f(1.0, 3)", setup="T = type(jnp.ones(1))\n", static_argnames="n").tests
    assert lines(found) == [
        "if isinstance(x, float):",
        "if type(x) is T or isinstance(n, int):",
        "except TypeError:",
        "if x is y or x is T or x is True:",
    ]
