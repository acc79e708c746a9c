"""Functions with several problems of which one has no correction: the others are not left without one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jitmagic.checking.conclusions import evidence_of
from jitmagic.fixes.change import Change
from jitmagic.fixes.search import Search
from jitmagic.trial.claims import Claim
from jitmagic.work import clock
from tests.conftest import Notebook
from tests.fixes.conftest import watched
from tests.silent.cells import finding


def findings(notebook: Notebook, body: str, call: str) -> dict[str, list]:
    notebook.ok("%config JitMagics.budget = 60.0")
    notebook.error(f"%%jit -q --no-time -f f\nimport json\ndef f(x, n):\n{body}\n{call}")
    notebook.ok("%config JitMagics.budget = 10.0")
    return {f.span.source: f.fixes for f in notebook.report().findings if f.severity == "error"}


def test_what_can_be_corrected_is_a_first_step_and_says_what_is_left(notebook):
    body = "    for i in range(n):\n        x = x * 1.1\n    text = json.dumps(np.asarray(x).tolist())\n    return len(text) * x"
    found = findings(notebook, body, "f(jnp.ones(3), 3)")
    (step,) = found["for i in range(n):"]
    assert not step.verified and step.applicability == "unsafe"
    assert step.evidence == "a first step: tracer-array-conversion is left"
    assert "fori_loop" in (step.cell or "") and "text = json.dumps(np.asarray(x).tolist())" in step.cell
    assert found["text = json.dumps(np.asarray(x).tolist())"] == ()


def test_several_problems_are_mended_in_a_first_step(notebook):
    body = (
        "    y = jnp.zeros(n)\n    if x.sum() > 3:\n        x = x - 1\n"
        "    text = json.dumps(np.asarray(x).tolist())\n    return len(text) * x + y.sum()"
    )
    found = findings(notebook, body, "f(jnp.ones(3), 3)")
    for line in ("y = jnp.zeros(n)", "if x.sum() > 3:"):
        step = found[line][0]
        assert not step.verified and "jnp.where" in step.cell
        assert step.evidence == "a first step: tracer-array-conversion is left"


def test_where_the_whole_is_corrected_there_is_no_first_step(notebook):
    body = "    for i in range(n):\n        x = x * 1.1\n    if x.sum() > 3:\n        x = x - 1\n    return x"
    fixes = [x for some in findings(notebook, body, "f(jnp.ones(3), 3)").values() for x in some]
    assert fixes and all(x.verified for x in fixes)


def test_state_that_a_method_writes_is_dynamic_in_a_first_step(notebook):
    notebook.ok("%config JitMagics.budget = 60.0")
    notebook.error(
        "%%jit -q --no-time -f Cell.step\nimport json\nclass Cell:\n    def __init__(self):\n        self.v, self.t = jnp.zeros(3), 0\n"
        "    def step(self, i):\n        self.v = self.v + i\n        self.t += 1\n"
        "        return len(json.dumps(np.asarray(self.v).tolist())) * i\nCell().step(2.0)"
    )
    notebook.ok("%config JitMagics.budget = 10.0")
    found = {f.kind: f.fixes for f in notebook.report().findings if f.severity == "error"}
    (step,) = found["unregistered-pytree"]
    assert step.dyn == ("self.v", "self.t") and not step.verified
    assert found["tracer-array-conversion"] == ()


NOISE = """class Net:
    def __init__(self):
        self.rng = np.random.default_rng(0)
    def noise(self, shape):
        return self.rng.triangular(0.0, 1.0, 2.0, shape)
    def share(self, x, a):
        w = jnp.exp(x) * a
        return w / w.sum(axis=1, keepdims=True)
    def __call__(self, x, a):
        s = self.share(x, a)
        return s * self.noise(s.shape)
net = Net()
def f(x, a):
    return sum(jnp.tanh(net(x, a)) for _ in range(2))
"""


def test_a_first_step_goes_on_until_its_own_problem_is_gone():
    call = "f(jnp.array([[900.0, 1.0], [1.0, 2.0]]), jnp.array([[1.0, 1.0], [0.0, 0.0]]))"
    (step,) = finding("nan", NOISE, call, call).fixes
    assert step.evidence == "a first step: hidden-rng is left"
    assert "jnp.exp(x - " in step.cell and "== 0" in step.cell


CROSSINGS = """
def crossing_times(t, v):
    upward = (v[:-1] < 0) & (v[1:] >= 0)
    idx = jnp.nonzero(upward)[0]
    frac = -v[idx] / (v[idx + 1] - v[idx])
    return t[idx] + frac * (t[idx + 1] - t[idx])
def period(t, v):
    times = crossing_times(t, v)
    return (times[-1] - times[0]) / (times.shape[0] - 1)
"""


def test_a_change_is_no_excuse_for_what_the_one_before_it_has_made_wrong(notebook):
    """Room for more crossings makes the last one wrong; that it is read outside then may not be claimed away."""
    notebook.ok("%config JitMagics.budget = 60.0")
    notebook.error(
        f"%%jit -q --no-time -f period\n{CROSSINGS}period(jnp.arange(160.0) / 8, jnp.sin(jnp.arange(160.0) / 7))"
    )
    notebook.ok("%config JitMagics.budget = 10.0")
    fixes = [fix for f in notebook.report().findings for fix in f.fixes if fix.verified]
    assert fixes and not any(fix.claim for fix in fixes)


@pytest.mark.parametrize("order", ["wrong, new", "new, wrong"])
def test_each_change_is_held_to_its_own_claim(order):
    """`new` lets through what its own change does to the results, and nothing that another does."""
    cell = "def f(x):\n    y = x + 1\n    return y if y.sum() > 0 else -y\n"
    checker, _ = watched(cell, ("f(jnp.ones(3))",))
    verifier = checker.verifier(clock() + 60)
    search = Search(evidence_of(checker), verifier, {}, str, lambda: False)
    whole, first = verifier.reruns.original, order.partition(",")[0]
    texts = {"wrong": ("x + 1", "x + 2"), "new": ("return y if", "return 3 * y if")}
    changes = {"wrong": Change("add 2"), "new": Change("triple", claim=Claim("new"))}
    before = replace(whole, cell=whole.cell.replace(*texts[first]))
    both = replace(whole, cell=whole.cell.replace(*texts["wrong"]).replace(*texts["new"]))
    steps = tuple(changes[name] for name in order.split(", "))
    assert not search._each_keeps(steps, before, both)
    right = replace(whole, cell=whole.cell.replace(*texts["new"]))
    harmless = Change("write it otherwise")
    one = replace(whole, cell=whole.cell.replace("x + 1", "1 + x"))
    two = replace(one, cell=one.cell.replace(*texts["new"]))
    assert search._each_keeps((harmless, changes["new"]), one, two)
    assert search._each_keeps((changes["new"], harmless), right, two)
