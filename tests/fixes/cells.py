"""Cells of a kind that people write: what is wrong, the calls, and what the correction has to say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A cell with its calls; `contains` is in the corrected magic line, cell or calls, `kind` the finding that is corrected."""

    kind: str
    cell: str
    calls: tuple[str, ...]
    contains: str
    setup: str = ""
    name: str = "f"
    static: tuple[str, ...] = ()
    proved: bool = True
    """False where the cell fails without jit too, so that there is nothing to compare with."""


POINT = "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: jax.Array\n    y: float\n"

CASES = {
    "two prints": Case(
        "trace-time-print", "def f(x):\n    print('x', x)\n    y = x + 1\n    print('y', y)\n    return y\n", ("f(1.0)",),
        "    jax.debug.print(\"x {x}\", x=x)\n    y = x + 1\n    jax.debug.print(\"y {y}\", y=y)",
    ),
    "schedule of Python's in a loop": Case(
        "unrolled-loop",
        "import math\n\ndef rate(t, n, top=0.1):\n    return top * (1 + math.cos(math.pi * t / n)) / 2\n\n"
        "def f(w, n):\n    path = []\n    for t in range(n):\n        w = w - rate(t, n) * jnp.sin(w) * rate(t, n)\n        path.append(w)\n    return w, jnp.stack(path)\n",
        ("f(jnp.ones(3), 40)",), "rate_values = jnp.array([rate(t, n) for t in range(n)])", static=("n",),
    ),
    "schedule that is an object": Case(
        "unrolled-loop",
        "class Warm:\n    def __init__(self, n): self.n = n\n    def at(self, t): return float(min(t, self.n)) / self.n\n\nwarm = Warm(10)\n\n"
        "def f(w):\n    for step in range(1, 61):\n        w = w - 0.01 * w * warm.at(step) * np.sqrt(step)\n    return w\n",
        ("f(jnp.ones(3))",), "at_values = jnp.array([warm.at(step) for step in range(1, 61)])",
    ),
    "choice of dicts": Case(
        "user-error", "def f(loss, best, p, q):\n    better = loss < best\n    return jnp.where(better, p, q)\n",
        ("f(1.0, 2.0, {'w': jnp.ones(2), 'b': 1.0}, {'w': jnp.zeros(2), 'b': 0.0})",),
        "return jax.tree.map(lambda a, b: jnp.where(better, a, b), p, q)", proved=False,
    ),
    "loop that returns an object": Case(
        "tracer-bool",
        "@jax.tree_util.register_dataclass\n@dataclass\nclass Game:\n    board: jax.Array\n    turn: jax.Array\n\n"
        "def f(game, column):\n    for row in (2, 1, 0):\n        if game.board[row, column] == 0:\n"
        "            return Game(game.board.at[row, column].set(game.turn), -game.turn)\n    return game\n",
        ("f(Game(jnp.zeros((3, 3)), jnp.float32(1)), 1)",), "jax.tree.map(lambda a, b: jnp.where(", setup="from dataclasses import dataclass\n",
    ),
    "window that moves": Case(
        "leaked-tracer",
        "window = deque([0.0, 0.0], maxlen=2)\n\ndef f(x):\n    window.append(x * 2.0)\n    return sum(window)\n",
        ("f(1.0)", "f(2.0)"), "--dyn window", setup="from collections import deque\n",
    ),
    "state that is None at first": Case(
        "unregistered-pytree",
        "class Control:\n    def __init__(self):\n        self.last, self.high, self.errors = None, False, []\n\n    def step(self, e):\n"
        "        d = 0.0 if self.last is None else e - self.last\n        self.last, self.high = e, e > 2.0\n        self.errors.append(e)\n"
        "        return e + d\n\nc = Control()\n",
        ("c.step(1.0)", "c.step(4.0)", "c.errors, c.high"), "--dyn self", name="Control.step",
    ),
    "table that objects share": Case(
        "leaked-tracer",
        "class Agent:\n    def __init__(self, table, name):\n        self.table, self.name = table, name\n        table[name] = jnp.zeros(2)\n\n"
        "    def learn(self, r):\n        self.table[self.name] = self.table[self.name] + r\n        return self.table[self.name].sum()\n\n"
        "table = {}\na, b = Agent(table, 'a'), Agent(table, 'b')\n",
        ("a.learn(1.0)", "b.learn(2.0)"), "--dyn self.table", name="Agent.learn",
    ),
    "log that the cell reads, beside a flag": Case(
        "invalid-jax-type",
        "w, log = jnp.zeros(2), {'fit': []}\n\ndef f(x, split):\n    global w\n    w = w + x if split == 'fit' else w\n    log[split].append(w.sum())\n",
        ("f(1.0, 'fit')", "f(2.0, 'fit')", "log['fit'][-1]"), "--static split",
    ),
    "two lists from outside": Case(
        "leaked-tracer", "def f(x):\n    y = x + 1\n    log['x'].append(x)\n    log['y'].append(y)\n    return y\n",
        ("f(1.0)",), "",
        setup="log = {'x': [], 'y': []}\n",
    ),
    "dataclass of the cell": Case(
        "unregistered-pytree", POINT + "def f(p, k):\n    return p.x * p.y + k\n",
        ("f(Point(jnp.ones(2), 3.0), 1.0)",), "@jax.tree_util.register_dataclass\n@dataclass",
    ),
    "settings in a dataclass": Case(
        "unregistered-pytree",
        "import dataclasses\n@dataclasses.dataclass\nclass Layer:\n    w: jax.Array\n    act: str = 'tanh'\n\n"
        "def f(layer, x):\n    return getattr(jnp, layer.act)(x @ layer.w)\n",
        ("f(Layer(jnp.eye(2)), jnp.ones(2))",), "dataclasses.field(default='tanh', metadata=dict(static=True))",
    ),
    "number chosen from a dict by a whole number": Case(
        "tracer-int", "OHM = {0: 10.0, 5: 22.0}\n\ndef f(v, code):\n    return v / OHM[int(code)]\n",
        ("f(5.0, jnp.int32(5))",), "jnp.array(list(OHM.values()))[jnp.argmax(jnp.array(list(OHM)) == code)]",
    ),
    "one of a pair by a truth": Case(
        "tracer-int", "def f(u, a):\n    return (u, 2 * u)[int(a > 0)]\n", ("f(jnp.ones(2), 1.5)",),
        "jnp.array((u, 2 * u))[jnp.int32(a > 0)]",
    ),
    "prefixes of several rows": Case(
        "dynamic-shape", "def f(x, y, n):\n    k = n[0]\n    return jnp.mean((x[0, :k] - y[0, :k]) ** 2)\n",
        ("f(jnp.ones((2, 4)), jnp.zeros((2, 4)), jnp.array([3]))",), "jnp.mean((x[0] - y[0]) ** 2, where=live)",
    ),
    "prefix of a later axis": Case(
        "dynamic-shape", "def f(x, d):\n    return x[..., :d['n']].sum(-1)\n", ("f(jnp.ones((2, 4)), {'n': 3})",),
        "jnp.sum(x, -1, where=live)",
    ),
    "part of an image": Case(
        "dynamic-shape", "def f(x, d):\n    p = x[:d['h'], 1:d['w']]\n    return p.max() + jnp.mean(p ** 2)\n",
        ("f(jnp.arange(12.0).reshape(3, 4), {'h': 2, 'w': 3})",), "jnp.mean(x ** 2, where=live[:, None] & live2)",
    ),
    "neighbours that may be none": Case(
        "dynamic-shape",
        "def f(d, v):\n    near = jnp.where(d < 1)[0]\n    if len(near) > 1:\n        return v[near].mean(axis=0)\n    return jnp.zeros(2)\n",
        ("f(jnp.array([0.5, 2.0, 0.1]), jnp.ones((3, 2)))", "f(jnp.ones(3), jnp.ones((3, 2)))"),
        "jnp.mean(v, axis=0, where=mask[:, None])",
    ),
    "interpolator of SciPy": Case(
        "tracer-array-conversion",
        "def f(x, g, v):\n    curve = interp1d(g, v, bounds_error=False, fill_value=0.0)\n    return curve(x)\n",
        ("f(jnp.array([0.5, 5.0]), jnp.arange(3.0), jnp.ones(3))",), "lambda at: jnp.interp(at, g, v, left=0.0, right=0.0)",
        setup="from scipy.interpolate import interp1d\n",
    ),
    "interpolator that jax has too": Case(
        "tracer-array-conversion", "def f(x, g, v):\n    return RegularGridInterpolator((g,), v)(x[:, None])\n",
        ("f(jnp.array([0.5, 1.5]), jnp.arange(3.0), jnp.arange(3.0) ** 2)",),
        "jax.scipy.interpolate.RegularGridInterpolator((g,), v)",
        setup="from scipy.interpolate import RegularGridInterpolator\n",
    ),
    "entry of a NumPy table": Case(
        "tracer-array-conversion", "GRID = np.ones((3, 3))\n\ndef f(i, k):\n    return GRID[i, k] + GRID[:, k].sum()\n",
        ("f(1, 2)",), "jnp.asarray(GRID)[i, k] + jnp.asarray(GRID)[:, k].sum()",
    ),
    "pixels of a mask": Case(
        "dynamic-shape", "def f(img, m):\n    p = img[m]\n    return p.mean(axis=0), len(p)\n",
        ("f(jnp.arange(24.0).reshape(2, 4, 3), jnp.arange(8).reshape(2, 4) > 3)",),
        "return jnp.mean(img, axis=(0, 1), where=m[:, :, None]), jnp.sum(m)",
    ),
    "as many results as there can be": Case(
        "dynamic-shape", "def f(x):\n    _, n = jnp.unique(x, return_counts=True)\n    p = n / len(x)\n    return jnp.sum(p ** 2)\n",
        ("f(jnp.array([1, 2, 2]))", "f(jnp.array([1, 2, 3]))"), "jnp.unique(x, return_counts=True, size=x.size)",
    ),
    "as many results as there can be, by another name": Case(
        "dynamic-shape",
        "from jax.numpy import unique as kinds\nclass H:\n    def even(self, y):\n        _, c = kinds(y, return_counts=True)\n        return jnp.sum((c / y.shape[0]) ** 2)\nh = H()\n"
        "def f(x):\n    return h.even(x)\n",
        ("f(jnp.array([1, 2, 2]))", "f(jnp.array([1, 2, 3]))"), "kinds(y, return_counts=True, size=y.size)",
    ),
    "what is left over is kept from the logarithm": Case(
        "dynamic-shape", "def f(x):\n    n = jnp.unique_counts(x).counts\n    p = n / n.sum()\n    return -jnp.sum(p * jnp.log(p))\n",
        ("f(jnp.array([1, 2, 2]))", "f(jnp.array([1, 2, 3]))"), "jax.scipy.special.xlogy(p, p)",
    ),
    "selection in a static method": Case(
        "dynamic-shape",
        "class S:\n    @staticmethod\n    def front(x, at):\n        return x[x > at]\n    def rate(self, x):\n        some = self.front(x, 2.0)\n        return some.mean()\n"
        "def f(x):\n    return S().rate(x)\n",
        ("f(jnp.arange(6.0))",), "some, mask = self.front(x, 2.0)\n        return jnp.mean(some, where=mask)",
    ),
    "selection by an object that is called": Case(
        "dynamic-shape",
        "class S:\n    def __init__(self, at):\n        self.at = at\n    def __call__(self, x):\n        return x[x > self.at]\nfront = S(2.0)\n"
        "def f(x):\n    some = front(x)\n    return some.mean()\n",
        ("f(jnp.arange(6.0))",), "some, mask = front(x)\n    return jnp.mean(some, where=mask)",
    ),
    "selection of a selection": Case(
        "dynamic-shape", "def f(x, y):\n    a, b = x[y > 1], y[y > 1]\n    c = a[b > 2]\n    return c.sum() + a.min()\n",
        ("f(jnp.arange(6.0), jnp.arange(6.0))",), "jnp.sum(x, where=mask2) + jnp.min(x, where=mask, initial=jnp.inf)",
    ),
    "rows by the numbers of the best": Case(
        "dynamic-shape", "import jax.numpy as J\ndef f(x, k):\n    best = J.argsort(-x)[:k]\n    return x[best].mean()\n",
        ("f(jnp.array([3.0, 1.0, 2.0, 5.0]), jnp.int32(2))",), "    best = J.argsort(-x)\n    live = jnp.arange(best.shape[0]) < k\n",
    ),
    "labels that are valid": Case(
        "dynamic-shape",
        "def f(z, y):\n    ok = y >= 0\n    p = jax.nn.log_softmax(z)[ok]\n    t = y[ok]\n    return -p[jnp.arange(len(t)), t].mean()\n",
        ("f(jnp.arange(8.0).reshape(4, 2), jnp.array([0, -1, 1, 0]))",), "-jnp.mean(p[jnp.arange(len(y)), y], where=ok)",
    ),
    "array that is bound anew": Case(
        "dynamic-shape", "def f(x):\n    a = x[x > 1]\n    x = x * 2\n    return a.sum() * x[x > 1].sum()\n", ("f(jnp.arange(5.0))",),
        "    a = x\n    x = x * 2\n    mask2 = x > 1\n",
    ),
    "sums of the first rows by group": Case(
        "dynamic-shape", "def f(x, g, n):\n    return jax.ops.segment_sum(\n        x[:n], g[:n],  # those that came\n        num_segments=3,\n    )\n",
        ("f(jnp.arange(8.0).reshape(4, 2), jnp.array([0, 1, 1, 0]), jnp.int32(3))",), "jnp.where(live[:, None], x, 0), g",
    ),
    "selection in a helper": Case(
        "dynamic-shape",
        "def spread(v, w):\n    c = v - v.mean()\n    return (w * c ** 2).sum() / len(v)\n\ndef f(x, w, n):\n    return spread(x[:n], w[:n])\n",
        ("f(jnp.arange(4.0), jnp.ones(4), jnp.int32(3))",), "return spread(x, w, live)",
    ),
    "pairs of the first": Case(
        "dynamic-shape", "def f(x, n):\n    v = x[:n]\n    d = v[:, None] - v[None, :]\n    return jnp.sum(d ** 2) + v @ v\n",
        ("f(jnp.arange(5.0), jnp.int32(3))",), "jnp.sum(d ** 2, where=live[:, None] & live) + jnp.where(live, x, 0) @",
    ),
    "prefix in a method, in a scan": Case(
        "dynamic-shape",
        "class Past:\n    def __init__(self, x):\n        self.x = x\n\n    def mean(self, i):\n        return self.x[:i].mean()\n\n"
        "past = Past(jnp.arange(4.0))\n\ndef f(n):\n    return jax.lax.scan(lambda c, i: (c + past.mean(i), c), n, jnp.arange(1, 4))\n",
        ("f(0.0)",), "jnp.mean(self.x, where=live)",
    ),
    "rows that a helper cuts off": Case(
        "dynamic-shape",
        "def leading(x, n):\n    w, v = x[0], x.T\n    return w[:n], v[:n]\n\n"
        "def f(x, n):\n    s, v = leading(x, n[0])\n    return (s[:, None] * v).sum(), x @ v.T @ v\n",
        ("f(jnp.arange(9.0).reshape(3, 3), jnp.array([2]))",), "    return w, v, live\n\ndef f(x, n):\n    s, v, mask = leading(x, n[0])\n",
    ),
    "prefix in a lambda": Case(
        "dynamic-shape", "def f(x, t):\n    return jax.vmap(lambda row: row[:t].mean())(x)\n", ("f(jnp.arange(12.0).reshape(3, 4), jnp.int32(2))",),
        "lambda row: jnp.mean(row, where=jnp.arange(row.shape[0]) < t)",
    ),
    "last place that holds": Case(
        "dynamic-shape", "def f(x):\n    i = jnp.flatnonzero(x > 2)\n    return x[i[0]], i[-1]\n", ("f(jnp.arange(6.0))",),
        "x[jnp.argmax(mask)], mask.shape[0] - 1 - jnp.argmax(mask[::-1])",
    ),
    "array turned round": Case(
        "dynamic-shape", "def f(x, i):\n    return jnp.concatenate([x[i:], x[:i]])\n", ("f(jnp.arange(6.0), jnp.int32(2))",), "jnp.roll(x, -i, axis=0)",
    ),
    "window whose end has a name": Case(
        "dynamic-shape", "from jax import lax\ndef f(x, i):\n    end = i + 3\n    return x[i:end] * 2\n", ("f(jnp.arange(6.0), jnp.int32(1))",),
        "    return lax.dynamic_slice_in_dim(x, i, 3) * 2",
    ),
    "size on a line of its own": Case(
        "tracer-int", "import jax.numpy as J\ndef f(x):\n    return x.reshape(\n        x.shape[0],\n        J.prod(J.asarray(x.shape[1:])),  # the rest\n    )\n",
        ("f(jnp.ones((2, 3, 4)))",), "        math.prod(x.shape[1:]),  # the rest\n",
    ),
    "last rows, as many as data say": Case(
        "dynamic-shape", "def f(x, n):\n    return x[-n[0]:].mean()\n", ("f(jnp.arange(5.0), jnp.array([2]))",),
        "jnp.arange(x.shape[0]) >= x.shape[0] - n[0]",
    ),
    "list of what counts": Case(
        "tracer-bool", "def f(xs):\n    kept = [x for x in xs if x > 0]\n    return sum(kept) / len(kept)\n",
        ("f(jnp.array([1.0, -2.0, 3.0]))",), "jnp.sum(xs, where=mask) / jnp.sum(mask)",
    ),
    "selection that is used by its name": Case(
        "tracer-bool",
        "STEPS = (1, 2, 5)\n\ndef f(x):\n    fits = [2 * s for s in STEPS if 2 * s < x]\n    total = x\n    for n in fits:\n        total = total + n\n"
        "    return total * sum(n * x for n in fits) + max(fits, default=0)\n",
        ("f(5.0)", "f(50.0)", "f(1.0)"), "    for s in STEPS:\n        total = jnp.where(2 * s < x, total + (2 * s), total)\n",
    ),
    "list filled with what counts": Case(
        "tracer-bool",
        "def f(xs):\n    kept = []\n    for x in xs:\n        if x > 0:\n            kept.append(2 * x)\n    return jnp.mean(jnp.array(kept))\n",
        ("f(jnp.array([1.0, -2.0, 3.0]))",), "where=mask",
    ),
    "number of rows from data": Case(
        "tracer-int", "def f(x, ns):\n    k = ns.sum() // ns[0]\n    return x.reshape(k, -1)\n",
        ("f(jnp.arange(6.0), jnp.array([3, 3]))",), "k = 2",
    ),
    "sizes in a dict": Case(
        "tracer-int",
        "def f(x, cfg):\n    for k in range(cfg['n']):\n        x = x + cfg['s'] * k\n    return jnp.pad(x, (0, cfg['wide'] - x.size))\n",
        ("f(jnp.ones(3), dict(n=2, s=0.5, wide=8))",), "f(jnp.ones(3), 2, 0.5, 8)",
    ),
    "sizes in a dict that goes on to a helper": Case(
        "tracer-int",
        "def rows(x, cfg):\n    return x.reshape(cfg['n'], -1)\n\ndef f(x, cfg):\n    'rows'\n    return rows(x, cfg).sum()\n",
        ("f(jnp.ones(6), {'n': 2})",), "    'rows'\n    cfg = {\"n\": n}\n",
    ),
    "sizes in a list": Case(
        "dynamic-shape", "def f(x, sizes):\n    return [jnp.split(x, s) for s in sizes]\n",
        ("f(jnp.ones(6), [2, 3])",), "f(jnp.ones(6), (2, 3))",
    ),
    "names in a set": Case(
        "invalid-jax-type", "def f(x, on):\n    return [k * x for k in range(3) if k in on]\n",
        ("f(jnp.ones(6), {1, 2})",), "frozenset({1, 2})",
    ),
    "plain class": Case(
        "unregistered-pytree",
        "class Affine:\n    def __init__(self, w, b):\n        self.w = w\n        self.b = b\n\n"
        "def f(m, x):\n    return m.w * x + m.b\n",
        ("f(Affine(jnp.ones(2), 1.0), jnp.ones(2))",), "return cls(*children)",
    ),
    "class of another cell": Case(
        "unregistered-pytree", "def f(p, k):\n    return p.x * p.y + k\n",
        ("p = Point(jnp.ones(2), 3.0)", "f(p, 1.0)"), "f(p.x, p.y, 1.0)", setup=POINT,
    ),
    "data loader": Case(
        "unregistered-pytree", "def f(rows, w):\n    first = next(iter(rows))  # a batch\n    return (first * w).sum()\n",
        ("f(Rows(), 2.0)",), "f(next(iter(Rows())), 2.0)",
        setup="class Rows:\n    def __iter__(self):\n        return iter([np.ones(3)])\n",
    ),
    "frozen settings": Case(
        "unregistered-pytree", "def f(x, c):\n    return x * c.n\n", ("f(jnp.ones(2), C(3))",), "",
        setup="from dataclasses import dataclass\n@dataclass(frozen=True)\nclass C:\n    n: int\n",
    ),
    "text in a dict": Case(
        "invalid-jax-type", "def f(batch):\n    return batch['x'] * 2\n",
        ("f({'x': jnp.ones(2), 'name': 'a'})",), "f(jnp.ones(2))",
    ),
    "objects in a list": Case(
        "unregistered-pytree",
        "class Spring:\n    def __init__(self, k):\n        self.k = k\n\n"
        "def f(springs, d):\n    return sum(s.k * d for s in springs)\n",
        ("f([Spring(1.0), Spring(2.0)], jnp.ones(2))",), "@jax.tree_util.register_pytree_node_class\nclass Spring",
    ),
    "object that is returned": Case(
        "unregistered-pytree",
        "class Stats:\n    def __init__(self, mean):\n        self.mean = mean\n\n"
        "def f(x):\n    return Stats(x.mean())\n",
        ("f(jnp.arange(3.0))",), "@jax.tree_util.register_pytree_node_class\nclass Stats",
    ),
    "entry that a loop does not start with": Case(
        "carry-mismatch",
        "def f(v, xs):\n    def step(s, x):\n        v = s['v'] + x\n        return {'v': v, 'up': v > 1}, v\n"
        "    return jax.lax.scan(step, {'v': v}, xs)[1]\n",
        ("f(jnp.float32(0), jnp.ones(3))",), '"up": False',
    ),
    "field of a loop's state": Case(
        "carry-mismatch",
        "from typing import NamedTuple\nclass S(NamedTuple):\n    x: jax.Array\n    t: jax.Array\n\n"
        "def f(x):\n    def step(s, _):\n        return S(s.x * 2, s.t + 0.5), None\n"
        "    return jax.lax.scan(step, S(x, t=jnp.int32(0)), None, length=3)[0].t\n",
        ("f(jnp.ones(2))",), "S(x, t=jnp.float32(0))",
    ),
    "start by keyword": Case(
        "carry-mismatch",
        "def f(xs):\n    start = {'n': jnp.zeros((), dtype=jnp.int32), 'm': 0.0}\n"
        "    def step(s, x):\n        return {'n': s['n'] + x, 'm': s['m']}, None\n"
        "    return jax.lax.scan(f=step, init=start, xs=xs)[0]['n']\n",
        ("f(jnp.ones(3))",), "jnp.zeros((), dtype=jnp.float32)",
    ),
    "body that returns a list": Case(
        "carry-mismatch",
        "def f(x):\n    def step(s, _):\n        a, b = s\n        return [b, a + b], a\n"
        "    return jax.lax.scan(step, (x, x), None, length=4)[1]\n",
        ("f(jnp.float32(1))",), "return (b, a + b), a",
    ),
    "state that starts with None": Case(
        "carry-mismatch",
        "def f(x, gs):\n    def step(s, g):\n        x, m = s\n        m = g if m is None else m + g\n"
        "        return (x - m, m), None\n    return jax.lax.scan(step, (x, None), gs)[0][0]\n",
        ("f(jnp.ones(2), jnp.ones((3, 2)))",), "(x, jnp.zeros_like(x))",
    ),
    "object that a loop carries": Case(
        "unregistered-pytree",
        "class Walker:\n    def __init__(self, x):\n        self.x = x\n\n"
        "def f(x, ks):\n    return jax.lax.scan(lambda w, k: (Walker(w.x + k), w.x), Walker(x), ks)[1]\n",
        ("f(jnp.float32(0), jnp.ones(3))",), "@jax.tree_util.register_pytree_node_class\nclass Walker",
        proved=False,
    ),
    "dict as static": Case(
        "unhashable-static", "def f(x, c):\n    for _ in range(c['n']):\n        x = x * c['s']\n    return x\n",
        ("f(jnp.ones(2), {'n': 2, 's': 0.5})",), "f(jnp.ones(2), 2, 0.5)", static=("c",),
    ),
    "list as static": Case(
        "unhashable-static", "def f(x, shape):\n    return x.reshape(shape)\n",
        ("f(jnp.ones(4), [2, 2])",), "f(jnp.ones(4), (2, 2))", static=("shape",),
    ),
    "helper redefined": Case(
        "stale-constant", "def f(x):\n    return act(x)\n",
        ("f(jnp.ones(2))", "act = lambda x: x * 3", "f(jnp.ones(2))"), "def f(x, act):",
        setup="act = lambda x: x * 2\n",
    ),
    "helper of a helper": Case(
        "stale-constant", "def f(x):\n    return layer(x) + 1\n",
        ("f(jnp.ones(2))", "act = lambda x: x * 3", "f(jnp.ones(2))"), "--dyn act",
        setup="act = lambda x: x * 2\ndef layer(x):\n    return act(x)\n",
    ),
    "branches of other dtype": Case(
        "carry-mismatch", "def f(x):\n    return jax.lax.cond(x[0] > 0, lambda v: v.sum(), lambda v: 0, x)\n",
        ("f(jnp.ones(3))",), "lambda v: 0.0",
    ),
    "branches with and without names": Case(
        "carry-mismatch",
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: jax.Array\n    b: jax.Array\n\n"
        "def f(i, p):\n    swap = lambda p: (p.b, p.a)\n    return jax.lax.switch(i, [lambda p: p, swap], p)\n",
        ("f(1, Pair(jnp.ones(2), jnp.zeros(2)))",), "lambda p: Pair(p.b, p.a)",
    ),
    "text among the children of a class": Case(
        "invalid-jax-type",
        "@jax.tree_util.register_pytree_node_class\nclass Layer:\n    def __init__(self, w, act):\n"
        "        self.w, self.act = w, act\n\n    def tree_flatten(self):\n        return (self.w, self.act), None\n\n"
        "    @classmethod\n    def tree_unflatten(cls, aux, children):\n        return cls(*children)\n\n"
        "def f(layer, x):\n    return getattr(jnp, layer.act)(layer.w * x)\n",
        ("f(Layer(2.0, 'tanh'), jnp.ones(3))",), "return (self.w,), (self.act,)",
    ),
    "entry of a dict in a loop of jax's": Case(
        "tracer-hash", "RATE = {0: 0.5, 1: 2.0}\n\ndef f(x):\n    return jax.lax.fori_loop(0, 4, lambda i, x: x * RATE[i % 2], x)\n",
        ("f(3.0)",), "jnp.array(list(RATE.values()))[jnp.argmax(jnp.array(list(RATE)) == (i % 2))]",
    ),
    "branches by name": Case(
        "carry-mismatch",
        "TABLE = (jnp.sum, jnp.count_nonzero, lambda v: v[0])\n\n"
        "def f(i, x):\n    return jax.lax.switch(i, TABLE, x + 1.0)\n",
        ("f(1, jnp.ones(3))",), "lambda x0: jnp.count_nonzero(x0).astype(jnp.float32)",
    ),
    "branch that returns what a helper makes": Case(
        "carry-mismatch",
        "from typing import NamedTuple\nclass S(NamedTuple):\n    x: jax.Array\n    n: jax.Array\n\n"
        "def grow(s):\n    return s._replace(x=s.x * 2)\n\n"
        "def f(s):\n    late = lambda s: grow(s)._replace(n=s.n / 2)\n    return jax.lax.cond(s.x > 0, late, lambda s: grow(s), s)\n",
        ("f(S(1.0, jnp.int32(3)))",), "(result := grow(s))._replace(n=result.n.astype(jnp.float32))",
    ),
    "start of a loop that a function makes": Case(
        "carry-mismatch",
        "def begin(k):\n    return {'x': jnp.zeros(k), 'n': jnp.int32(0)}\n\n"
        "def f(xs):\n    def step(s, x):\n        return {'x': s['x'] + x, 'n': s['n'] + 0.5}, x\n"
        "    return jax.lax.scan(step, begin(2), xs)[0]['n']\n",
        ("f(jnp.ones(3))",), "{**(result := begin(2)), \"n\": result[\"n\"].astype(jnp.float32)}",
    ),
    "count of Python's in a branch": Case(
        "carry-mismatch",
        "def count(v):\n    return v.shape[0]\n\n"
        "def f(x, whole):\n    return jax.lax.cond(whole, jnp.mean, count, x)\n",
        ("f(jnp.arange(3.0), True)", "f(jnp.arange(3.0), False)"), "return jnp.asarray(v.shape[0], jnp.float32)",
    ),
    "functions beside arrays": Case(
        "invalid-jax-type", "def f(layers, x):\n    for w, act in layers:\n        x = act(x @ w)\n    return x\n",
        ("f([(jnp.eye(2), jnp.tanh), (jnp.eye(2), lambda v: 2 * v)], jnp.ones(2))",),
        "f(jax.tree.map(lambda v: jax.tree_util.Partial(v) if callable(v) else v, "
        "[(jnp.eye(2), jnp.tanh), (jnp.eye(2), lambda v: 2 * v)]), jnp.ones(2))",
    ),
    "functions in a list of the notebook": Case(
        "invalid-jax-type",
        "def f(net, x):\n    for w, act in net:\n        x = act(x @ w)\n    return x\n", ("f(net, jnp.ones(2))",),
        "f(jax.tree.map(lambda v: jax.tree_util.Partial(v) if callable(v) else v, net), jnp.ones(2))",
        setup="net = [(jnp.eye(2), jnp.tanh), (jnp.eye(2), jnp.sin)]\n",
    ),
    "array in the settings of a registration": Case(
        "array-in-aux-data",
        "class P:\n    def __init__(self, a, k):\n        self.a, self.k = a, k\n\n"
        "def flat(p):\n    rest = (p.k,)\n    return (p.a,), rest\n\n"
        "jax.tree_util.register_pytree_node(P, flat, lambda rest, parts: P(*parts, *rest))\n\n"
        "def f(p):\n    return p.a * p.k\n",
        ("f(P(2.0, jnp.ones(2)))", "f(P(2.0, jnp.zeros(2)))"), "return (self.a, self.k), None",
    ),
    "cube root of a negative number": Case(
        "nan", "def f(v):\n    return (2 * v) ** (1 / 3)\n", ("f(jnp.float32(-4.0))",), "return jnp.cbrt(2 * v)",
    ),
    "loop over a grid": Case(
        "unrolled-loop",
        "def f(y):\n    for t in np.linspace(0.0, 1.0, 50):\n        y = y + 0.1 * (jnp.sin(t) - y) * y\n    return y\n",
        ("f(jnp.ones(2))",), "y, _ = jax.lax.scan(step, y, np.linspace(0.0, 1.0, 50))",
    ),
    "loop over equal layers": Case(
        "unrolled-loop",
        "def f(layers, x):\n    for w, b in layers:\n        x = jax.nn.gelu(x @ w + b)\n    return x\n",
        ("f([(jnp.eye(2), jnp.zeros(2))] * 30, jnp.ones(2))",), "        w, b = row\n",
    ),
    "tuple for a named tuple from a loop": Case(
        "carry-mismatch",
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: jax.Array\n    b: jax.Array\n\n"
        "def f(p, ks):\n    def turn(p, k):\n        return (p.b, p.a + k), None\n"
        "    return jax.lax.scan(turn, p, ks)[0]\n",
        ("f(Pair(jnp.ones(2), jnp.zeros(2)), jnp.arange(3.0))",), "return Pair(p.b, p.a + k), None", proved=False,
    ),
    "constructor that looks at values": Case(
        "tracer-bool",
        "@jax.tree_util.register_pytree_node_class\nclass Width:\n    def __init__(self, w):\n"
        "        if w <= 0:\n            raise ValueError('w')\n        self.w = w\n\n"
        "    def tree_flatten(self):\n        return (self.w,), None\n\n"
        "    @classmethod\n    def tree_unflatten(cls, aux, children):\n        return cls(*children)\n\n"
        "def f(width, x):\n    return x / width.w\n",
        ("f(Width(2.0), jnp.ones(2))",), "new = object.__new__(cls)\n        new.w, = children",
    ),
    "replacement that is thrown away": Case(
        "unused-result",
        "from typing import NamedTuple\nclass S(NamedTuple):\n    w: float\n\n"
        "def f(s, g):\n    s._replace(w=s.w - g)\n    return s.w\n",
        ("f(S(2.0), 0.5)",), "s = s._replace(w=s.w - g)",
    ),
    "update of a helper that is thrown away": Case(
        "in-place-update",
        "def border(u, v):\n    u.at[0].set(v)\n    u.at[-1].set(v)\n    return u\n\n"
        "def f(u):\n    return border(2 * u, 0.0)\n",
        ("f(jnp.ones(4))",), "u = u.at[0].set(v)\n    u = u.at[-1].set(v)",
    ),
    "branches of other structure": Case(
        "carry-mismatch",
        "def f(x, go):\n    def yes(x):\n        return {'a': x, 'b': x.sum()}\n    def no(x):\n        return {'a': x}\n"
        "    return jax.lax.cond(go, yes, no, x)\n",
        ("f(jnp.ones(3), False)",), "return {\"a\": x, \"b\": 0.0}",
    ),
    "many lengths": Case(
        "recompile-shape", "def f(x):\n    return jnp.mean(x ** 2)\n",
        ("f(jnp.ones(3))", "f(jnp.ones(4))", "f(jnp.ones(5))", "f(jnp.ones(6))"), "jnp.mean(x ** 2, where=keep)",
    ),
    "64 bits": Case(
        "dtype-truncation", "def f(x):\n    return x.astype(jnp.float64).sum()\n", ("f(jnp.ones(3))",), "jnp.float32",
    ),
    "constant key": Case(
        "hidden-rng", "def f(x):\n    key = jax.random.key(7)\n    return x + jax.random.normal(key, x.shape)\n",
        ("f(jnp.ones(3))", "f(jnp.ones(3))"), "def f(x, key):",
    ),
    "break over rows": Case(
        "tracer-bool",
        "def f(xs, limit):\n    total = 0.0\n    for x in xs:\n        if x > limit:\n            break\n"
        "        total = total + x\n    return total\n",
        ("f(jnp.arange(5.0), 2.5)",), "lax.while_loop(",
    ),
    "return in a loop": Case(
        "tracer-bool",
        "def f(xs, x):\n    for i in range(len(xs)):\n        if xs[i] == x:\n            return i\n    return -1\n",
        ("f(jnp.arange(5), 3)", "f(jnp.arange(5), 9)"), "return jnp.where(found, i, -1)",
    ),
    "division that is guarded": Case(
        "tracer-bool", "def f(x, b):\n    g = x / b if b != 0 else 0.0\n    return g\n",
        ("f(2.0, 0.0)", "f(2.0, 4.0)"), "x / jnp.where(b != 0, b, 1)",
    ),
    "print under a condition": Case(
        "tracer-bool", "def f(x, i):\n    if i % 10 == 0:\n        print('step', i)\n    return x\n",
        ("f(1.0, 20)",), 'lax.cond(i % 10 == 0, lambda: jax.debug.print("step {i}", i=i), lambda: None)',
    ),
    "rows of several lengths in an array": Case(
        "invalid-jax-type", "def f(rows):\n    return sum(r.sum() for r in rows)\n", ("f(rows)",), "f(list(rows))",
        setup="rows = np.array([np.ones(2), np.ones(3)], dtype=object)\n",
    ),
    "object that is only changed": Case(
        "state-write",
        "from dataclasses import dataclass\n@jax.tree_util.register_dataclass\n@dataclass\nclass Ball:\n"
        "    x: jax.Array\n    v: jax.Array\n\ndef f(ball, dt):\n    ball.x = ball.x + dt * ball.v\n",
        ("ball = Ball(jnp.zeros(2), jnp.ones(2))", "f(ball, 0.5)"), "ball = f(ball, 0.5)",
    ),
    "object that is changed beside a result": Case(
        "state-write",
        "from dataclasses import dataclass\n@jax.tree_util.register_dataclass\n@dataclass\nclass Ball:\n"
        "    x: jax.Array\n    v: jax.Array\n\ndef f(ball, dt):\n    ball.x = ball.x + dt * ball.v\n    return ball.x.max()\n",
        ("ball = Ball(jnp.zeros(2), jnp.ones(2))", "high = f(ball, 0.5)"), "high, ball = f(ball, 0.5)",
    ),
    "object with a dtype": Case(
        "unregistered-pytree",
        "class Layer:\n    dtype = None\n    def __init__(self, w):\n        self.w = w\n\n    def apply(self, x):\n"
        "        return self.w * x\n\ndef f(layer, x):\n    return layer.apply(x)\n",
        ("f(Layer(2.0), jnp.ones(2))",), "register_pytree_node_class",
    ),
    "sorted in place": Case(
        "in-place-update", "def f(x):\n    x.sort()\n    return x[1:]\n", ("f(np.array([3.0, 1.0, 2.0]))",),
        "    x = jnp.sort(x)\n",
    ),
    "entry whose update is thrown away": Case(
        "in-place-update", "def f(b, v):\n    b['c'].at[0].set(v)\n    return b['c']\n", ("f({'c': jnp.zeros(2)}, 1.0)",),
        "b = {**b, 'c': b['c'].at[0].set(v)}",
    ),
    "static dict that is handed on": Case(
        "unhashable-static",
        "def g(x, c):\n    return x * c['k'] if c['on'] else x\n\ndef f(x, c):\n    return g(x, c)\n",
        ("f(1.0, {'k': 2.0, 'on': True})",), "def f(x, k, on):\n    c = {\"k\": k, \"on\": on}\n", static=("c",),
    ),
    "value that a helper's method keeps": Case(
        "leaked-tracer",
        "class Net:\n    def __init__(self):\n        self.h = None\n\n    def of(self, x):\n        self.h = jnp.tanh(x)\n        return self.h.sum()\n\n"
        "net = Net()\n\ndef f(x):\n    return net.of(x)\n", ("f(jnp.ones(2))",),
        "            self.h = h\n\n        jax.debug.callback(keep, h)\n        return h.sum()\n",
    ),
    "rows that a helper writes into": Case(
        "in-place-update",
        "def pad(row, v):\n    row[0] = v\n\ndef f(m, v):\n    for k in range(m.shape[0]):\n        pad(m[k], v)\n    return m\n",
        ("f(np.ones((2, 3)), 5.0)",), "        m = m.at[k].set(pad(m[k], v))\n",
    ),
    "global that a loss keeps": Case(
        "leaked-tracer",
        "y = None\ndef loss(w, x):\n    global y\n    y = x * w\n    return y.sum()\n\n"
        "def f(w, x):\n    g = jax.grad(loss)(w, x)\n    return g, y.max()\n",
        ("f(2.0, jnp.ones(2))",), "    g, y = jax.grad(loss, has_aux=True)(w, x)\n", proved=False,
    ),
    "selection that a method returns": Case(
        "dynamic-shape",
        "class Filter:\n    low = 0.3\n\n    def above(self, x, w):\n        i = jnp.nonzero(x > self.low)[0]\n        return (x[i], w[i])\n\n"
        "flt = Filter()\n\ndef f(x, w):\n    a, b = flt.above(x, w)\n    c, _ = flt.above(w, x)\n    return jnp.sum(a * b), c.mean()\n",
        ("f(jnp.arange(4.0) / 3, jnp.arange(4.0))",), "    c, _, selected = flt.above(w, x)\n    return jnp.sum(a * b, where=mask), jnp.mean(c, where=selected)",
    ),
    "angle of parallel vectors": Case(
        "nan", "def angle(a, b):\n    return jnp.arccos(a @ b)\n\ndef f(a, b):\n    return jax.value_and_grad(angle)(a, b)\n",
        ("f(jnp.array([1.0, 0.0]), jnp.array([1.0, 0.0]))", "f(jnp.array([0.6, 0.8]), jnp.array([1.0, 0.0]))"), "    cosine = a @ b\n",
    ),
    "texts beside arrays": Case(
        "invalid-jax-type",
        "def f(terms):\n    return sum(t['w'] if t['kind'] == 'plain' else jnp.exp(t['w']) for t in terms)\n",
        ("f([{'kind': 'plain', 'w': jnp.ones(2)}, {'kind': 'log', 'w': jnp.zeros(2)}])",), "f(jax.tree.map(lambda v: Text(v) if isinstance(v, str) else v, [",
    ),
    "table of numbers, by an array": Case(
        "tracer-hash", "GAIN = {0: 0.5, 2: 1.0}\n\ndef f(k, x):\n    return GAIN[k] * x\n",
        ("f(jnp.int32(2), 3.0)",), "jnp.argmax(jnp.array(list(GAIN)) == k)", proved=False,
    ),
    "set of constants": Case(
        "tracer-hash", "SPECIAL = {3, 5}\ndef f(k, x):\n    if k in SPECIAL:\n        return x * 0\n    return x\n",
        ("f(3, jnp.ones(2))",), "jnp.isin(k, jnp.array(list(SPECIAL)))",
    ),
    "function picked first": Case(
        "tracer-int", "def f(x, i):\n    g = [jnp.sin, jnp.cos][i]\n    return g(x)\n",
        ("f(jnp.ones(2), 1)",), "jax.lax.switch(i, [jnp.sin, jnp.cos], x)",
    ),
    "segments": Case(
        "tracer-int", "def f(x, seg):\n    return jax.ops.segment_sum(x, seg)\n",
        ("f(jnp.ones(3), jnp.array([0, 1, 1]))",), "num_segments=2",
    ),
    "entry of a dict": Case(
        "in-place-update", "def f(p, g):\n    p['w'][0] -= g\n    return p\n",
        ("f({'w': jnp.ones(3)}, 0.5)",), "p['w'] = p['w'].at[0].subtract(g)",
    ),
    "two results thrown away": Case(
        "in-place-update", "def f(x):\n    x.at[0].set(9.0)\n    x.at[1].add(1.0)\n    return x\n",
        ("f(jnp.zeros(3))",), "x = x.at[0].set(9.0)\n    x = x.at[1].add(1.0)",
    ),
    "raise behind else": Case(
        "tracer-bool",
        "def f(x):\n    if x > 0:\n        y = jnp.log(x)\n    else:\n        raise ValueError('positive')\n    return y\n",
        ("f(2.0)",), "jax.debug.callback(check, jnp.logical_not(x > 0))",
    ),
    "rows that are mapped": Case(
        "unrolled-loop",
        "def f(rows, w):\n    out = []\n    for r in rows:\n        out.append(jnp.tanh(r @ w))\n    return jnp.stack(out)\n",
        ("f(jnp.ones((50, 3)), jnp.ones(3))",), "out = jax.vmap(lambda r: jnp.tanh(r @ w))(rows)",
    ),
    "steps that are scanned": Case(
        "unrolled-loop",
        "def f(v, xs):\n    out = []\n    for x in xs:\n        v = v + 0.1 * (x - v)\n        out.append(v)\n"
        "    return jnp.stack(out)\n",
        ("f(jnp.float32(0.0), jnp.ones(50))",), "_, out = jax.lax.scan(step, v, xs)",
    ),
    "derivative of a function of the cell": Case(
        "tracer-bool", "def loss(w):\n    return w ** 2 if w > 0 else -w\n\nslope = jax.grad(loss)\n\n"
        "def f(w):\n    return w - 0.1 * slope(w)\n", ("f(2.0)",), "jnp.where(w > 0",
    ),
    "function that another one makes": Case(
        "tracer-array-conversion", "def make(k):\n    def step(x):\n        return k * np.sin(x)\n    return step\n\n"
        "f = make(3.0)\n", ("f(jnp.ones(2))",), "k * jnp.sin(x)",
    ),
    "method under a name": Case(
        "tracer-array-conversion",
        "class Wave:\n    k = 2.0\n    def top(self, x):\n        return x / x.max().item() * self.k\n\n"
        "wave = Wave()\nf = wave.top\n", ("f(jnp.ones(2))",), "x / x.max() * self.k",
    ),
    "last entry": Case(
        "in-place-update", "def f(u, v):\n    u[-1] = v\n    u[0] *= v\n    return u\n", ("f(np.ones(3), 2.0)",),
        "u = jnp.asarray(u).at[-1].set(v)",
    ),
    "array in a dict": Case(
        "in-place-update", "def f(m, v):\n    m['x'][0] += v\n    return m\n", ("f({'x': np.ones(3)}, 2.0)",),
        "m['x'] = jnp.asarray(m['x']).at[0].add(v)",
    ),
    "names in a list": Case(
        "invalid-jax-type", "def f(t, names):\n    return sum(t[n] for n in names)\n",
        ("f({'a': 1.0, 'b': 2.0}, ['a', 'b'])",), "('a', 'b')",
    ),
    "settings with equality": Case(
        "unhashable-static", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    n: int\n\n"
        "def f(x, c):\n    return x * c.n\n", ("f(1.0, C(2))",), "@jax.tree_util.register_dataclass\n@dataclasses.dataclass", static=("c",),
    ),
    "class with equality": Case(
        "unhashable-static", "class C:\n    def __init__(self, n):\n        self.n = n\n"
        "    def __eq__(self, other):\n        return self.n == other.n\n\n"
        "def f(x, c):\n    return x * c.n\n", ("f(1.0, C(2))",), "@jax.tree_util.register_pytree_node_class", static=("c",),
    ),
    "frozen settings with a list": Case(
        "unhashable-static", "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass C:\n    ks: list\n    n: int = 2\n\n"
        "def f(x, c):\n    for k in c.ks:\n        x = x * k + c.n\n    return x\n", ("f(1.0, C([2.0, 3.0]))",),
        "@jax.tree_util.register_dataclass\n@dataclasses.dataclass(frozen=True)", static=("c",),
    ),
    "settings of the command line": Case(
        "unhashable-static", "def f(x, a):\n    for _ in range(a.n):\n        x = a.s * x\n    return x\n", ("f(1.0, opts)",),
        "f(1.0, opts.n, opts.s)", setup="import argparse\nopts = argparse.Namespace(n=2, s=0.5)\n", static=("a",),
    ),
    "generator of NumPy's": Case(
        "invalid-jax-type", "def f(x, rng):\n    return x + rng.uniform(size=2)\n", ("f(jnp.ones(2), gen)",),
        "f(jnp.ones(2), gen.uniform(size=2))", setup="gen = np.random.default_rng(1)\n",
    ),
    "counted up by NumPy": Case(
        "in-place-update", "def f(h, i):\n    np.add.at(h, i, 1.0)\n    return h / h.sum()\n",
        ("f(np.ones(3), np.array([0, 0]))",), "jnp.asarray(h).at[i].add(1.0)",
    ),
    "every entry of a dict": Case(
        "in-place-update", "def f(m, k):\n    for n in m:\n        m[n][1:] *= k\n    return m\n",
        ("f({'x': np.ones(3), 'y': np.ones(2)}, 2.0)",), "m[n] = jnp.asarray(m[n]).at[1:].multiply(k)",
    ),
    "number of jax as static": Case(
        "unhashable-static", "def f(x, n):\n    return x[:n]\n", ("f(jnp.ones(3), n=jnp.argmax(jnp.arange(3)))",),
        "n=int(jnp.argmax(jnp.arange(3)))", static=("n",),
    ),
    "extreme that a scan keeps outside": Case(
        "leaked-tracer",
        "def f(xs):\n    top = -jnp.inf\n    def turn(s, x):\n        nonlocal top\n        top = jnp.maximum(top, s)\n"
        "        return s + x, s\n    s, ys = jax.lax.scan(turn, 0.0, xs)\n    return jnp.exp(top), s, ys\n",
        ("f(jnp.array([1.0, -3.0, 1.0]))",), "(s, top), ys = jax.lax.scan(turn, (0.0, top), xs)",
    ),
    "buffer that a loop fills outside": Case(
        "in-place-update",
        "def f(x):\n    seen = np.zeros((3, 2))\n    def turn(i, s):\n        seen[i, 0] = s\n        return 0 - s\n"
        "    x = jax.lax.fori_loop(0, 3, turn, x)\n    return x + jnp.sum(seen)\n",
        ("f(2.0)",), "return 0 - s, seen",
    ),
    "buffer that a helper fills": Case(
        "in-place-update",
        "def f(x):\n    seen = np.zeros(3)\n    def put(i, v):\n        seen[i] = v\n    put(0, x)\n    put(2, 2 * x)\n"
        "    return jnp.asarray(seen)\n",
        ("f(2.0)",), "nonlocal seen\n        seen = seen.at[i].set(v)",
    ),
    "energies that vmap leaves behind": Case(
        "leaked-tracer",
        "def f(xs):\n    es = []\n    def one(x):\n        e = x ** 2\n        es.append(e)\n        return -x\n"
        "    fs = jax.vmap(one)(xs)\n    return fs, jnp.array(es).max()\n",
        ("f(jnp.arange(3.0))",), "return fs, es.max()",
    ),
    "text in what is returned": Case(
        "invalid-jax-type",
        "def f(x):\n    return {'of': 'x', 'sum': x.sum()}, (x, 'x')\n", ("f(jnp.ones(2))[0]['sum']",),
        "return {'sum': x.sum()}, (x,)",
    ),
    "text by keyword": Case(
        "invalid-jax-type", "def f(x, **how):\n    return jnp.pad(x, 1, **how)\n", ("f(jnp.ones(2), mode='edge')",), "",
    ),
    "field of a named tuple": Case(
        "in-place-update", "def f(s, v):\n    s.q[0] += v\n    return s\n", ("f(S(np.ones(2), 1), 3.0)",),
        "s = s._replace(q=jnp.asarray(s.q).at[0].add(v))",
        setup="from typing import NamedTuple\nclass S(NamedTuple):\n    q: np.ndarray\n    n: int\n",
    ),
    "list that is filled for the caller": Case(
        "in-place-update", "def f(x, seen):\n    seen['y'] = x + 1\n    return 2 * x\n",
        ("y = f(1.0, d)", "f(y, d)", "d['y']"), "y, d = f(1.0, d)\nout, d = f(y, d)\nout", setup="d = {}\n",
    ),
    "prediction that a loss keeps": Case(
        "leaked-tracer",
        "def f(w, x):\n    seen = []\n    def loss(w):\n        p = x * w\n        seen.append(p)\n        return (p ** 2).sum()\n"
        "    return w - jax.grad(loss)(w) + seen[0].sum()\n",
        ("f(2.0, jnp.ones(2))",), "gradient, seen = jax.grad(loss, has_aux=True)(w)", proved=False,
    ),
    "outer name that a loss binds": Case(
        "leaked-tracer",
        "def f(w, x):\n    p = None\n    def loss(w):\n        nonlocal p\n        p = x * w\n        return (p ** 2).sum()\n"
        "    value, slope = jax.value_and_grad(loss)(w)\n    return value, slope, p\n",
        ("f(2.0, jnp.ones(2))",), "(value, p), slope = jax.value_and_grad(loss, has_aux=True)(w)", proved=False,
    ),
    "list that a fori_loop fills": Case(
        "leaked-tracer",
        "def f(x):\n    seen = []\n    def body(i, x):\n        x = x * 0.5\n        seen.append(x)\n        return x\n"
        "    x = jax.lax.fori_loop(0, 3, body, x)\n    return x, jnp.stack(seen)\n",
        ("f(2.0)",), "x, seen = jax.lax.scan(body, x, jnp.arange(3))",
    ),
    "mask among the arguments": Case(
        "in-place-update", "def f(x, m):\n    x[m] = 0.0\n    return x.sum()\n",
        ("f(np.ones(3), np.array([True, False, True]))",), "jnp.where(m, 0.0, jnp.asarray(x))",
    ),
    "rows exchanged": Case(
        "user-error", "def f(a, i, j):\n    a[[i, j]] = a[[j, i]]\n    return a\n", ("f(np.eye(3), 0, 2)",),
        "at[jnp.array([i, j])].set(a[jnp.array([j, i])])",
    ),
    "dict that nobody returns": Case(
        "in-place-update", "def f(p, g):\n    for k in p:\n        p[k] = p[k] - g[k]\n", ("f(p, {'w': 1.0})", "p['w']"),
        "return p", setup="p = {'w': jnp.ones(2)}\n",
    ),
    "mask of columns": Case(
        "dynamic-shape", "def f(x, m):\n    y = x[:, m]\n    return y.mean(axis=0).max(), y.sum(axis=1)\n",
        ("f(jnp.ones((3, 2)), jnp.array([True, False]))",), "jnp.sum(x, axis=1, where=m)",
    ),
    "buffer of an object": Case(
        "in-place-update",
        "class Line:\n    def __init__(self):\n        self.b = jnp.zeros(2)\n    def push(self, x):\n        self.b[0] = x\n"
        "        return self.b.sum()\n\nline = Line()\nf = line.push\n", ("f(1.0)", "f(2.0)"), "self.b.at[0].set(x)",
        proved=False,
    ),
    "function of scipy under its own name": Case(
        "tracer-array-conversion", "def f(h, t):\n    return expm(t * h)\n", ("f(jnp.eye(2), 0.5)",),
        "jax.scipy.linalg.expm(t * h)", setup="from scipy.linalg import expm\n",
    ),
    "two selections at once": Case(
        "dynamic-shape", "def f(x, y):\n    a, b = x[y > 0], y[y > 0]\n    return (a * b).sum() / b.max()\n",
        ("f(jnp.ones(3), jnp.arange(3.0))",), "where=",
    ),
    "member of an enumeration": Case(
        "invalid-jax-type", "def f(x, side):\n    return x if side is Side.LEFT else -x\n",
        ("f(1.0, Side.LEFT)", "f(1.0, Side.RIGHT)"), "", setup="import enum\nclass Side(enum.Enum):\n    LEFT = 'l'\n    RIGHT = 'r'\n",
    ),
    "activation in a dict": Case(
        "invalid-jax-type", "def f(layer, x):\n    return layer['act'](x * layer['w'])\n",
        ("f({'w': 2.0, 'act': jnp.tanh}, 1.0)",), "f(jnp.tanh, 2.0, 1.0)",
    ),
    "shape in an array": Case(
        "unhashable-static", "def f(x, shape):\n    return x.reshape(shape)\n", ("f(jnp.ones(6), np.array([2, 3]))",),
        "f(jnp.ones(6), (2, 3))", static=("shape",),
    ),
    "two entries at once": Case(
        "in-place-update", "def f(u, v):\n    u[0] = u[-1] = v\n    return u\n", ("f(np.ones(3), 2.0)",),
        "u = jnp.asarray(u).at[0].set(v).at[-1].set(v)",
    ),
    "prefix of a row": Case(
        "dynamic-shape", "def f(h, n):\n    return h[1, : n[0]].mean() + h[0, : n[1]].mean()\n",
        ("f(jnp.arange(6.0).reshape(2, 3), jnp.array([1, 2]))",), "live2 = jnp.arange(h.shape[1]) < n[1]",
    ),
    "method of a table": Case(
        "tracer-array-conversion", "def f(x):\n    return table.dot(x)\n", ("f(jnp.ones(2))",),
        "jnp.asarray(table).dot(x)", setup="table = np.ones((3, 2))\n",
    ),
    "lists in a tuple": Case(
        "unhashable-static", "def f(x, spec):\n    for n, ks in spec:\n        for k in ks:\n            x = x * k + n\n    return x\n",
        ("f(1.0, ((2, [1, 3]), (1, [3])))",), "((2, (1, 3)), (1, (3,)))", static=("spec",),
    ),
    "loop left in one of its branches": Case(
        "tracer-bool", "def f(xs, v):\n    low, high = 0, len(xs)\n    while low < high:\n        at = (low + high) // 2\n"
        "        if xs[at] == v:\n            return at\n        elif xs[at] < v:\n            low = at + 1\n        else:\n            high = at\n"
        "    return -1\n",
        ("f(jnp.arange(9) * 2, 6)", "f(jnp.arange(9) * 2, 7)"), "    return jnp.where(found, at, -1)",
    ),
    "selections in a comprehension": Case(
        "dynamic-shape", "def f(x, k):\n    return {c: x[jnp.flatnonzero(k == c)].mean() for c in (0, 1)}\n",
        ("f(jnp.arange(4.0), jnp.array([0, 1, 1, 1]))",), "{c: jnp.mean(x, where=k == c) for c in (0, 1)}",
    ),
    "index after a break": Case(
        "tracer-bool", "def f(x, t):\n    for i in range(1, 5):\n        if x * i > t:\n            break\n    return i\n",
        ("f(1.0, jnp.float32(2.5))", "f(1.0, jnp.float32(9.0))"), "i = jnp.minimum(i, 4)",
    ),
    "functions that jax does not have": Case(
        "tracer-array-conversion", "def f(x, m):\n    y = table(2 * x)\n    return y.sum() + ellipk(m) * np.sum(y)\n",
        ("f(jnp.array([0.1, 0.2]), jnp.float32(0.5))",), "lambda v: np.asarray(table(v), jnp.float32),\n",
        setup="from scipy.special import ellipk\nfrom scipy.interpolate import interp1d\n"
        "table = interp1d(np.arange(4.0), np.arange(4.0) ** 2)\n",
    ),
    "complex number": Case(
        "tracer-array-conversion", "def f(a, b):\n    return abs(complex(a, 2 * b)) * 2 + complex(a).real\n",
        ("f(jnp.float32(3.0), jnp.float32(2.0))",), "abs(a + 1j * (2 * b)) * 2 + a.real",
    ),
    "lists in a list": Case(
        "unhashable-static", "def f(x, spec):\n    for n, k in spec:\n        x = x[:n] * k\n    return x\n",
        ("f(jnp.ones(3), [[2, 3], [1, 3]])",), "((2, 3), (1, 3))", static=("spec",),
    ),
    "rules of a custom derivative": Case(
        "tracer-bool", "@jax.custom_vjp\ndef keep(x, most):\n    return x\n\ndef back(most, g):\n    if jnp.abs(g) > most:\n"
        "        g = g * 0\n    return g, None\n\nkeep.defvjp(lambda x, most: (x, most), back)\n\ndef f(x):\n"
        "    return jax.grad(lambda v: keep(v, 1.0) ** 2)(x)\n",
        ("f(3.0)", "f(0.2)"), "    g = jnp.where(jnp.abs(g) > most, g * 0, g)\n",
    ),
    "class registered by a call": Case(
        "tracer-bool", "class Point:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n\n"
        "jax.tree_util.register_pytree_node(Point, lambda p: ((p.x, p.y), None), lambda _, c: Point(*c))\n\n"
        "def f(p, s):\n    if s > 0:\n        s = s * p.x\n    return Point(s, p.y)\n",
        ("f(Point(2.0, 1.0), jnp.float32(3.0))",), "    s = jnp.where(s > 0, s * p.x, s)\n",
    ),
    "state and result side by side": Case(
        "carry-mismatch", "def f(x, v):\n    def step(s, _):\n        x, v = s\n        return x + v, v, x\n"
        "    return jax.lax.scan(step, (x, v), None, length=3)\n",
        ("f(1.0, 2.0)",), "return (x + v, v), x\n", proved=False,
    ),
    "loop whose result is thrown away": Case(
        "unused-result", "def f(x, v):\n    jax.lax.fori_loop(0, 3, lambda i, s: (s[0] + s[1], s[1] + i), (x, v))\n    return x + v\n",
        ("f(1.0, 2.0)",), "    x, v = jax.lax.fori_loop(",
    ),
    "result not returned": Case(
        "unused-result", "def f(x):\n    jnp.sum(x ** 2)\n", ("f(jnp.ones(3))",), "    return jnp.sum(x ** 2)\n",
    ),
    "recurrence of two terms": Case(
        "unrolled-loop", "def f(x):\n    ps = [jnp.ones_like(x), x]\n    for n in range(1, 40):\n"
        "        ps.append(((2 * n + 1) * x * ps[-1] - n * ps[-2]) / (n + 1))\n    return jnp.stack(ps)\n",
        ("f(jnp.linspace(-1.0, 1.0, 5))",), "        return (p, before_last), p\n",
    ),
    "loop that carries its rounding far": Case(
        "unrolled-loop", "def f(a, b):\n    x, r = b * 0, b\n    p, s = r, r @ r\n    for _ in range(30):\n        q = a @ p\n"
        "        k = s / (p @ q)\n        x, r = x + k * p, r - k * q\n        new = r @ r\n        p, s = r + new / s * p, new\n"
        "    return x, jnp.sqrt(s)\n",
        ("f(jnp.diag(jnp.arange(1.0, 41.0)), jnp.ones(40))",), "jax.lax.fori_loop(0, 30, body, ",
    ),
    "state in a dict": Case(
        "unrolled-loop", "def f(w):\n    state, seen = {'m': w * 0}, []\n    for t in range(1, 30):\n        g = jnp.sin(w) * jnp.cos(t * w)\n"
        "        state['m'] = 0.9 * state['m'] + 0.1 * g\n        w = w - state['m']\n        seen.append(w)\n    return jnp.stack(seen)\n",
        ("f(jnp.ones(2))",), "    def step(carry, t):\n        w, state = carry\n",
    ),
    "array in a dict of dicts": Case(
        "in-place-update", "def f(p):\n    p['head']['b'][0] = 0.0\n    return p\n",
        ("f({'head': {'w': np.ones((2, 2)), 'b': np.ones(2)}})",),
        "    p['head']['b'] = jnp.asarray(p['head']['b']).at[0].set(0.0)\n",
    ),
    "one value stored twice": Case(
        "in-place-update", "def f(x):\n    d = np.zeros((2, 2))\n    d[0, 1] = d[1, 0] = jnp.sum(x)\n    return d\n",
        ("f(jnp.ones(3))",), "    value = jnp.sum(x)\n    d = d.at[0, 1].set(value).at[1, 0].set(value)\n",
    ),
    "buffer that an object makes": Case(
        "in-place-update", "class Ring:\n    def __init__(self, n):\n        self.data = np.zeros(n)\n\n"
        "    def push(self, i, v):\n        self.data[i] = v\n\ndef f(x):\n    r = Ring(2)\n    r.push(0, x)\n    return r.data\n",
        ("f(1.0)",), "        self.data = jnp.zeros(n)\n",
    ),
    "size among the fields of a dataclass": Case(
        "unregistered-pytree",
        "import dataclasses as dc\n@dc.dataclass\nclass G:\n    n: int\n    w: jax.Array\n\n"
        "def f(g, x):\n    return jnp.zeros(g.n) + g.w.sum() * x\n",
        ("f(G(3, jnp.ones(2)), 1.0)",), "    n: int = dc.field(metadata=dict(static=True))\n",
    ),
    "object in an object": Case(
        "unregistered-pytree",
        "import jax as J\nclass In:\n    def __init__(self, k):\n        self.k = k\n\nclass Out:\n"
        "    def __init__(self, inner, name):\n        self.name = name\n        self.inner = inner\n\n"
        "    def __call__(self, x):\n        return self.inner.k * x\n\ndef f(o, x):\n    return o(x)\n",
        ("f(Out(In(2.0), 'a'), jnp.ones(2))",), "return (self.inner,), (self.name,)\n",
    ),
    "object that is handed on": Case(
        "unregistered-pytree",
        "def g(o, x):\n    h = o.act\n    return h(x) * o.gain\n\ndef f(o, x):\n    return g(o, x)\n",
        ("f(Opts(jnp.tanh, 2.0), jnp.ones(2))",), "def f(act, gain, x):\n    o = Opts(act=act, gain=gain)\n    return g(o, x)\n",
        setup="class Opts:\n    def __init__(self, act, gain):\n        self.act, self.gain = act, gain\n",
    ),
    "dict with a text that is handed on": Case(
        "invalid-jax-type", "def g(o, x):\n    return getattr(jnp, o['how'])(x * o['w'])\n\ndef f(x, *, o):\n    return g(o, x)\n",
        ("f(jnp.ones(2), o={'how': 'sum', 'w': jnp.ones(2)})",), "def f(x, *, how, w):\n    o = {\"how\": how, \"w\": w}\n",
    ),
    "two static lists": Case(
        "unhashable-static", "def f(x, sizes, names):\n    return {n: x[:s].sum() for s, n in zip(sizes, names)}\n",
        ("f(jnp.ones(4), [1, 3], ['a', 'b'])",), "f(jnp.ones(4), (1, 3), ('a', 'b'))", static=("sizes", "names"),
    ),
    "list that a scan fills and nothing stacks": Case(
        "leaked-tracer", "def f(x):\n    seen = []\n    def body(x, _):\n        seen.append(x)\n        return 2 * x, None\n"
        "    x, _ = jax.lax.scan(body, x, None, length=3)\n    return x, seen\n", ("f(1.0)",), "    return x, list(seen)\n",
    ),
    "global that keeps a value": Case(
        "leaked-tracer", "last = None\n\ndef f(x):\n    global last\n    y = x.sum()\n    last = y\n    return y * x\n", ("f(jnp.ones(2))",),
        "        global last\n        last = y\n\n    jax.debug.callback(keep, y)\n",
    ),
    "branch beside a global that keeps a value": Case(
        "tracer-bool", "last = None\n\ndef f(x):\n    global last\n    last = x\n    if x > 0:\n        return x\n    return -x\n",
        ("f(2.0)", "f(-2.0)"), "jax.debug.callback(keep, x)\n    return jnp.where(x > 0, x, -x)\n",
    ),
    "function, count and a buffer of data": Case(
        "in-place-update", "def f(g, x, n):\n    out = np.zeros(n)\n    for k in range(n):\n        out[k] = x\n        x = g(x)\n    return out\n",
        ("f(jnp.sin, 1.0, 3)",), "        out = out.at[k].set(x)\n",
    ),
    "arrays in a list": Case(
        "in-place-update", "def f(ws):\n    for i in range(len(ws)):\n        ws[i][0, :] *= 2.0\n    return ws\n",
        ("f([np.ones((2, 2)), np.ones((2, 2))])",), "        ws[i] = jnp.asarray(ws[i]).at[0, :].multiply(2.0)\n",
    ),
    "different values of a list": Case(
        "tracer-array-conversion", "def f(x):\n    n = len(set(x.tolist()))\n    return x / n\n", ("f(jnp.array([3, 1, 3]))",),
        "    n = jnp.sum(jnp.diff(jnp.sort(x, axis=None)) != 0) + (x.size > 0)\n",
    ),
    "different values that decide": Case(
        "tracer-array-conversion", "def f(x):\n    if np.unique(x).size > 2:\n        return x / len(np.unique(x))\n    return x\n",
        ("f(jnp.arange(3.0))", "f(jnp.ones(3))"), "        x / (jnp.sum(",
    ),
    "dict of functions and a tuple of names": Case(
        "invalid-jax-type", "def f(x, bank, which):\n    return [bank[k](x) for k in which]\n",
        ("f(jnp.ones(2), {'s': jnp.sin, 'c': jnp.cos}, ('s', 'c'))",), "    bank = {\"s\": s, \"c\": c}\n",
    ),
    "object of the cell and a text": Case(
        "unregistered-pytree", "class A:\n    def __init__(self, w):\n        self.w = w\n\ndef f(a, x, how):\n"
        "    return getattr(jnp, how)(a.w * x)\n", ("f(A(jnp.ones(2)), 2.0, 'sum')",), "@jax.tree_util.register_pytree_node_class\n",
    ),
    "text, number of NumPy's and a list outside": Case(
        "invalid-jax-type", "seen = []\n\ndef f(x, unit):\n    y = np.sqrt(x)\n    seen.append(y)\n    return y * (2 if unit == 'm' else 1)\n",
        ("f(4.0, 'm')",), "    y = jnp.sqrt(x)\n",
    ),
    "array that an object was given": Case(
        "in-place-update", "class G:\n    def __init__(self, r):\n        self.r = r\n\n    def put(self, i, v):\n        self.r[i] += v\n\n"
        "def f(r, v):\n    g = G(r)\n    g.put(0, v)\n    g.put(1, v)\n    return g.r\n", ("f(np.zeros(3), 0.5)",),
        "        self.r = self.r.at[i].add(v)\n",
    ),
    "result where a mask holds": Case(
        "tracer-array-conversion", "def f(a, b):\n    out = np.zeros(2)\n    np.divide(a, b, out=out, where=b != 0)\n    return out\n",
        ("f(jnp.ones(2), jnp.array([0.0, 2.0]))",), "    out = jnp.where(b != 0, jnp.divide(a, b), out)\n",
    ),
    "value that a function keeps on itself": Case(
        "leaked-tracer", "def f(x):\n    y = x.sum()\n    f.last = y\n    return -y\n", ("f(jnp.ones(2))",), "        f.last = y\n\n    jax.debug",
    ),
    "functions of libraries under other names": Case(
        "tracer-array-conversion",
        "def f(x):\n    return J.cos(x) * root(x[0]) + mt.log(x[1], 2) + sp.expit(x) + norm.logpdf(x) + sp.softmax(x)\n",
        ("f(np.arange(1.0, 3.0))",),
        "J.cos(x) * J.sqrt(x[0]) + J.log(x[1]) / J.log(2) + jax.scipy.special.expit(x) + "
        "jax.scipy.stats.norm.logpdf(x) + jax.nn.softmax(x)\n",
        setup="import jax.numpy as J\nfrom math import sqrt as root\nimport math as mt\nfrom scipy import special as sp\n"
        "from scipy.stats import norm\ndel jnp\n",
    ),
    "conversion over several lines": Case(
        "tracer-array-conversion",
        "def f(x, eps):\n    total = 2 * float(x.sum()\n                  + 1)  # at least one\n    return x / (total\n                + eps)\n",
        ("f(jnp.arange(4.0), 1e-3)",), "    total = 2 * (x.sum()\n                  + 1)  # at least one\n",
    ),
    "comments between the arguments": Case(
        "tracer-array-conversion", "def f(x):\n    return np.where(\n        x > 0,  # here\n        np.sin(x), 0)\n", ("f(jnp.ones(2))",),
        "    return jnp.where(\n        x > 0,  # here\n        jnp.sin(x), 0)\n",
    ),
    "list of values for a NumPy function": Case(
        "tracer-array-conversion", "def f(x):\n    return np.mean([x[0], math.hypot(x[1], 2.0)])\n", ("f(jnp.ones(2))",),
        "jnp.mean(jnp.array([x[0], jnp.hypot(x[1], 2.0)]))",
    ),
    "function of NumPy that is mapped": Case(
        "tracer-array-conversion", "def f(x):\n    return jax.tree.map(np.sin, {'x': x})['x']\n", ("f(jnp.ones(2))",),
        "jax.tree.map(jnp.sin, {'x': x})",
    ),
    "clock in a print": Case(
        "frozen-side-effect", "import time\n\ndef f(x):\n    print(time.time(), x)\n    return x\n", ("f(1.0)",),
        "    jax.debug.callback(lambda x: print(time.time(), x), x)\n",
    ),
    "parts of a print that are known": Case(
        "tracer-format",
        "def f(x):\n    print('loss', float(x.sum()),  # total\n          f'{x.shape} {x[0]:.3f} {len(x)}', x[0] + x[1], sep='|')\n    return x\n",
        ("f(jnp.ones(2))",), "    jax.debug.print(f\"loss|{{sum}}|{x.shape} {{value:.3f}} {len(x)}|{{value2}}\", "
        "sum=x.sum(), value=x[0], value2=x[0] + x[1])\n",
    ),
    "text that is logged later": Case(
        "tracer-format", "def f(x):\n    y = '{:.1f}'.format(x)\n    logger.info('%s of %s', y, x)\n    return x\n", ("f(1.0)",),
        "def f(x):\n    jax.debug.callback(lambda x: logger.info('%s of %s', '{:.1f}'.format(x), x), x)\n",
        setup="import logging\nlogger = logging.getLogger('f')\n",
    ),
    "print and log under a condition": Case(
        "tracer-bool",
        "def f(x, i):\n    if i % 10 == 0:\n        print('step', i)\n        logger.info('x %s', x)\n    else: print('-')\n    return x\n",
        ("f(1.0, 20)",),
        "        jax.debug.callback(lambda x: logger.info('x %s', x), x)\n\n"
        "    jax.lax.cond(i % 10 == 0, show, lambda: jax.debug.print(\"-\"))\n",
        setup="import logging\nlogger = logging.getLogger('f')\n",
    ),
    "count and loss in a dict outside": Case(
        "tracer-array-conversion",
        "log = {'loss': 0.0, 'n': 0}\n\ndef f(x):\n    loss = jnp.mean(x)\n    log['loss'] = float(loss)\n    log['n'] += 1\n    return loss * x\n",
        ("f(jnp.ones(2))",), "    def keep2():\n        log['n'] += 1\n\n    jax.debug.callback(keep2)\n",
    ),
    "nothing by nothing, beside infinities": Case(
        "nan", "def f(a, b):\n    return 1 / (1 + jnp.exp((a - b) / (a + b)))\n",
        ("f(jnp.array([0.0, 1.0, -1.0]), jnp.array([0.0, 2.0, 1.0]))",),
        "jnp.where(((a - b) == 0) & ((a + b) == 0), 1.0, a + b)",
    ),
    "memo of what depends on no argument": Case(
        "leaked-tracer",
        "kept = {}\n\ndef basis(n):\n    found = kept.get(n)\n    if found is None:\n        found = jnp.eye(n)  # unit\n"
        "        kept[n] = found / n\n    return kept[n]\n\ndef f(x):\n    return basis(2) @ x\n",
        ("f(jnp.ones(2))", "f(jnp.ones(2, int))"),
        "",
    ),
    "item of a dict that a loss keeps": Case(
        "leaked-tracer",
        "def f(w, x):\n    aux = {}\n    def loss(w):\n        aux['p'] = x * w\n        return (aux['p'] ** 2).sum()\n"
        "    return jax.grad(loss)(w) + aux['p'].sum()\n",
        ("f(2.0, jnp.ones(2))",),
        "        value = x * w\n        return (value ** 2).sum(), value\n    gradient, aux['p'] = jax.grad(loss, has_aux=True)(w)\n",
        proved=False,
    ),
    "buffer of a loop whose result is returned": Case(
        "in-place-update",
        "import jax.lax as L\n\ndef f(x):\n    out = np.zeros(4)\n    def turn(i, s):\n        'One step.'\n        out[i] = s[0]  # keep\n"
        "        return s * 2\n    return L.fori_loop(0, 4, turn, x), out\n",
        ("f(jnp.ones(2))",), "        return s * 2, out\n    result, out = L.fori_loop(0, 4, turn, (x, out))\n    return result, out\n",
    ),
    "distances of SciPy": Case(
        "tracer-array-conversion", "def f(a, b):\n    return cdist(a, b, metric='cityblock').min()\n",
        ("f(jnp.ones((3, 2)), jnp.zeros((4, 2)))",), "jax.ShapeDtypeStruct((3, 4), jnp.float32)",
        setup="from scipy.spatial.distance import cdist\n",
    ),
    "rows of a transpose": Case(
        "in-place-update", "def f(m, v):\n    m.T[0] = v  # the first column\n    return m\n", ("f(np.ones((2, 3)), jnp.arange(2.0))",),
        "    m = jnp.asarray(m).T.at[0].set(v).T  # the first column\n",
    ),
    "rows by a mask, another name for jax.numpy": Case(
        "in-place-update", "def f(p, hit):\n    p[hit > 0] = 0.0\n    p[p[:, 0] > 1, 1] *= 2\n    return p\n",
        ("f(np.arange(6.0).reshape(3, 2), np.array([1, 0, 0]))",),
        "    p = J.where((hit > 0)[..., None], 0.0, p)\n    p = p.at[:, 1].set(J.where(p[:, 0] > 1, p[:, 1] * 2, p[:, 1]))\n",
        setup="del jax, jnp\nimport jax.numpy as J\n",
    ),
    "mask, functions imported by name": Case(
        "dynamic-shape", "def f(x, m):\n    x[m > 0] += 1\n    return x\n", ("f(np.ones(3), np.array([1, 0, 1]))",),
        "    x = where(m > 0, x + 1, x)\n", setup="del jax, jnp\nfrom jax.numpy import where\n",
    ),
    "two arrays at once": Case(
        "in-place-update", "def f(a, b, v):\n    a[0], b[1:] = v, b[:-1]\n    return a, b\n", ("f(np.ones(2), np.arange(3.0), 3.0)",),
        "    a, b = jnp.asarray(a).at[0].set(v), jnp.asarray(b).at[1:].set(b[:-1])\n",
    ),
    "pair of results that is stored": Case(
        "in-place-update", "def g(v):\n    return v, 2 * v\n\ndef f(a, v):\n    a[0], a[1] = g(v)\n    return a\n",
        ("f(np.ones(2), 3.0)",), "    new, new2 = g(v)\n    a = jnp.asarray(a).at[0].set(new).at[1].set(new2)\n",
    ),
    "value over several lines": Case(
        "in-place-update", "def f(x, y):\n    if y is not None: x[0] = (\n        y\n        + 1  # one\n    ); x[1] = y\n    return x\n",
        ("f(np.ones(3), 2.0)",), "x = x.at[0].set(\n        y\n        + 1  # one\n    ); x = x.at[1].set(y)\n",
    ),
    "arrays that a helper changes": Case(
        "in-place-update", "def put(a, *, into):\n    into[0] = a[0]\n    a[0] = 0.0\n\n"
        "def f(x, y):\n    put(x, into=y)  # moves\n    return x, y\n", ("f(np.ones(2), np.zeros(2))",),
        "    x, y = put(x, into=y)  # moves\n",
    ),
    "field of a frozen dataclass": Case(
        "in-place-update", "def f(s, v):\n    s.q[0] += v\n    return s\n", ("f(S(np.ones(2), 1.0), 3.0)",),
        "    s = dataclasses.replace(s, q=jnp.asarray(s.q).at[0].add(v))\n", setup="import dataclasses\n"
        "@jax.tree_util.register_dataclass\n@dataclasses.dataclass(frozen=True)\nclass S:\n    q: object\n    n: float\n",
    ),
    "arrays of jax in a list": Case(
        "in-place-update", "def f(ws, v):\n    for i in range(len(ws)):\n        ws[i][0] = v\n    return ws\n",
        ("f([jnp.ones(2), jnp.ones(2)], 3.0)",), "        ws[i] = ws[i].at[0].set(v)\n",
    ),
    "buffer that a helper of a helper fills": Case(
        "in-place-update", "def f(x):\n    out = np.zeros(2)\n    def a(v):\n        def b(w):\n            out[0] = w\n        b(2 * v)\n"
        "    a(x)\n    return jnp.asarray(out)\n", ("f(2.0)",), "            nonlocal out\n            out = out.at[0].set(w)\n",
    ),
    "buffer that a branch fills": Case(
        "tracer-bool", "def f(v):\n    out = np.zeros(3) + 1\n    if v > 0:\n        out[0] = v\n    return out\n", ("f(2.0)", "f(-2.0)"),
        "    out = jnp.where(v > 0, out.at[0].set(v), out)\n",
    ),
    "log of a call inside an expression": Case(
        "in-place-update", "def f(x, log):\n    log.append(x)\n    return x * 2\n", ("z = f(1.0, box['log']) + 1",),
        "out, box['log'] = f(1.0, box['log'])\nz = out + 1", setup="box = {'log': []}\n",
    ),
    "table of the notebook": Case(
        "state-write", "table = np.zeros(3)\n\ndef f(x):\n    table[0] = x\n    return table.sum()\n", ("f(1.0)", "y = f(2.0)"),
        "",
    ),
    "loop over rows and their numbers, under other names": Case(
        "unrolled-loop", "def f(v, xs):\n    out = []\n    for i, x in enumerate(xs):\n        v = v + 0.1 * (x - v) * J.sin(v) / (i + 1)\n"
        "        out.append(v)\n    return J.stack(out)\n",
        ("f(0.0, J.ones(50))",), "    _, out = lax.scan(step, v, (J.arange(len(xs)), xs))\n    return out\n",
        setup="import jax.numpy as J\nfrom jax import lax\ndel jnp, jax\n",
    ),
    "sum over rows, under another name": Case(
        "unrolled-loop", "def f(xs):\n    return sum(J.sin(x) * J.cos(x) + x / (1 + x) for x in xs)\n", ("f(J.ones(40))",),
        "return J.sum(jax.vmap(lambda x: J.sin(x) * J.cos(x) + x / (1 + x))(xs), axis=0)",
        setup="import jax.numpy as J\ndel jnp, jax\n",
    ),
    "path that starts with what is carried": Case(
        "unrolled-loop", "def f(x, n=40):\n    path = [x]\n    for t in range(n):\n        x = x + 0.1 * jn.sin(x) * jn.cos(x)\n"
        "        path.append(x)\n    return jn.array(path), x\n",
        ("f(1.0)",), "    first_path = jn.stack([x])\n    x, path = scan(step, x, None, length=n)\n    path = jn.concatenate([first_path, path])\n",
        setup="from jax import numpy as jn\nfrom jax.lax import scan\ndel jnp, jax\n",
    ),
    "pairs that are appended": Case(
        "unrolled-loop", "def f(x, v):\n    path = []\n    for t in range(40):\n        v = v - 0.1 * jnp.sin(x)\n        x = x + 0.1 * v\n"
        "        path.append((x, v))\n    xs, vs = zip(*path)\n    return jnp.array(xs), jnp.stack(vs), path[-1]\n",
        ("f(1.0, 0.0)",), "    xs, vs = path\n    return jnp.array(xs), jnp.stack(vs), jax.tree.map(lambda v: v[-1], path)\n",
    ),
    "parts of what is appended": Case(
        "unrolled-loop", "def f(x, v):\n    path = []\n    for t in range(40):\n        v = v - 0.1 * jnp.sin(x)\n        x = x + 0.1 * v\n"
        "        path.append((x, v))\n    xs = jnp.stack([p[0] for p in path])\n    return xs, jnp.array([v for _, v in path]), [x for x, v in path]\n",
        ("f(1.0, 0.0)",), "    xs = path[0]\n    return xs, path[1], list(path[0])\n",
    ),
    "list that is read by the counter": Case(
        "unrolled-loop", "def f(x0, dt):\n    xs = [x0]\n    for i in range(1, 60):\n        k = jnp.sin(xs[i - 1])\n"
        "        xs.append(xs[i - 1] + dt * k)\n    return jnp.array(xs)\n",
        ("f(1.0, 0.1)",), "        k = jnp.sin(x)\n        x = x + dt * k\n        return x, x\n",
    ),
    "list that is returned, and its sum": Case(
        "unrolled-loop", "def f(x):\n    out = []\n    for i in range(30):\n        x = jnp.tanh(x) * 1.1 + jnp.sin(x) / (1 + x ** 2)\n"
        "        out += [x]\n    return out, sum(out)\n", ("f(1.0)",), "    return list(out), out.sum(0)\n",
    ),
    "two lists, one of them filled now and then": Case(
        "unrolled-loop", "def f(x):\n    a, b = [], []\n    for i in range(40):\n        x = x - 0.1 * jnp.sin(x)\n        if i % 4 == 0:\n"
        "            a.append(x)\n        b.append(x ** 2)\n    return jnp.stack(a), jnp.stack(b)\n",
        ("f(jnp.ones(2))",), "    _, (a, b) = jax.lax.scan(step, x, None, length=40)\n    a = a[jnp.array([k for k, i in enumerate(range(40)) if i % 4 == 0])]\n",
    ),
    "list made in advance": Case(
        "unrolled-loop", "def f(x):\n    out = [None] * 40\n    for i in range(40):\n        x = x + jnp.sin(x) * 0.1\n        out[i] = x\n"
        "    return jnp.stack(out)\n", ("f(1.0)",), "    _, out = jax.lax.scan(step, x, None, length=40)\n    return out\n",
    ),
    "dicts that are stacked leaf by leaf": Case(
        "unrolled-loop", "def f(s, ks):\n    hist = []\n    for k in ks:\n        s = {'a': s['a'] + k, 'b': jnp.sin(s['b']) * k}\n"
        "        hist.append(s)\n    return jax.tree.map(lambda *v: jnp.stack(v), *hist)\n",
        ("f({'a': 1.0, 'b': 2.0}, jnp.ones(40))",), "    _, hist = jax.lax.scan(step, s, ks)\n    return hist\n",
    ),
    "rows that several statements map": Case(
        "unrolled-loop", "def f(rows, w):\n    out = []\n    for r in rows:\n        # each by itself\n        y = tanh(r @ w)\n"
        "        z = y * y + 1  # never 0\n        out.append(z / (1 + y))\n    return stack(out)\n",
        ("f(ones((50, 3)), ones(3))",), "    def one(r):\n        # each by itself\n        y = tanh(r @ w)\n        z = y * y + 1  # never 0\n        return z / (1 + y)\n",
        setup="from jax.numpy import tanh, stack, ones\n",
    ),
    "loops in a loop": Case(
        "unrolled-loop", "class Charges:\n    def energy(self, p):\n        e = 0.0\n        for i in range(12):\n            for j in range(i):\n"
        "                r = p[i] - p[j]\n                e += jnp.sum(r ** 2) ** -0.5\n        return e\n\n"
        "charges = Charges()\n\ndef f(p):\n    return charges.energy(p)\n",
        ("f(jnp.arange(36.0).reshape(12, 3))",), "            e = jax.lax.fori_loop(0, i, body, e)\n            return e\n\n        e = jax.lax.fori_loop(0, 12, outer_body, e)\n",
    ),
    "long loop over what an object holds": Case(
        "tracer-bool", "class LIF:\n    def __init__(self, n):\n        self.v, self.tau = jnp.zeros(n), 10.0\n\n    def run(self, currents):\n"
        "        spikes = []\n        for I in currents:\n            self.v = self.v + (I - self.v) / self.tau\n"
        "            if (self.v > 1.0).any():\n                self.v = jnp.where(self.v > 1.0, 0.0, self.v)\n"
        "            spikes.append(self.v.sum())\n        return jnp.stack(spikes)\n\nnet = LIF(4)\n\ndef f(c):\n    return net.run(c)\n",
        ("f(jnp.ones((100, 4)) * 2.0)", "f(jnp.ones((100, 4)))"),
        "            return self.v, self.v.sum()\n\n        self.v, spikes = jax.lax.scan(step, self.v, currents)\n        return spikes\n",
    ),
    "while on what an object holds": Case(
        "tracer-bool", "class M:\n    pass\n\nm = M()\nm.τ = jnp.ones(3) * 5\n\ndef f(r):\n    while m.τ.max() > 1.0:  # τ\n        m.τ = m.τ * r\n    return m.τ\n",
        ("f(0.5)", "f(0.1)"), "    τ = jax.lax.while_loop(lambda τ: τ.max() > 1.0, lambda τ: τ * r, τ)\n    m.τ = τ\n",
    ),
    "loop around a method that keeps its state": Case(
        "unrolled-loop", "class Cell:\n    def __init__(self, n):\n        self.v, self.t = jnp.zeros(n), 0.0\n\n    def rate(self):\n        return jax.nn.sigmoid(self.v)\n\n"
        "    def step(self, I):\n        self.v = self.v + 0.1 * (I - self.v) * self.rate()\n        self.tick()\n\n    def tick(self):\n        self.t = self.t + 0.1\n\n"
        "cell = Cell(3)\n\ndef f(I):\n    for _ in range(60):\n        cell.step(I)  # both change\n        I = I * 0.9\n    return cell.v.sum() + I\n",
        ("f(2.0)",), "    def body(_, state):\n        I, cell.v, cell.t = state\n        cell.step(I)  # both change\n        I = I * 0.9\n        return I, cell.v, cell.t\n\n    I, cell.v, cell.t = jax.lax.fori_loop(0, 60, body, (I, cell.v, cell.t))\n",
    ),
    "while around a method that keeps its state": Case(
        "tracer-bool", "class Root:\n    def __init__(self, start):\n        self.x = start\n\n    def slope(self):\n        return 2 * self.x\n\n"
        "    def step(self):\n        self.x = self.x - (self.x ** 2 - 2.0) / self.slope()\n\nroot = Root(jnp.array(1.0))\n\n"
        "def f(tol):\n    while abs(root.x ** 2 - 2.0) > tol:\n        root.step()\n    return root.x\n",
        ("f(1e-3)", "f(1e-5)"), "    def keep_going(state):\n        root.x = state\n        return abs(root.x ** 2 - 2.0) > tol\n\n    def body(state):\n        root.x = state\n        root.step()\n        return root.x\n\n    root.x = jax.lax.while_loop(keep_going, body, root.x)\n",
    ),
    "rows that a method of another cell follows": Case(
        "unrolled-loop", "def f(currents):\n    seen = []\n    for k, I in enumerate(currents):\n        y = net.step(I) * k\n        seen.append(y + net.v)\n    return jnp.stack(seen)\n",
        ("f(jnp.linspace(0.0, 2.0, 50))",), "    net.v, seen = jax.lax.scan(step, net.v, (jnp.arange(len(currents)), currents))\n    return seen\n",
        setup="class Net:\n    def __init__(self):\n        self.v = jnp.zeros(2)\n\n    def step(self, I):\n        self.v = self.v + 0.1 * (I - self.v)\n        return self.v.sum()\n\nnet = Net()\n",
    ),
    "steps that are left when they have converged": Case(
        "tracer-bool", "def f(x, y):\n    for epoch in range(50):\n        l = fit.step(x, y)\n        if l < 1e-3:\n            break\n    return l\n",
        ("f(jnp.eye(3), jnp.arange(3.0))",), "        l = fit.step(x, y)\n        done = l < 1e-3\n        epoch = epoch + 1\n        return epoch, done, l, fit.w, fit.m\n", setup=(FIT := "class Fit:\n    def __init__(self, w):\n"
        "        self.w, self.m = w, jnp.zeros_like(w)\n\n    def step(self, x, y):\n        loss = lambda w: jnp.mean((x @ w - y) ** 2)\n        l, g = jax.value_and_grad(loss)(self.w)\n"
        "        self.m = 0.9 * self.m + g\n        self.w = self.w - 0.1 * self.m\n        return l\n\nfit = Fit(jnp.zeros(3))\n"),
    ),
    "list of what a method that keeps its state returns": Case(
        "unrolled-loop", "def f(x, y):\n    return jnp.stack([fit.step(x, y * k)\n                      for k in jnp.ones(60)])\n",
        ("f(jnp.eye(3), jnp.arange(3.0))",), "    (fit.w, fit.m), rows = jax.lax.scan(step, (fit.w, fit.m), jnp.ones(60))\n    return rows\n", setup=FIT,
    ),
    "state of a method, in the body of a scan": Case(
        "leaked-tracer", "def f(xs):\n    def body(c, x):\n        y = net.step(x)\n        return c + y, net.v\n\n    c, vs = jax.lax.scan(body, 0.0, xs)\n    return vs\n",
        ("f(jnp.ones(5))",), "        return (c + y, net.v, net.n), net.v\n\n    (c, net.v, net.n), vs = jax.lax.scan(body, (0.0, net.v, net.n), xs)\n", setup=(NET := "class Net:\n    def __init__(self):\n"
        "        self.v, self.n = jnp.zeros(2), 0\n\n    def step(self, x):\n        self.v = jnp.tanh(0.5 * self.v + x)\n        self.n += 1\n        return self.v.sum()\n\nnet = Net()\n"),
    ),
    "state of a method, in the body of a fori_loop": Case(
        "leaked-tracer", "def f(x):\n    def turn(i, s):\n        return s + net.step(x)\n\n    return jax.lax.fori_loop(0, 5, turn, 0.0)\n",
        ("f(0.1)",), "    result, net.v, net.n = jax.lax.fori_loop(0, 5, turn, (0.0, net.v, net.n))\n    return result\n", setup=NET,
    ),
    "what a method returns, beside its state": Case(
        "leaked-tracer", "def f(xs):\n    def body(c, x):\n        return c + x, net.step(x)\n\n    return jax.lax.scan(body, 0.0, xs)[1]\n",
        ("f(jnp.ones(5))",), "        value = net.step(x)\n        return (c + x, net.v, net.n), value\n", setup=NET,
    ),
    "loop whose only state is that of its object": Case(
        "leaked-tracer", "class Cell:\n    def __init__(self):\n        self.v = jnp.zeros(2)\n\n    def run(self, xs):\n        def body(_, x):\n            self.v = self.v + x\n"
        "            return None, self.v.sum()\n\n        return jax.lax.scan(body, None, xs)[1]\n\ncell = Cell()\n\ndef f(xs):\n    return cell.run(xs)\n",
        ("f(jnp.ones(4))",), "        self.v, result = jax.lax.scan(body, self.v, xs)\n        return result\n",
    ),
    "memo that is tried first": Case(
        "leaked-tracer", "tables = {}\n\ndef basis(n):\n    try:\n        b = tables[n]\n    except KeyError:\n        b = jnp.cos(jnp.arange(n))\n        tables[n] = b\n    return b\n\n"
        "def f(x):\n    return jnp.sum(basis(4) * x)\n", ("f(1.0)", "f(2)"), "        with jax.ensure_compile_time_eval():\n            b = jnp.cos(jnp.arange(n))\n            tables[n] = b\n    return b\n",
    ),
    "object that is called until a test of it returns": Case(
        "tracer-bool", "class Base:\n    def __init__(self):\n        self.x, self.steps = jnp.zeros(2), 0\n\n    def advance(self, a):\n        self.x = self.x + 0.1 * a\n        self.steps += 1\n\n"
        "class Env(Base):\n    def __call__(self, a):\n        self.advance(a)\n        return -jnp.sum(self.x ** 2)\n\nenv = Env()\n\n"
        "def f(a):\n    for t in range(100):\n        if env(a) < -0.5:\n            return t\n    return 100\n",
        ("f(jnp.ones(2))", "f(jnp.zeros(2))"), "        found = env(a) < -0.5\n        t = jnp.where(found, t, t + 1)\n        return t, found, env.x, env.steps\n",
    ),
    "state in a dict that a helper keeps": Case(
        "unrolled-loop", "state = {'v': jnp.zeros(2), 'n': 0}\n\ndef tick(I):\n    state['v'] = 0.9 * state['v'] + I\n    state['n'] += 1\n\n"
        "def f(I):\n    for _ in range(60):\n        tick(I)\n    return state['v'].sum()\n", ("f(0.3)", "f(0.1)"),
        "        state['v'], state['n'] = carry\n        tick(I)\n        return state['v'], state['n']\n",
    ),
    "pair in a set of pairs": Case(
        "tracer-hash", "WALLS = {(1, 1), (1, 2)}\n\ndef f(cell):\n    r, c = cell + 1\n    if (r, c) in WALLS:\n        return cell\n    return cell + 1\n",
        ("f(jnp.array([0, 1]))",), "jnp.any(jnp.all(jnp.array(list(WALLS)) == jnp.array([r, c]), axis=-1))", proved=False,
    ),
    "pair not in a list of pairs": Case(
        "tracer-bool", "TAKEN = [(0, 1), (2, 3)]\n\ndef f(i, j):\n    return 1.0 if (i, j + 1) not in TAKEN else 5.0\n",
        ("f(2, 2)", "f(1, 1)"), "~jnp.any(jnp.all(jnp.array(list(TAKEN)) == jnp.array([i, j + 1]), axis=-1))",
    ),
    "long loop behind another problem": Case(
        "tracer-int", "def f(v, I, steps):\n    spikes = []\n    for t in range(steps):\n        v = v + 0.1 * (I[t] - v)\n        s = v > 0.5\n"
        "        v = jnp.where(s, 0.0, v)\n        spikes.append(s)\n    return jnp.stack(spikes)\n",
        ("f(jnp.zeros(5), jnp.ones((300, 5)), 300)",), "    _, spikes = jax.lax.scan(step, v, jnp.arange(steps))\n",
    ),
    "several ways to return from a loop": Case(
        "tracer-bool", "def f(x):\n    for i in range(50):\n        x = x * 1.5\n        if x > 100:\n            return 1\n        if x < -100:\n"
        "            return -1\n    return 0\n", ("f(1.0)", "f(-1.0)", "f(0.0)"), "    return jnp.where(found, 1, jnp.where(found2, -1, 0))\n",
    ),
    "loop that is left by a return or by a break": Case(
        "tracer-bool", "def f(x, tol):\n    for i in range(50):\n        x = x - 0.5 * (x - 3)\n        if jnp.isnan(x):\n            return -1.0\n"
        "        if jnp.abs(x - 3) < tol:\n            break\n    y = x * 2\n    return y\n",
        ("f(1.0, 1e-2)", "f(jnp.nan, 1e-2)"), "    return jnp.where(found, -1.0, y)\n",
    ),
    "continue in a branch": Case(
        "tracer-bool", "def f(xs, on=True):\n    s = 0.0\n    for x in xs:\n        if on:\n            if x < 0:\n                continue\n"
        "            s = s + 1\n        s = s + x\n    return s\n",
        ("f(jnp.array([1.0, -2.0, 3.0]))",), "            skipped = x < 0\n            s = jnp.where(skipped, s, s + 1)\n        s = jnp.where(skipped, s, s + x)\n",
    ),
    "break in a branch of an endless loop": Case(
        "tracer-bool", "def f(x, lim):\n    n = 0\n    while True:\n        x = x + 1\n        if x > 3:\n            n = n + 1\n            if x > lim:\n"
        "                break\n            x = x + 0.5\n        n = n + 10\n    return x, n\n",
        ("f(0.0, 7.0)",), "        done = jnp.where(condition, x > lim, done)\n",
    ),
    "row at which a loop returns": Case(
        "tracer-bool", "def f(xs, ys):\n    for x, y in zip(xs, ys):\n        if x > y:\n            return x\n    return -1.0\n",
        ("f(jnp.arange(3.0), jnp.array([1.0, 0.0, 1.0]))", "f(jnp.arange(3.0), jnp.ones(3) * 9)"), "    x = xs[i]\n    y = ys[i]\n    return jnp.where(found, x, -1.0)\n",
    ),
    "range with a step": Case(
        "tracer-int", "def f(x, n):\n    for i in range(n, 0, -2):\n        x = x * 0.5 + i\n    return x\n", ("f(1.0, 8)", "f(1.0, 9)"),
        "        i = n - turn * 2\n        x = x * 0.5 + i\n        return x\n\n    x = jax.lax.fori_loop(0, (n + 1) // 2, body, x)\n",
    ),
    "start of a method's loop, under other names": Case(
        "carry-mismatch", "class M:\n    def __init__(self, w):\n        self.w = w\n\n    def step(self, c, x):\n        n, s = c\n"
        "        return (n + self.w, s), n\n\n    def run(self, xs):\n        start = (jn.int32(0), jn.zeros(()))  # both\n"
        "        return scan(self.step, start, xs)[1]\n\nm = M(0.5)\n\ndef f(xs):\n    return m.run(xs)\n",
        ("f(jn.ones(3))",), "start = (jn.float32(0), jn.zeros(()))  # both",
        setup="from jax import numpy as jn\nfrom jax.lax import scan\ndel jnp, jax\n", proved=False,
    ),
    "two lists that a scan fills": Case(
        "leaked-tracer", "def f(x0):\n    seen, up = [], []\n    def step(x, _):\n        x = 3.7 * x * (1.0 - x)\n        seen.append(x)\n"
        "        up.append(x > 0.5)\n        return x, None\n    return jax.lax.scan(step, x0, None, length=4)[0] + sum(seen), jnp.array(up)\n",
        ("f(jnp.float32(0.3))",), "    result, (seen, up) = jax.lax.scan(step, x0, None, length=4)\n    return result + seen.sum(0), up\n",
    ),
    "elements under other names": Case(
        "tracer-bool", "def f(xs, ys):\n    top = max(\n        x * 2  # twice\n        for x, y in zip(xs, ys)\n        if x > y\n    )\n"
        "    return top, next((i for i, x in enumerate(xs) if x > 2), -1)\n",
        ("f(J.arange(4.0), J.ones(4))",), "J.where(J.any(xs > 2), J.argmax(xs > 2), -1)", setup="import jax.numpy as J\ndel jnp, jax\n",
    ),
}  # fmt: skip
