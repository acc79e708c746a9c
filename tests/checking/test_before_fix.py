"""What a corrected cell's function is timed against: the code that the user had."""

from __future__ import annotations

import pytest

from jitmagic.checking.before_fix import Unknown, function_before

HELPER = "def scale(x):\n    return 2 * x\n"
BRANCH = "def f(x):\n    if x > 0:\n        x = scale(x)\n    return x\n"
SELECT = "def f(x):\n    return jnp.where(x > 0, scale(x), x)\n"
CLASS = "class Model:\n    def step(self, x):\n        {}\n    def rate(self):\n        {}\n"


@pytest.mark.parametrize(
    "name, before, now, expected",
    [
        ("f", BRANCH, SELECT, ("before", 6)),
        ("f", HELPER + SELECT, HELPER.replace("2", "3") + SELECT, ("before", 6)),  # the helper of then, not of now
        ("f", SELECT + "y = 1", SELECT + "y = 2", None),  # its functions are the same
        ("Model.step", CLASS.format("return x", "return 1"), CLASS.format("return -x", "return 1"), ("before", 3)),
        ("Model.step", CLASS.format("return x", "return 1"), CLASS.format("return x", "return 2"), Unknown),
        ("Model.step", CLASS.format("return super().step(x)", "pass"), CLASS.format("return x", "pass"), Unknown),
        ("f", "@jit\n" + BRANCH, SELECT, Unknown),
        ("f", BRANCH.replace("(x)", "(x, y=made())", 1), SELECT, Unknown),
        ("g", BRANCH, SELECT, Unknown),
    ],
)  # fmt: skip
def test_the_function_of_then(name, before, now, expected):
    names = {"scale": lambda x: 100 * x}
    if "def scale" not in before:
        names["scale"] = lambda x: 2 * x
    if expected is Unknown:
        with pytest.raises(Unknown):
            function_before(name, before, now, names)
        return
    found = function_before(name, before, now, names)
    if expected is None:
        assert found is None
        return
    given = (None, 3) if name == "Model.step" else (3,)
    if "jnp" in before:
        import jax.numpy as jnp

        found.__globals__["jnp"] = jnp
    assert int(found(*given)) == expected[1]
    assert list(names) == ["scale"]


CELL = "def total(x):\n    s = 0.0\n    for v in x:\n        if v > 0:\n            s = s + v\n    return s\n"


def test_a_corrected_cell_is_timed_against_the_code_from_before(notebook):
    notebook.ok("import numpy as np\nxs = np.ones(3, 'float32')")
    notebook.error("%%jit -n 1 -r 2\n" + CELL + "total(xs)")
    fix = next(x for f in notebook.report().findings for x in f.fixes if x.verified)
    for _ in range(2):  # and again, when it runs once more
        notebook.ok(f"%%jit -n 1 -r 2\n{fix.cell}")
        timing = notebook.report().functions[0].timing
        assert timing.before_fix and timing.eager is not None, timing
        assert "before the fix, without jit" in " ".join(notebook.text.split())
    notebook.ok("%%jit -n 1 -r 2\n" + fix.cell.replace("total(", "all_of("))  # the user's own from here on
    assert not notebook.report().functions[0].timing.before_fix


def test_where_it_cannot_be_called_there_is_no_speed_up(notebook):
    cell = "def f(x):\n    return x if x > limit else -x\nf(jnp.float32(1.0))"
    notebook.ok("limit = jnp.float32(0)")
    notebook.error("%%jit -n 1 -r 2\n" + cell)
    fix = next(x for f in notebook.report().findings for x in f.fixes if x.verified)
    notebook.ok("limit = np.zeros(2, 'float32')")  # a branch cannot have two values
    notebook.ok("%%jit -n 1 -r 2\n" + fix.cell)
    timing = notebook.report().functions[0].timing
    assert timing.jit and timing.eager is None and timing.speedup is None
    assert (
        "no speed-up: the code from before the fix can't be run beside this one (ValueError)"
        in timing.left_out
    )
