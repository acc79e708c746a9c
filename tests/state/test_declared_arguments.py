"""Objects of any class as arguments, where the argument is declared dynamic: what is left is what the plain function
leaves, with one program for all objects of one form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitmagic
from jitmagic.correction import corrected
from jitmagic.state.errors import StateError
from jitmagic.tracing import stages
from jitmagic.trial.picture import Differences, Painter


class Optimizer:
    def __init__(self, rate: float = 0.1, steps: int = 2) -> None:
        self.rate, self.steps, self.t, self.name = rate, steps, 0, "momentum"
        self.velocity, self.history, self.buffers = jnp.zeros(3), [], {"sum": np.zeros(2, np.float32)}


class Slots:
    __slots__ = ("total", "t")

    def __init__(self) -> None:
        self.total, self.t = jnp.ones(2), 0


def update(opt: Any, w: Any, g: Any, *, scale: float = 1.0) -> Any:
    for _ in range(opt.steps):
        opt.velocity = 0.9 * opt.velocity + g
    opt.t += 1
    opt.history.append(jnp.sum(g))
    opt.buffers["sum"] = opt.buffers["sum"] + 1
    return w - opt.rate * opt.velocity * scale


def in_turn(f: Any) -> Any:
    a, b, w = Optimizer(), Optimizer(0.2), jnp.ones(3)
    for i in range(6):
        w = f((a, b)[i % 2], w, jnp.ones(3) * i)
    return a, b, w


def changed_between(f: Any) -> Any:
    a, w = Optimizer(), jnp.ones(3)
    w = f(a, w, jnp.ones(3))
    a.rate, a.velocity = 0.5, jnp.ones(3)
    return a, f(a, w, jnp.ones(3)), f(opt=a, w=w, g=w)


def with_another_form(f: Any) -> Any:
    a, w = Optimizer(), jnp.ones(3)
    w = f(a, w, w)
    a.steps, a.name = 3, "nesterov"
    return a, f(a, w, w), f(a, w, w, scale=2.0)


def grow(group: Any, x: Any) -> Any:
    for one in group["all"]:
        one.velocity = one.velocity + x
        one.t += 1
    return sum(one.velocity.sum() for one in group["all"])


def in_containers(f: Any) -> Any:
    group = {"all": [Optimizer(), Optimizer()], "scale": 2.0}
    return group, [f(group, float(i)) for i in range(3)]


def add(box: Any, x: Any) -> Any:
    box.total = box.total + x
    box.t += 1
    return {"box": box, "sum": box.total.sum()}


def in_slots(f: Any) -> Any:
    box = Slots()
    outs = [f(box, 1.0) for _ in range(3)]
    assert all(out["box"] is box for out in outs)
    return box.total, box.t, [out["sum"] for out in outs]


@pytest.mark.parametrize(
    ("function", "dyn", "use", "compilations"),
    [
        (update, "opt", in_turn, 1),
        (update, "opt", changed_between, 1),
        (update, "opt", with_another_form, 3),
        (grow, "group", in_containers, 1),
        (add, "box", in_slots, 1),
    ],
)
def test_state_and_results_are_those_of_the_plain_function(
    function: Any, dyn: str, use: Any, compilations: int
) -> None:
    plain = use(function)
    with stages.counted() as counts:
        compiled = use(jitmagic.jit(function, dyn_vars=dyn))
    assert counts.compiles(function) == compilations
    assert Differences().nodes(Painter().draw(plain), Painter().draw(compiled), "all") == []


def test_after_an_error_the_object_is_as_before() -> None:
    def fails(opt: Any) -> None:
        opt.velocity, opt.t = opt.velocity + 1, 5
        opt.history.append(1)
        raise ValueError("no")

    opt = Optimizer()
    with pytest.raises(ValueError, match="no"):
        jitmagic.jit(fails, dyn_vars="opt")(opt)  # type: ignore[operator]
    assert (opt.velocity.tolist(), opt.t, opt.history) == ([0, 0, 0], 0, [])


def test_inside_other_transformations() -> None:
    compiled: Any = jitmagic.jit(update, dyn_vars="opt")
    gradient = jax.grad(lambda w: compiled(Optimizer(), w, w).sum())(jnp.ones(3))
    assert np.allclose(gradient, jax.grad(lambda w: update(Optimizer(), w, w).sum())(jnp.ones(3)))
    opt = Optimizer()
    with pytest.raises(StateError, match=r"variable opt\.\w+"):
        jax.jit(lambda w: compiled(opt, w, w))(jnp.ones(3))
    assert opt.t == 0 and opt.velocity.tolist() == [0, 0, 0]


def test_arrays_there_are_arguments_as_ever(notebook: Any) -> None:
    notebook.ok("w = jnp.ones(2)")
    notebook.ok(
        "%%jit -q --no-time --dyn w\ndef f(x): return x * w\ndef g(w, x): return w + x\na = f(2.0), g(3.0, 1.0)\nw = w * 2\n"
        "b = f(2.0), g(5.0, 1.0)"
    )
    assert [v.tolist() for v in (*notebook.ns["a"], *notebook.ns["b"])] == [[2, 2], 4, [4, 4], 6]
    assert [f.compiles for f in notebook.report().functions] == [1, 1]


CELL = """
class Opt:
    def __init__(self): self.m, self.t, self.seen = jnp.zeros(3), 0, []
    def update(self, g):
        self.m = 0.9 * self.m + g
        self.t += 1
        self.seen.append(g.sum())
        return self.m
def run(opt, w, g):
    return w - opt.update(g)
opt, w = Opt(), jnp.ones(3)
for i in range(3): w = run(opt, w, jnp.ones(3) * i)
"""


@pytest.mark.parametrize("magic", ["%%jit -q --no-time -f run", "%%jitcheck -q"])
def test_an_object_that_a_function_changes_gets_this_as_its_fix(notebook: Any, magic: str) -> None:
    notebook.error(magic + CELL) if "check" not in magic else notebook.ok(magic + CELL)
    report = notebook.report()
    (first,) = (f for f in report.findings if f.kind == "unregistered-pytree")
    assert (first.fixes[0].dyn, first.fixes[0].applicability, first.fixes[0].tested) == (
        ("opt",),
        "safe",
        "cell",
    )
    assert corrected(magic + CELL, first.fixes[0]).startswith(f"{magic.split()[0]} --dyn opt")
    notebook.ok(f"%%jit -q --no-time -f run --dyn opt{CELL}")
    assert (notebook.ns["opt"].t, [float(v) for v in notebook.ns["opt"].seen]) == (3, [0, 3, 6])
    assert notebook.report().verdict == "ok" and notebook.report().functions[0].traces == 1


def test_a_part_of_an_argument_is_no_variable(notebook: Any) -> None:
    error = notebook.error("%%jit --dyn o.m\ndef f(o): return o.m")
    assert str(error) == "--dyn o.m: 'o' is an argument of f, and dynamic as a whole: --dyn o"
