"""Training loops as each framework writes them, 50 steps: under `jitmagic.jit` and `%%jit` they leave what they leave without."""

from __future__ import annotations

import functools
import itertools
import linecache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitmagic

STEPS = 50
DATA = """
import jax, jax.numpy as jnp, numpy as np
X = jnp.asarray(np.random.default_rng(0).normal(size=(16, 3)), jnp.float32)
Y = X @ jnp.array([[1.0], [-2.0], [0.5]]) + 0.3
"""

NNX = """
from flax import nnx
import optax
class Net(nnx.Module):
    def __init__(self, rngs):
        self.first, self.norm = nnx.Linear(3, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
        self.drop, self.last = nnx.Dropout(0.2, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)
    def __call__(self, x):
        return self.last(self.drop(jnp.tanh(self.norm(self.first(x)))))

def train_step(model, optimizer, metrics, x, y):
    next(TRACES)
    def loss_fn(model):
        return jnp.mean((model(x) - y) ** 2)
    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    metrics.update(loss=loss)
    return loss

net = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.sgd(0.05, momentum=0.9), wrt=nnx.Param)
metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
losses = []
for _ in range(STEPS):
    losses.append(train_step(net, optimizer, metrics, X, Y))
left = [nnx.state(o) for o in (net, optimizer, metrics)], metrics.compute(), losses
"""

EQUINOX = """
import equinox as eqx, optax
net = eqx.nn.Sequential([eqx.nn.Linear(3, 8, key=jax.random.key(0)), eqx.nn.LayerNorm(8), eqx.nn.Linear(8, 1, key=jax.random.key(1))])
optim = optax.sgd(0.05, momentum=0.9)
state = optim.init(eqx.filter(net, eqx.is_array))

def train_step(net, state, key, x, y):
    next(TRACES)
    def loss_fn(net):
        return jnp.mean((jax.vmap(net)(x + 0.01 * jax.random.normal(key, x.shape)) - y) ** 2)
    loss, grads = eqx.filter_value_and_grad(loss_fn)(net)
    updates, state = optim.update(grads, state)
    return eqx.apply_updates(net, updates), state, loss

losses = []
for k in range(STEPS):
    net, state, loss = train_step(net, state, jax.random.key(k), X, Y)
    losses.append(loss)
left = net, state, losses
"""

BRAINPY = """
import brainpy as bp, brainpy.math as bm
bm.random.seed(1)
class Net(bp.DynamicalSystem):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = bp.dnn.Dense(3, 8), bp.dnn.Dropout(0.8), bp.dnn.Dense(8, 1)
        self.seen = bm.Variable(bm.zeros(()))
    def update(self, x):
        self.seen.value = self.seen + 1
        return self.last(self.drop(bm.tanh(self.first(x))))
with bm.environment(bm.TrainingMode()):
    net = Net()
optimizer = bp.optim.Momentum(0.05, train_vars=net.train_vars().unique())

def train_step(net, optimizer, x, y):
    next(TRACES)
    bp.share.save(fit=True)
    grads, loss = bm.grad(lambda: bm.mean((net(x) - y) ** 2), grad_vars=net.train_vars().unique(), return_value=True)()
    optimizer.update(grads)
    return loss

losses = []
for _ in range(STEPS):
    losses.append(train_step(net, optimizer, X, Y))
left = [list(o.vars().unique().values()) for o in (net, optimizer)], losses, bm.random.rand(3)
"""

BRAINSTATE = """
import brainstate as bst, braintools
bst.random.seed(1)
class Net(bst.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = bst.nn.Linear(3, 8), bst.nn.Dropout(0.8), bst.nn.Linear(8, 1)
        self.seen, self.updates = bst.HiddenState(jnp.zeros(())), 0
    def __call__(self, x):
        self.seen.value = self.seen.value + 1
        return self.last(self.drop(jnp.tanh(self.first(x))))
net = Net()
optimizer = braintools.optim.Momentum(0.05)
optimizer.register_trainable_weights(net.states(bst.ParamState))

def train_step(net, optimizer, x, y):
    next(TRACES)
    net.updates += 1
    with bst.environ.context(fit=True):
        grads, loss = bst.transform.grad(lambda: jnp.mean((net(x) - y) ** 2), net.states(bst.ParamState), return_value=True)()
    optimizer.update(grads)
    return loss

losses = []
for _ in range(STEPS):
    losses.append(train_step(net, optimizer, X, Y))
left = [s.value for s in net.states().values()], losses, net.updates, type(net.updates).__name__, bst.random.rand(3)
"""

PLAIN = """
class Fit:
    def __init__(self):
        self.w, self.b, self.lr, self.n, self.losses = jnp.zeros((3, 1)), jnp.zeros(1), 0.1, 0, []
        self.m, self.key, self.metrics = {'w': jnp.zeros((3, 1)), 'b': jnp.zeros(1)}, jax.random.key(0), {'last': None, 'sum': 0.0}
    def train_step(self, x, y):
        next(TRACES)
        self.key, key = jax.random.split(self.key)
        x = x + 0.01 * jax.random.normal(key, x.shape)
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((x @ p['w'] + p['b'] - y) ** 2))({'w': self.w, 'b': self.b})
        for k in grads:
            self.m[k] = 0.9 * self.m[k] + grads[k]
            setattr(self, k, getattr(self, k) - self.lr * self.m[k])
        self.n += 1
        self.losses.append(loss)
        self.metrics['last'], self.metrics['sum'] = loss, self.metrics['sum'] + loss
        return loss
fit = Fit()
COMPILED
for _ in range(STEPS):
    fit.train_step(X, Y)
left = vars(fit)
"""

# cell, what is compiled by hand, the magic line, how often it is traced, what has to be installed
LOOPS = {
    "flax.nnx": (NNX, "train_step", "-f train_step", 1, ("flax", "optax")),
    "equinox": (EQUINOX, "train_step", "-f train_step", 1, ("equinox", "optax")),
    "BrainPy": (BRAINPY, "train_step", "-f train_step", 1, ("brainpy",)),
    "brainstate": (BRAINSTATE, "train_step", "-f train_step", 1, ("brainstate", "braintools")),
    "a plain class": (PLAIN, "", "-f Fit.train_step --dyn self", 2, ()),  # None becomes an array
}


def cell(name, compiled):
    source, function, _, _, needs = LOOPS[name]
    for package in needs:
        pytest.importorskip(package)
    if compiled and function:
        source = source.replace("\nlosses = []", f"\n{function} = jitmagic.jit({function})\nlosses = []")
    method = "fit.train_step = jitmagic.jit(fit.train_step, dyn_vars='self')" if compiled else ""
    return DATA + source.replace("COMPILED", method)


def numbers(value):
    """Everything that is left, as numbers."""
    if jnp.issubdtype(getattr(value, "dtype", np.float32), jax.dtypes.prng_key):
        return [np.asarray(jax.random.key_data(value), np.float64)]
    leaves = jax.tree.leaves(value)
    if leaves == [value] or not leaves:
        if isinstance(value, jax.Array | np.ndarray | int | float):
            return [np.asarray(value, np.float64)]
        return []
    return [n for leaf in leaves for n in numbers(leaf)]


def compare(got, wanted):
    got, wanted = numbers(got), numbers(wanted)
    assert len(got) == len(wanted) > 5
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


@functools.cache
def run(name, compiled):
    ticks = itertools.count()
    space = {"STEPS": STEPS, "TRACES": ticks, "jitmagic": jitmagic, "__name__": "user"}
    source, file = cell(name, compiled), f"<{name}, {compiled}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), space)
    left = (
        {k: v for k, v in space["left"].items() if k != "train_step"}
        if name == "a plain class"
        else space["left"]
    )
    return left, next(ticks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LOOPS)
def test_by_jit(name):
    wanted, _ = run(name, False)
    got, traces = run(name, True)
    compare(got, wanted)
    assert traces == LOOPS[name][3]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LOOPS)
def test_by_the_magic(name, notebook):
    wanted, _ = run(name, False)
    notebook.ok(f"import itertools\nSTEPS, TRACES = {STEPS}, itertools.repeat(0)")
    notebook.ok(DATA)
    source = cell(name, False).replace(DATA, "")
    notebook.ok(f"%%jit -q --no-time {LOOPS[name][2]}\n{source}")
    left = notebook.ns["left"]
    compare({k: v for k, v in left.items()} if name == "a plain class" else left, wanted)
    report = notebook.report()
    [function] = report.functions
    told = [f.message for f in report.findings if f.severity != "note"]
    assert [words for words in told if "`TRACES`" not in words] == []
    assert (function.verdict, function.calls, function.traces) == ("ok", STEPS, LOOPS[name][3])
