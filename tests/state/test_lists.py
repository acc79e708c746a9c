"""State that is no array: lists, deques, sets, dicts and counters that a compiled method writes, under `dyn_vars="self"`."""

from __future__ import annotations

import collections
import itertools
import linecache
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitmagic
from jitmagic.state.errors import LostWriteWarning

SOURCE = """
class Rec:
    def __init__(self, v):
        self.v = v

def add(items, v):
    items.append(v)

class Fit:
    def __init__(self):
        self.w, self.v, self.n, self.size, self.mode = jnp.arange(3.), jnp.ones(3), 0, 3, 'a'
        self.log, self.buf = [], [jnp.float32(i) for i in range(5)]
        self.hist, self.d, self.c = {'loss': [], 'acc': []}, {'first': jnp.float32(0)}, collections.Counter()
        self.dd, self.win, self.seen = collections.defaultdict(list), collections.deque(maxlen=3), {'a'}
        self.best = self.last = self.same = None
        self.a, self.b = Rec(jnp.float32(1)), Rec(jnp.float32(2))

    def step(self, x):
        next(TRACES)
        self.w = self.w + x
        BODY
        return self.w.sum()
"""

CASES = {
    "a list is added to": ("self.log.append(self.w.sum())", 1),
    "several at once": ("self.log.extend([x, self.w[0]])", 1),
    "by +=": ("self.log += [x]", 1),
    "in a dict": ("self.hist['loss'].append(x)", 1),
    "in a loop": ("[self.log.append(x * i) for i in range(3)]", 1),
    "dicts": ("self.log.append({'loss': x, 'name': 's'})", 1),
    "objects": ("self.log.append(Rec(x))", 1),
    "tuples": ("self.log.append((x, 1))", 1),
    "strings and numbers": ("self.log.extend(['step', 1.5])", 1),
    "gradients": ("g = jax.grad(lambda w: (w * x).sum())(self.w); self.log.append(g); self.w = self.w - g", 1),
    "another name": ("h = self.log; h.append(x)", 3),
    "a helper": ("add(self.log, x)", 3),
    "computed keys": ("[self.hist[k].append(x * 2) for k in ('loss', 'acc')]", 3),
    "a list that is made": ("self.dd['l'].append(x)", 2),
    "a default": ("self.d.setdefault('l', []).append(x)", 4),
    "a deque": ("self.win.append(self.w.sum())", 1),
    "a deque that is read": ("self.win.append(x); self.w = self.w + jnp.stack(list(self.win)).mean()", 6),
    "a deque from the left": ("self.win.appendleft(x)", 4),
    "a deque that turns": ("self.win.append(x); self.win.rotate(1)", 4),
    "a deque that loses": ("self.win.append(x); self.win.popleft() if len(self.win) > 2 else None", 5),
    "a set": ("self.seen.add('k')", 1),
    "a set that loses": ("self.seen.add('k'); self.seen.discard('a')", 3),
    "a set that is asked": ("self.w = self.w + ('k' in self.seen); self.seen.add('k')", 4),
    "a dict": ("self.d['last'] = x", 2),
    "a dict, several keys": ("self.d.update(last=x, other=self.w)", 2),
    "a key that goes": ("self.d['t'] = x; del self.d['t']", 1),
    "a number": ("self.n += 1", 1),
    "a number that is used": ("self.n += 1; self.w = self.w * self.n", 1),
    "a Counter": ("self.c['a'] += 1", 2),
    "a number that decides a shape": ("self.w = self.w + jnp.ones(self.size).sum()", 2),
    "items": ("self.buf[0] = x; self.buf[-1] = self.buf[-1] + x", 1),
    "items that go": ("self.buf.pop() if self.buf else None; self.buf.pop() if len(self.buf) > 1 else None", 4),
    "all items go": ("self.buf.clear()", 2),
    "all items are other ones": ("self.buf[:] = [x]", 2),
    "another order": ("self.buf.reverse()", 1),
    "a new list": ("self.log = [x]", 2),
    "a word that alternates": ("self.mode = 'b' if self.mode == 'a' else 'a'; self.w += 1 if self.mode == 'a' else 9", 2),
    "nothing at first": ("self.best = x if self.best is None else jnp.minimum(self.best, x)", 2),
    "a new object": ("self.last = Rec(x)", 2),
    "places are changed": ("self.w, self.v = self.v, self.w; self.a, self.b = self.b, self.a", 1),
    "an item is put in front": ("self.buf.insert(0, x)", None),
    "a list that is read": ("self.log.append(x); self.w = self.w + len(self.log)", None),
    "a list that is kept elsewhere too": ("self.log.append(x); self.same = self.log", None),
    "a list that is returned": ("self.log.append(x); return self.log[-1]", None),
    "a longer list": ("self.log = self.log + [x]", None),
}  # fmt: skip
_numbers = itertools.count()


def plain_values(value):
    if isinstance(value, jax.Array | np.ndarray | np.generic | int | float) and not isinstance(value, bool):
        return np.asarray(value, np.float32).round(3).tolist()
    if isinstance(value, dict):
        return {str(k): plain_values(v) for k, v in value.items()}
    if isinstance(value, list | tuple | collections.deque):
        return [plain_values(v) for v in value]
    if isinstance(value, set):
        return sorted(value)
    return plain_values(vars(value)) if hasattr(value, "__dict__") else value


def run(body, compiled):
    """Results, state and number of traces of seven calls; the set is emptied after the fifth."""
    name = f"<cell {next(_numbers)}>"
    source = SOURCE.replace("BODY", body)
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    traces = counted()
    space = {"jnp": jnp, "jax": jax, "collections": collections, "TRACES": traces, "__name__": "user"}
    exec(compile(source, name, "exec"), space)
    fit = space["Fit"]()
    step = jitmagic.jit(fit.step, dyn_vars="self") if compiled else fit.step
    out = []
    for k in range(7):
        out.append(plain_values(step(jnp.float32(k))))
        if k == 4:
            fit.seen.clear()
    return out, plain_values(fit), next(traces) - 1


def counted():
    """A generator, which nothing puts back after a trace that was in vain."""
    yield from itertools.count(1)


@pytest.mark.parametrize("name", CASES)
def test_as_the_plain_method(name):
    body, traces = CASES[name]
    wanted, got = run(body, False), run(body, True)
    assert got[:2] == wanted[:2]
    assert traces is None or got[2] == traces


def test_what_decides_a_branch_and_is_written_is_an_error_that_names_it():
    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        run("self.n += 1; self.w = self.w + 1 if self.n % 2 else self.w", True)
    assert any("self.n, a dynamic variable" in note for note in caught.value.__notes__)


class Momentum:
    def __init__(self):
        self.w, self.v = jnp.zeros(()), jnp.zeros(())

    def step(self, x):
        self.v = 0.9 * self.v + x
        self.w = self.w + self.v
        return self.w


def test_a_write_that_was_not_declared_is_told_once():
    step = jitmagic.jit(Momentum().step, dyn_vars="self.w")
    with pytest.warns(LostWriteWarning, match=r"step writes self\.v, which is not"):
        step(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostWriteWarning)
        assert float(step(1.0)) == 2.0
        assert float(jitmagic.jit(Momentum().step, dyn_vars="self")(1.0)) == 1.0


def test_a_list_of_a_global_name_is_added_to():
    log, w = [], jnp.zeros(())

    def f(x):
        nonlocal w
        w = w + x
        log.append(w)
        return w

    g = jitmagic.jit(f, dyn_vars="log, w")
    for _ in range(4):
        g(1.0)
    assert [float(v) for v in log] == [1.0, 2.0, 3.0, 4.0] and g._cache_size() == 1
    kept = log[0]
    log.clear()
    g(1.0)
    assert len(log) == 1 and log[0] is not kept and float(log[0]) == 5.0


SHARED = {
    "one list under two names": "l = [x]; self.d = l; self.last = l",
    "a dict in a list, and by itself": "d = {'x': x}; self.log.append(d); self.last = d",
    "a dict that holds itself": "d = {'x': x}; d['me'] = d; self.d = d",
    "a list that holds itself, in a tuple too": "l = [x]; l.append(l); l.append((l, 3)); self.d = l; self.last = (l, {'k': l})",
    "two dicts that hold each other": "n = {'v': x}; c = {'p': n}; n['c'] = c; self.last = n",
    "an object that holds itself": "r = Rec(x); r.me = r; r.all = [r]; self.last = r; self.best = r.all",
    "rows that are one list": "self.buf = [[x]] * 3; self.best = self.buf[0]",
    "a deque and a set": "q = collections.deque([x, x + 1], 1); self.win = q; self.d = [q]; self.best = self.last = {1}",
}


@pytest.mark.parametrize("name", SHARED)
def test_what_is_one_container_without_jit_is_one_with_it(name):
    def held(value, seen):
        if isinstance(value, jax.Array):
            return float(value)
        if id(value) in seen and not isinstance(value, tuple | int | None):
            return f"number {seen[id(value)]}"
        seen[id(value)] = len(seen)
        below = value if isinstance(value, dict) else vars(value) if hasattr(value, "__dict__") else None
        if below is not None:
            return [(k, held(v, seen)) for k, v in below.items()]
        is_many = isinstance(value, list | tuple | collections.deque | set)
        return [held(v, seen) for v in value] if is_many else repr(value)

    def looks(compiled):
        fit = type("Fit", (), {})()
        fit.log, fit.buf, fit.d, fit.last, fit.best, fit.win = [], [], None, None, None, None
        space = {
            "collections": collections,
            "Rec": type("Rec", (), {"__init__": lambda r, x: vars(r).update(v=x)}),
        }
        exec(f"def step(self, x):\n    {SHARED[name]}\n    return x", space)
        step = jitmagic.jit(space["step"], dyn_vars="self") if compiled else space["step"]
        return [held(vars(fit), {}) for k in range(4) if step(fit, jnp.float32(k)) is not None]

    assert looks(True) == looks(False)
