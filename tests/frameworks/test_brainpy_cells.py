"""BrainPy under the magics: what is declared, what is frozen and said to be, what draws random numbers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import jitmagic

bp = pytest.importorskip("brainpy")

LAYER = """
import brainpy as bp, brainpy.math as bm
%config JitMagics.no_time = True
class Layer(bp.BrainPyObject):
    def __init__(self, a, c):
        super().__init__()
        self.k = bm.TrainVar(bm.random.random((a, c)))
        self.c = bm.Variable(bm.zeros(c))
    def __call__(self, x):
        return x @ self.k + self.c
    def forward(self, x):
        return self(x)
layer, x = Layer(4, 2), bm.zeros(4)
"""


@pytest.fixture
def layer(notebook: Any) -> Any:
    notebook.ok(LAYER)
    return notebook


def state(report: Any) -> dict[str, Any]:
    return {s.path: s for s in report.functions[0].state}


def fixes(report: Any, kind: str) -> list[tuple[str, ...]]:
    return [fix.dyn for f in report.findings if f.kind == kind for fix in f.fixes if fix.dyn]


@pytest.mark.parametrize(
    "target", ["call = layer.forward", "call = layer.__call__", "call = Layer(4, 2); layer = call"]
)
@pytest.mark.parametrize("place", ["layer.c[:] = 1.", "layer.c.value = layer.c + 1."])
def test_a_variable_that_is_not_declared_is_frozen_and_named(layer: Any, target: str, place: str) -> None:
    layer.ok(f"%%jit -f call --dyn layer.k\n{target}\nfirst = call(x)\n{place}\nsecond = call(x)")
    assert layer.ns["first"].tolist() == layer.ns["second"].tolist() == [0, 0]
    report = layer.report()
    assert [f.kind for f in report.findings if f.severity != "note"] == ["stale-constant"]
    named = report.findings[0].culprits[0]
    assert named in ("layer.c", "call.c") and fixes(report, "stale-constant") == [("layer.k", named)]
    roles = {path.rpartition(".")[2]: s.role for path, s in state(report).items()}
    assert roles == {"k": "dynamic", "c": "constant"}


def test_variables_declared_on_the_object_are_the_methods_own(layer: Any) -> None:
    layer.ok(
        "%%jit -f call --dyn layer.k,layer.c\ncall = layer.forward\ncall(x)\nlayer.c[:] = 3.\ny = call(x)"
    )
    assert layer.ns["y"].tolist() == [3, 3]
    report = layer.report()
    assert {path: (s.role, s.declared) for path, s in state(report).items()} == {
        "layer.k": ("dynamic", True),
        "layer.c": ("dynamic", True),
    }
    assert (report.functions[0].traces, report.functions[0].compiles) == (1, 1)


def test_a_plain_array_of_brainpy_that_is_filled_anew(layer: Any) -> None:
    layer.ok("bias = bm.zeros(2)")
    layer.ok(
        "%%jit\ndef shifted(x):\n    return x + bias\nshifted(bm.zeros(2))\nbias[:] = 1.\ny = shifted(bm.zeros(2))"
    )
    assert layer.ns["y"].tolist() == [0, 0]
    assert layer.kinds("warning", "error") == ["stale-constant"]


def test_an_object_that_is_called_is_compiled_once(layer: Any) -> None:
    layer.ok("%%jit -f layer\nlayer(x); layer(x)")
    found = layer.report().functions[0]
    assert (found.calls, found.traces, found.compiles) == (2, 1, 1)
    assert [line.line for line in found.lines] == [9]


DRAWS = [
    "bm.random.normal(0, 1, (6,))",
    "bm.random.DEFAULT.uniform(size=6)",
    "rand(6)",
    "noise.rand(6)",
    "drop(bm.ones(64))",
]


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("dyn", ["", "--dyn gain"])
def test_random_numbers_of_the_default_state(layer: Any, draw: str, dyn: str) -> None:
    layer.ok(
        "from brainpy.math import random as noise\nrand = bm.random.rand\ngain = bm.Variable(bm.ones(()))\n"
        "drop = bp.dnn.Dropout(0.5)\nbp.share.save(fit=True)"
    )
    layer.ok(f"%%jit {dyn}\ndef sample():\n    return gain * {draw}\na, b = sample(), sample()")
    report = layer.report()
    same = (layer.ns["a"] == layer.ns["b"]).all()
    warned = [f.kind for f in report.findings if f.severity != "note"]
    found = next(s for path, s in state(report).items() if path.endswith(".DEFAULT"))
    if not dyn:
        assert not same and warned == [] and found.role == "dynamic"
        return
    assert same and warned == ["hidden-rng"] and found.role == "constant"
    assert fixes(report, "hidden-rng") == [("gain", found.path)]


def test_a_default_state_that_nobody_draws_from_is_not_told(layer: Any) -> None:
    layer.ok("%%jit -f layer\nlayer(x)")
    assert set(state(layer.report())) == {"layer.k", "layer.c"}


def test_a_write_that_is_lost_because_something_else_is_declared(layer: Any) -> None:
    layer.ok("steps = bm.Variable(bm.zeros(2)); gain = bm.Variable(bm.ones(2))")
    layer.ok("%%jit --dyn gain\ndef f(x):\n    steps[:] = steps + x\n    return gain * x\nf(1.)")
    report = layer.report()
    assert [f.kind for f in report.findings if f.severity != "note"] == ["state-write"]
    assert fixes(report, "state-write") == [("gain", "steps")]
    assert layer.ns["steps"].value.tolist() == [0, 0]


def test_a_method_bound_to_an_object_warns_once_in_python() -> None:
    bm = bp.math

    class Layer(bp.BrainPyObject):
        def __init__(self) -> None:
            super().__init__()
            self.k, self.c = bm.Variable(bm.ones(2)), bm.Variable(bm.zeros(2))

        def __call__(self, x: Any) -> Any:
            return x * self.k + self.c

    layer = Layer()
    for call in (jitmagic.jit(layer, dyn_vars=[layer.k]), jitmagic.jit(layer.__call__, dyn_vars=[layer.k])):
        layer.c[:] = 0.0
        assert call(1.0).tolist() == [1, 1]
        layer.c[:] = 5.0
        with pytest.warns(jitmagic.state.compiled.StaleConstantWarning, match="self.c"):
            assert call(1.0).tolist() == [1, 1]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert call(1.0).tolist() == [1, 1]


TRAINING = """
net = Layer(5, 3)
sgd = bp.optim.SGD(lr=1e-2, train_vars=net.vars())
gradient = bm.grad(lambda a, b: bm.mean((net(a) - b) ** 2), grad_vars=net.vars(), return_value=True)
def step(a, b):
    grads, value = gradient(a, b)
    sgd.update(grads)
    return value
A, B = bm.random.rand(20, 5), bm.random.rand(20, 3)
"""


def test_training_names_the_networks_own_variables_and_follows_the_plain_run(layer: Any) -> None:
    layer.ok(f"{TRAINING}\nstart = [v.value for v in net.vars().unique().values()]")
    layer.ok("plain = [float(step(A, B)) for _ in range(6)]")
    layer.ok("for v, old in zip(net.vars().unique().values(), start): v.value = old")
    layer.ok("%%jit -f step\nlosses = [float(step(A, B)) for _ in range(6)]")
    assert layer.ns["losses"] == pytest.approx(layer.ns["plain"], rel=1e-5)
    assert layer.ns["losses"][-1] < layer.ns["losses"][0]
    report = layer.report()
    written = {path for path, s in state(report).items() if s.role == "dynamic" and s.written}
    assert written == {"net.k", "net.c"} and report.functions[0].traces == 1
    assert [f.kind for f in report.findings if f.severity != "note"] == []


def test_what_a_library_keeps_of_its_first_trace_is_no_leak(layer: Any) -> None:
    """The gradient has not been taken before: BrainPy traces it inside the trace, and remembers that."""
    layer.ok(TRAINING)
    layer.ok("%%jit -f step\nlosses = [float(step(A, B)) for _ in range(4)]")
    assert [f.kind for f in layer.report().findings if f.severity != "note"] == []
    assert layer.report().functions[0].traces == 1
    assert layer.ns["losses"][-1] < layer.ns["losses"][0]
    layer.ok("after = float(step.__wrapped__(A, B))")
    assert layer.ns["after"] < layer.ns["losses"][-1]


RUNNER = "runner = bp.DSRunner(cells, inputs={inputs}, monitors=['V'], progress_bar=False)\nrunner(1.)"


@pytest.fixture
def cells(layer: Any) -> Any:
    layer.ok("import numpy as np\ncells = bp.neurons.HH(7)")
    return layer


def test_the_step_of_a_runner_is_diagnosed(cells: Any) -> None:
    cells.ok(RUNNER.format(inputs="('input', 9.)"))
    report = cells.ok("%jitcheck -o runner._step_func_predict(0)")
    assert report.findings == () and report.functions[0].verdict == "ok"
    assert {path.rpartition(".")[2] for path, s in state(report).items() if s.written} >= {"V", "m", "h", "n"}


@pytest.mark.parametrize("magic", ["%%jit", "%%jitcheck"])
def test_what_a_runner_calls_is_looked_at_inside_its_trace(cells: Any, magic: str) -> None:
    cells.ok(
        f"{magic}\ndef drive():\n    return 9. + np.random.rand()\n"
        + RUNNER.format(inputs="('input', drive, 'func')")
    )
    assert cells.kinds("error", "warning") == ["hidden-rng"]
    assert cells.report().findings[0].span.line == 3


@pytest.mark.parametrize("magic", ["%%jit", "%%jitcheck"])
def test_what_fails_inside_the_trace_of_a_runner(cells: Any, magic: str) -> None:
    """BrainPy hides the first error behind a second one of its own."""
    takes_dict = (
        [("drive(shared)", "shared['t']")] if magic == "%%jitcheck" else []
    )  # it holds what is no array
    for head, clock in (("drive()", "bp.share['t']"), *takes_dict):
        cells.error(
            f"{magic}\ndef {head}:\n    if {clock} < 5.:\n        cells.input[:] = 9.\n"
            + RUNNER.format(inputs="drive")
        )
        finding = next(f for f in cells.report().findings if f.severity == "error")
        assert (finding.kind, finding.function, finding.span.line) == ("tracer-bool", "drive", 3)


DEEP = """
class Part(bp.DynamicalSystem):
    def __init__(self, a, c):
        super().__init__()
        self.k, self.c = bm.TrainVar(bm.random.rand(a, c)), bm.TrainVar(bm.zeros(c))
    def update(self, x):
        return x @ self.k + self.c
class Whole(bp.DynamicalSystem):
    def __init__(self):
        super().__init__()
        self.parts = [Part(4, 5), Part(5, 2)]
        self.table = {"bias": bm.Variable(bm.zeros(2))}
        self.count = bm.Variable(bm.zeros((), dtype=int))
    def update(self, x):
        for part in self.parts:
            x = part(x)
        self.count += 1
        return x + self.table["bias"]
whole = Whole()
"""


def test_an_object_whose_call_is_a_librarys(layer: Any) -> None:
    layer.ok(DEEP)
    layer.ok(
        "%%jit -f whole\na = whole(x)\nwhole.table['bias'][:] = 1.\nb = whole(x)\ncount = int(whole.count.value)"
    )
    assert layer.ns["a"].tolist() == [0, 0] and layer.ns["b"].tolist() == [1, 1] and layer.ns["count"] == 2
    report = layer.report()
    assert {path for path, s in state(report).items() if s.role == "dynamic"} == {
        "whole.count", "whole.table['bias']", *(f"whole.parts[{i}].{name}" for i in (0, 1) for name in "kc")
    }  # fmt: skip
    assert (report.functions[0].traces, report.functions[0].compiles, report.findings) == (1, 1, ())


def test_paths_into_an_object_through_a_method_that_the_library_wraps(layer: Any) -> None:
    layer.ok(DEEP)
    layer.ok(
        "%%jit -f go --dyn whole.table['bias'],whole.count\ngo = whole.update\na = go(x)\n"
        "whole.table['bias'][:] = 1.\nb = go(x)\nwhole.parts[1].c[:] = 5.\nc = go(x)"
    )
    assert layer.ns["b"].tolist() == layer.ns["c"].tolist() == [1, 1]
    report = layer.report()
    assert [f.kind for f in report.findings if f.severity != "note"] == ["stale-constant"]
    assert report.findings[0].culprits[0] == "whole.parts[1].c"
    assert fixes(report, "stale-constant") == [("whole.table['bias']", "whole.count", "whole.parts[1].c")]


def test_a_declared_variable_is_no_frozen_value_in_python() -> None:
    bm = bp.math
    v = bm.Variable(bm.zeros(()))

    def body(x: Any) -> Any:
        v.value = v.value + x
        return v.value

    call = jitmagic.jit(body, dyn_vars=[v])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [float(call(1.0)) for _ in range(3)] == [1, 2, 3]
        v.value = 10.0 * bm.ones(()).value
        assert float(call(1.0)) == 11


@pytest.mark.parametrize("draw", ["bm.random.rand()", "brainstate.random.rand()", "rng.rand()"])
def test_a_plain_jit_does_not_know_random_states(notebook: Any, draw: str) -> None:
    notebook.ok("import brainstate, brainpy.math as bm\nrng = bm.random.RandomState(1)")
    cell = f"@jax.jit\ndef f(x):\n    return x + {draw}\nf(1.0)"
    notebook.ok(f"%%jit -q --no-time\n{cell}")
    (found,) = [f for f in notebook.report().findings if f.severity != "note"]
    assert (found.kind, found.severity, found.span.line) == ("hidden-rng", "warning", 4)
    notebook.run(f"%%jitcheck -q\n{cell}")
    (found,) = [f for f in notebook.report().findings if f.severity != "note"]
    assert (found.kind, found.span.line, found.culprits[0]) == ("hidden-rng", 4, draw[:-2])
    notebook.ok("brainstate.random.seed(1)")


@pytest.mark.parametrize("jit", ["bm.jit", "brainstate.transform.jit"])
def test_a_frameworks_own_jit_knows_random_states(notebook: Any, jit: str) -> None:
    notebook.ok("import brainstate, brainpy.math as bm")
    notebook.ok(f"%%jitcheck -q\n@{jit}\ndef f(x):\n    return x + bm.random.rand()\nf(1.0)")
    assert notebook.kinds("error", "warning") == []


def test_what_a_library_keeps_in_private_attributes_is_its_own_affair(layer: Any) -> None:
    layer.ok(
        "%%jit -q --no-time -f spikes\nneurons = bp.dyn.Lif(3, V_th=0.5, V_initializer=bp.init.ZeroInit())\n"
        "def spikes(currents):\n    def one(i, current):\n        bp.share.save(t=i * 0.1, dt=0.1)\n"
        "        return neurons(current)\n    return bm.for_loop(one, (bm.arange(len(currents)), currents))\n"
        "spikes(bm.ones(4)); spikes(bm.ones(4))"
    )
    assert layer.kinds("warning", "error") == []


UPDATED = """%%jitcheck -q
import brainpy as bp, brainpy.math as bm
class Reservoir(bp.DynamicalSystem):
    def __init__(self):
        super().__init__()
        self.level, self.days = bm.Variable(bm.zeros(3)), 0
    def update(self, rain):
        {}
        self.level += rain
        return self.level.value
lake = Reservoir()
day = bm.jit(lake.update)
"""


def test_a_method_under_bm_jit_is_diagnosed_and_its_correction_proved(notebook: Any) -> None:
    notebook.ok(
        UPDATED.format("if self.level.value.sum() > 1.0:\n            self.level.value = bm.zeros(3)")
    )
    notebook.error("day(1.0)")
    [found] = [f for f in notebook.report().findings if f.severity == "error"]
    assert (found.kind, found.function, found.span.line) == ("tracer-bool", "Reservoir.update", 8)
    assert found.fixes and found.fixes[0].verified and "if self.level" not in found.fixes[0].cell


@pytest.mark.parametrize(
    ("statement", "kind", "culprit"),
    [
        ("self.days += 1", "state-write", "lake.days"),
        ("rain = rain * np.random.rand()", "hidden-rng", "np.random.rand"),
    ],
)
def test_what_a_method_under_bm_jit_does_once_is_told(
    notebook: Any, statement: str, kind: str, culprit: str
) -> None:
    notebook.ok(UPDATED.format(statement) + "day(1.0); day(1.0)")
    [found] = [f for f in notebook.report().findings if f.severity != "note"]
    assert (found.kind, found.span.line) == (kind, 8) and culprit in found.culprits


def test_a_counter_of_a_method_becomes_a_variable(notebook: Any) -> None:
    notebook.ok("%config JitMagics.budget = 60")
    notebook.ok(
        """%%jitcheck -q
import brainpy as bp, brainpy.math as bm
class Mean(bp.DynamicalSystem):
    def __init__(self):
        super().__init__()
        self.n = 0
        self.sum = bm.Variable(bm.zeros(()))
    def update(self, x):
        self.n += 1
        self.sum.value = self.sum + x
        return self.sum / self.n
mean = Mean()
step = bm.jit(mean.update)
"""
    )
    for _ in range(2):
        notebook.ok("step(1.0)")
    [found] = [f for f in notebook.report().findings if f.severity != "note"]
    assert [f.verified for f in found.fixes] == [True] and "bm.Variable(jnp.array(0))" in found.fixes[0].cell
    notebook.ok("%config JitMagics.budget = 10")


def test_what_the_body_of_a_for_loop_puts_into_a_list_is_returned_by_it(notebook: Any) -> None:
    notebook.ok("import brainpy.math as bm\nlevel = bm.Variable(bm.zeros(()))")
    notebook.run(
        """%%jit -q --no-time
def run(inputs):
    seen = []
    def body(x):
        level.value = level + x
        seen.append(level.value)
    bm.for_loop(body, inputs)
    return jnp.stack(seen)[-1]
run(bm.ones(3))
"""
    )
    [found] = [f for f in notebook.report().findings if f.severity == "error"]
    [fix] = [f for f in found.fixes if f.verified]
    assert "seen = bm.for_loop(body, inputs)" in fix.cell and "return level.value" in fix.cell


def test_a_variable_of_several_arrays_under_two_names_has_not_gone_stale(notebook: Any) -> None:
    pytest.importorskip("brainstate")
    notebook.ok("import brainstate")
    notebook.ok(
        "%%jit -q --no-time\nnet = brainstate.nn.Linear(2, 3)\nparams = net.states(brainstate.ParamState)\n"
        "def train(x):\n    out = net(x).sum()\n    for k in params:\n"
        "        params[k].value = jax.tree.map(lambda v: 0.9 * v, params[k].value)\n    return out\n"
        "for _ in range(3): train(jnp.ones(2))"
    )
    assert notebook.kinds("warning", "error") == []


NET = """
class Net(bp.DynSysGroup):
    def __init__(self, n):
        super().__init__()
        self.V = bm.Variable(bm.zeros(n))
    def update(self, I):
        self.V.value = self.V + 0.1 * (I - self.V)
        return self.V.value
net = Net(3)
"""
LOOPS = {
    "nothing is kept": (
        "def run(I):\n    for i in range(50):\n        net.update(I)\n    return net.V.value\nrun(1.0)",
        "    def step(i):\n        net.update(I)\n\n    bm.for_loop(step, jnp.arange(50))\n",
    ),
    "a list is filled": (
        "def run(Is):\n    vs = []\n    for I in Is:\n        vs.append(net.update(I))\n    return jnp.stack(vs)\nrun(jnp.arange(40.0))",
        "    vs = bm.for_loop(step, Is)\n    return vs\n",
    ),
    "a number is handed on": (
        "def run(Is):\n    x = 0.0\n    for I in Is:\n        x = 0.5 * x + net.update(I + x).sum()\n    return x\nrun(jnp.arange(40.0))",
        "    x, _ = bm.scan(step, x, Is)\n",
    ),
}


@pytest.mark.parametrize(("cell", "wanted"), LOOPS.values(), ids=LOOPS)
def test_a_loop_around_a_network_becomes_the_frameworks_own(layer: Any, cell: str, wanted: str) -> None:
    layer.ok(f"%%jit -f run\n{NET}{cell}\nnet.V.value")
    (finding,) = [f for f in layer.report().findings if f.severity != "note"]
    assert finding.kind == "unrolled-loop"
    (fix,) = [x for x in finding.fixes if x.verified]
    assert fix.applicability == "safe" and wanted in fix.cell


def test_what_a_framework_remembers_of_our_traces_is_not_what_the_users_call_reads(layer: Any) -> None:
    layer.ok(
        "calls = []\nv = bm.Variable(jnp.ones(2))\n"
        "@bm.jit\ndef g(x):\n    calls.append(1)\n    v.value = v + x\n    return x * 2"
    )
    layer.ok("%%jitcheck -q\ndef f(x):\n    return g(x) + 1\nf(jnp.ones(2))")
    assert layer.ok("calls, v.value.tolist()") == ([1], [2.0, 2.0])
