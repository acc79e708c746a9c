"""What a user gets for the usual mistakes: the corrected cell, word for word, proved and final."""

from __future__ import annotations

import textwrap

import pytest

from tests.conftest import Notebook
from tests.fixes.conftest import findings_of, first_offered, fixes_of

CASES = {
    "conditional expression": (
        "def f(x, slope):\n    return x if x > 0 else slope * x  # leaky\n",
        "def f(x, slope):\n    return jnp.where(x > 0, x, slope * x)  # leaky\n",
        ["f(jnp.float32(-2.0), 0.1)"],
    ),
    "a state that comes out as a list": (
        """
        def f(x):
            def go_on(c):
                return c[0] < 3
            def turn(c):
                return [c[0] + 1, c[1] * 2]
            return jax.lax.while_loop(go_on, turn, (0, x))
        """,
        """
        def f(x):
            def go_on(c):
                return c[0] < 3
            def turn(c):
                return (c[0] + 1, c[1] * 2)
            return jax.lax.while_loop(go_on, turn, (0, x))
        """,
        ["f(jnp.ones(2))"],
    ),
    "how many different": (
        "def f(x):\n    return len(jnp.unique(x)) * 2\n",
        "def f(x):\n    return (jnp.sum(jnp.diff(jnp.sort(x, axis=None)) != 0) + (x.size > 0)) * 2\n",
        ["f(jnp.array([3, 1, 3]))", "f(jnp.array([2, 2, 2, 2]))"],
    ),
    "how many different, by a name": (
        """
        def f(x):
            values = jnp.unique(x)
            return values.shape[0] / x.size
        """,
        """
        def f(x):
            values = jnp.sum(jnp.diff(jnp.sort(x, axis=None)) != 0) + (x.size > 0)
            return values / x.size
        """,
        ["f(jnp.array([[3, 1], [3, 0]]))"],
    ),
    "how many are not zero": (
        "def f(x):\n    return x.sum() / len(jnp.flatnonzero(x))\n",
        "def f(x):\n    mask = x != 0\n    return x.sum() / jnp.sum(mask)\n",
        ["f(jnp.array([3, 0, 1]))"],
    ),
    "guard": (
        """
        def f(x):
            if x < 0:
                return 0.0
            y = jnp.sqrt(x)
            return y * 2
        """,
        """
        def f(x):
            y = jnp.sqrt(x)
            return jnp.where(x < 0, 0.0, y * 2)
        """,
        ["f(jnp.float32(4.0))", "f(jnp.float32(-4.0))"],
    ),
    "elif": (
        """
        def f(x):
            # three pieces
            if x < 0:
                y = -x
            elif 10 < x <= 20:
                y = x * 2
            else:
                y = x ** 2
            return y
        """,
        """
        def f(x):
            # three pieces
            y = jnp.where(x < 0, -x, jnp.where((10 < x) & (x <= 20), x * 2, x ** 2))
            return y
        """,
        ["f(jnp.float32(4.0))", "f(jnp.float32(-4.0))", "f(jnp.float32(14.0))"],
    ),
    "branches that share names": (
        """
        def f(x):
            if x.sum() > 0:
                y = jnp.sin(x)
                return y * 2
            y = jnp.cos(x)
            return y + 1
        """,
        """
        def f(x):
            condition = x.sum() > 0
            y = jnp.where(condition, jnp.sin(x), jnp.cos(x))
            return jnp.where(condition, y * 2, y + 1)
        """,
        ["f(jnp.arange(3.0))", "f(-jnp.arange(3.0))"],
    ),
    "branches with comments": (
        """
        def f(x):
            if x > 0:  # right
                # as it is
                y = x
            else:
                y = (
                    1
                    - x  # turned
                )
            # both
            return y
        """,
        """
        def f(x):
            # right
            # as it is
            y = jnp.where(
                x > 0,
                x,
                (
                    1
                    - x  # turned
                ),
            )
            # both
            return y
        """,
        ["f(2.0)", "f(-2.0)"],
    ),
    "alike structures": (
        """
        from jax.numpy import where

        def f(x, y):
            state = {"best": x, "of": (x, y)}
            if x > y:
                return {"best": x, "of": (x, y)}
            state["best"] += 1
            return {"of": (y, y), "best": state["best"]}
        """,
        """
        from jax.numpy import where

        def f(x, y):
            state = {"best": x, "of": (x, y)}
            condition = x > y
            state["best"] = where(condition, state["best"], state["best"] + 1)
            return {"best": where(condition, x, state["best"]), "of": (where(condition, x, y), y)}
        """,
        ["f(jnp.float32(2.0), jnp.float32(1.0))", "f(jnp.float32(2.0), jnp.float32(3.0))"],
    ),
    "one step after the other": (
        """
        def f(rate, loss, best):
            if loss < best:
                rate = rate * 0.9
                rate = jnp.maximum(rate, 1e-4)
                best, loss = loss, best
            return rate, best, loss
        """,
        """
        def f(rate, loss, best):
            condition = loss < best
            rate = jnp.where(condition, jnp.maximum(rate * 0.9, 1e-4), rate)
            best, loss = jnp.where(condition, loss, best), jnp.where(condition, best, loss)
            return rate, best, loss
        """,
        ["f(0.1, 2.0, 3.0)", "f(0.1, 3.0, 2.0)"],
    ),
    "names of one branch": (
        """
        def f(x):
            if x.sum() > 0:
                total = 0.0
                for i in range(3):
                    total += x[i] ** 2
                return total
            elif x[0] > 1:
                def shrunk(v):
                    return v / 2
                return shrunk(x[0])
            low = x.min()
            return low
        """,
        """
        def f(x):
            total = 0.0
            for i in range(3):
                total += x[i] ** 2
            def shrunk(v):
                return v / 2
            low = x.min()
            return jnp.where(x.sum() > 0, total, jnp.where(x[0] > 1, shrunk(x[0]), low))
        """,
        ["f(jnp.arange(3.0))", "f(-jnp.arange(3.0))"],
    ),
    "sum under a condition": (
        """
        def f(x, scale=None):
            y = 1.0
            if not x.sum() > 0:
                for i in range(3):
                    y += x[i] ** 2
            return y
        """,
        """
        def f(x, scale=None):
            y = 1.0

            def when_false(y):
                for i in range(3):
                    y += x[i] ** 2
                return y

            y = jax.lax.cond(x.sum() > 0, lambda y: y, when_false, y)
            return y
        """,
        ["f(jnp.arange(3.0))", "f(-jnp.arange(3.0))"],
    ),
    "condition that is known inside": (
        """
        def f(x, shift=None):
            if x > 0:
                if shift is not None:
                    x = x + shift
                y = x
            else:
                y = -x
            return y
        """,
        """
        def f(x, shift=None):
            condition = x > 0
            x = jnp.where(condition, x + shift if shift is not None else x, x)
            y = jnp.where(condition, x, -x)
            return y
        """,
        ["f(jnp.float32(2.0))", "f(jnp.float32(-2.0))"],
    ),
    "raise behind elif": (
        """
        def f(x):
            if x > 1:
                y = x
            elif x > 0:
                y = -x
            else:
                raise ValueError(f"bad {x}")
            return y
        """,
        """
        def f(x):
            condition = x > 1

            def check(failed, x):
                if failed:
                    raise ValueError(f"bad {x}")

            jax.debug.callback(check, jnp.logical_not(condition) & jnp.logical_not(x > 0), x)
            y = jnp.where(condition, x, -x)
            return y
        """,
        ["f(jnp.float32(2.0))", "f(jnp.float32(0.5))"],
    ),
    "conditional expressions of a list": (
        "def f(x):\n    return sum([v if not (v > 1 or v < 0) else (0.0) for v in x])\n",
        "def f(x):\n    return sum([jnp.where((v > 1) | (v < 0), 0.0, v) for v in x])\n",
        ["f(jnp.arange(3.0))"],
    ),
    "while with a branch inside": (
        """
        def f(n):
            steps = 0
            while n != 1:
                if n % 2 == 0:
                    n = n // 2
                else:
                    n = 3 * n + 1
                steps += 1
            return steps
        """,
        """
        def f(n):
            steps = 0

            def keep_going(state):
                n, steps = state
                return n != 1

            def body(state):
                n, steps = state
                n = jnp.where(n % 2 == 0, n // 2, 3 * n + 1)
                steps += 1
                return n, steps

            n, steps = jax.lax.while_loop(keep_going, body, (n, steps))
            return steps
        """,
        ["f(6)", "f(7)"],
    ),
    "range": (
        "def f(x, n):\n    for i in range(n):\n        x = x + jnp.sin(x * i)\n    return x\n",
        "def f(x, n):\n    x = jax.lax.fori_loop(0, n, lambda i, x: x + jnp.sin(x * i), x)\n    return x\n",
        ["f(jnp.float32(2.0), 5)"],
    ),
    "numpy, math and a history": (
        """
        log = []
        def f(x):
            m = float(np.max(x)) + math.sqrt(x[0]) + math.sqrt(x.shape[0])
            log.append(np.asarray(x))
            return x / m
        """,
        """
        log = []
        def f(x):
            m = jnp.max(x) + jnp.sqrt(x[0]) + math.sqrt(x.shape[0])
            jax.debug.callback(log.append, jnp.asarray(x))
            return x / m
        """,
        ["f(jnp.arange(3.0))"],
    ),
    "selection by a mask": (
        """
        def f(points, labels):
            rows = []
            for j in range(2):
                rows.append(points[labels == j].mean(axis=0))
            return jnp.stack(rows)
        """,
        """
        def f(points, labels):
            rows = []
            for j in range(2):
                mask = labels == j
                rows.append(jnp.mean(points, axis=0, where=mask[:, None]))
            return jnp.stack(rows)
        """,
        ["f(jnp.arange(8.0).reshape(4, 2), jnp.array([0, 1, 0, 1]))"],
    ),
    "window": (
        "def f(x, i):\n    return x[i * 4:(i + 1) * 4].sum(), x[2:6, 1:]\n",
        "def f(x, i):\n    return jax.lax.dynamic_slice_in_dim(x, i * 4, 4).sum(), x[2:6, 1:]\n",
        ["f(jnp.arange(16.0).reshape(8, 2), 1)"],
    ),
    "list of branches": (
        "def f(x, k):\n    ops = [jnp.sin, jnp.tanh]\n    return ops[k](x)\n",
        "def f(x, k):\n    ops = [jnp.sin, jnp.tanh]\n    return jax.lax.switch(k, ops, x)\n",
        ["f(jnp.arange(3.0), 0)", "f(jnp.arange(3.0), 1)"],
    ),
    "cache": (
        "@functools.lru_cache\ndef g(a):\n    return jnp.exp(a)\n\ndef f(x, a):\n    return g(a) * x\n",
        "def g(a):\n    return jnp.exp(a)\n\ndef f(x, a):\n    return g(a) * x\n",
        ["f(jnp.arange(3.0), 0.5)"],
    ),
    "formatted print": (
        'def f(w, lr):\n    w = w - lr\n    print(f"w is {w:.3f} {{ok}}", lr)\n    return w\n',
        'def f(w, lr):\n    w = w - lr\n    jax.debug.print("w is {w:.3f} {{ok}} {lr}", w=w, lr=lr)\n    return w\n',
        ["f(jnp.float32(4.0), 0.1)"],
    ),
    "numpy buffer": (
        """
        def f(x):
            out = np.zeros(x.shape)
            for i in range(len(x)):
                out[i] = x[i] ** 2
            out[x > 5] -= 1
            return out
        """,
        """
        def f(x):
            out = jnp.zeros(x.shape)
            for i in range(len(x)):
                out = out.at[i].set(x[i] ** 2)
            out = jnp.where(x > 5, out - 1, out)
            return out
        """,
        ["f(jnp.arange(8.0))"],
    ),
    "numpy argument": (
        "def f(grid, cells, mass):\n    grid[cells] += mass\n    return grid\n",
        "def f(grid, cells, mass):\n    grid = jnp.asarray(grid).at[cells].add(mass)\n    return grid\n",
        ["f(np.zeros(5, np.float32), np.array([1, 3]), 2.0)"],
    ),
    "scan body that appends": (
        """
        def f(x0):
            seen = []
            def step(x, _):
                x = 3.7 * x * (1.0 - x)
                seen.append(x)
                return x, None
            jax.lax.scan(step, x0, None, length=4)
            return jnp.stack(seen)
        """,
        """
        def f(x0):
            def step(x, _):
                x = 3.7 * x * (1.0 - x)
                return x, x
            _, seen = jax.lax.scan(step, x0, None, length=4)
            return seen
        """,
        ["f(jnp.float32(0.3))"],
    ),
    "vmap": (
        "def f(xs):\n    return jax.vmap(lambda v: v if v > 0 else 0.0)(xs)\n",
        "def f(xs):\n    return jax.vmap(lambda v: jnp.where(v > 0, v, 0.0))(xs)\n",
        ["f(jnp.arange(-1.0, 3.0))"],
    ),
    "return before the end of a loop": (
        """
        def f(x, limit):
            for i in range(9):
                x = x + 1.0
                if x > limit:
                    return i
                x = x * 2
            return -1
        """,
        """
        def f(x, limit):
            def keep_going(state):
                i, found, x = state
                return (i < 9) & ~found

            def body(state):
                i, found, x = state
                x = x + 1.0
                found = x > limit
                x = jnp.where(found, x, x * 2)
                i = jnp.where(found, i, i + 1)
                return i, found, x

            i, found, x = jax.lax.while_loop(keep_going, body, (0, jnp.array(False), x))
            return jnp.where(found, i, -1)
        """,
        ["f(1.0, 20.0)", "f(1.0, 1e6)"],
    ),
    "value that only the loop binds": (
        """
        def f(a, b):
            while b - a > 0.1:
                m = (a + b) / 2
                a = m
            return m
        """,
        """
        def f(a, b):
            def keep_going(state):
                m, a = state
                return b - a > 0.1

            def body(state):
                m, a = state
                m = (a + b) / 2
                a = m
                return m, a

            m = (a + b) / 2
            m, a = jax.lax.while_loop(keep_going, body, (m, a))
            return m
        """,
        ["f(0.0, 1.0)"],
    ),
    "number as a condition": (
        "def f(n):\n    while n:\n        n = n // 2\n    return n\n",
        "def f(n):\n    n = jax.lax.while_loop(lambda n: n != 0, lambda n: n // 2, n)\n    return n\n",
        ["f(jnp.int32(9))"],
    ),
    "loop that counts down": (
        """
        def f(x, k):
            y = 0.0
            for i in reversed(range(k)):
                y = y * 2 + x[i]
            return y
        """,
        """
        def f(x, k):
            y = 0.0

            def body(turn, y):
                i = k - 1 - turn
                y = y * 2 + x[i]
                return y

            y = jax.lax.fori_loop(0, k, body, y)
            return y
        """,
        ["f(jnp.arange(4.0), jnp.int32(3))"],
    ),
    "flag before a condition": (
        "def f(x, on=True):\n    if on and x > 1:\n        x = x - 1\n    return x\n",
        "def f(x, on=True):\n    x = jnp.where(on and (x > 1), x - 1, x)\n    return x\n",
        ["f(jnp.float32(3.0))"],
    ),
    "branch that Python's numbers cannot compute": (
        "def f(x):\n    if x == 0:\n        return 0.0\n    return 1 / x\n",
        "def f(x):\n    return jnp.where(x == 0, 0.0, 1 / x)\n",
        ["f(0.0)", "f(2.0)"],
    ),
    "and with or": (
        "def f(x):\n    return x > 0 and 1.0 or -1.0\n",
        "def f(x):\n    return jnp.where(x > 0, 1.0, -1.0)\n",
        ["f(2.0)", "f(-2.0)"],
    ),
    "filter in a sum": (
        "def f(xs, low):\n    return sum(x**2 for x in xs if x > low)\n",
        "def f(xs, low):\n    return jnp.sum(jnp.where(xs > low, xs**2, 0))\n",
        ["f(jnp.arange(4.0), 1.5)"],
    ),
    "filter over rows": (
        "def f(xs):\n    return sum(x.sum() for x in xs if x[0] > 1)\n",
        "def f(xs):\n    return sum(jnp.where(x[0] > 1, x.sum(), 0) for x in xs)\n",
        ["f(jnp.arange(6.0).reshape(3, 2))"],
    ),
    "first that counts": (
        "def f(xs):\n    return next((i for i, x in enumerate(xs) if x > 2), -1)\n",
        "def f(xs):\n    return jnp.where(jnp.any(xs > 2), jnp.argmax(xs > 2), -1)\n",
        ["f(jnp.arange(5.0))", "f(jnp.arange(2.0))"],
    ),
    "sorted the other way": (
        "def f(xs):\n    return sorted(xs, reverse=True)[0]\n",
        "def f(xs):\n    return jnp.sort(xs, descending=True)[0]\n",
        ["f(jnp.arange(3.0))"],
    ),
    "list with a name": (
        "def f(x):\n    d = [x, 2 * x]\n    return min(d)\n",
        "def f(x):\n    d = [x, 2 * x]\n    return jnp.min(jnp.array(d))\n",
        ["f(jnp.float32(3.0))"],
    ),
    "window of indices": (
        "def f(x, i):\n    return x[jnp.arange(i - 1, i + 2)]\n",
        "def f(x, i):\n    return x[i - 1 + jnp.arange(3)]\n",
        ["f(jnp.arange(6.0), jnp.int32(2))"],
    ),
    "size by way of another name": (
        """
        def f(x, width=4):
            n = jnp.ceil(x.shape[0] / width).astype(int)
            pad = n * width - x.shape[0]
            return jnp.pad(x, (0, pad))
        """,
        """
        def f(x, width=4):
            n = math.ceil(x.shape[0] / width)
            pad = n * width - x.shape[0]
            return jnp.pad(x, (0, pad))
        """,
        ["f(jnp.arange(6.0))"],
    ),
    "loop without end that returns": (
        """
        def f(key):
            while True:
                key, k = jax.random.split(key)
                x = jax.random.normal(k)
                if x > 1:
                    return x
        """,
        """
        def f(key):
            def keep_going(state):
                found, key, x = state
                return ~found

            def body(state):
                found, key, x = state
                key, k = jax.random.split(key)
                x = jax.random.normal(k)
                found = x > 1
                return found, key, x

            x = 0.0
            found, key, x = jax.lax.while_loop(keep_going, body, (jnp.array(False), key, x))
            return x
        """,
        ["f(jax.random.key(0))"],
    ),
    "default behind or": (
        "def f(x, scale=None):\n    scale = scale or x.max()\n    return x / scale\n",
        "def f(x, scale=None):\n    scale = x.max() if scale is None else scale\n    return x / scale\n",
        ["f(jnp.arange(3.0), 4.0)", "f(jnp.arange(3.0))"],
    ),
    "a safe correction before one that costs": (
        "def f(x, k):\n    i = int(jnp.clip(k, 0, 2))\n    return x[i]\n",
        "def f(x, k):\n    i = jnp.clip(k, 0, 2).astype(int)\n    return x[i]\n",
        ["f(jnp.arange(3.0), 1.0)"],
    ),
    "size by way of a function": (
        "def f(x):\n    n = jnp.maximum(x.size, 4)\n    return jnp.ones(n) * x.sum()\n",
        "def f(x):\n    n = max(x.size, 4)\n    return jnp.ones(n) * x.sum()\n",
        ["f(jnp.arange(6.0))"],
    ),
    "two breaks": (
        """
        def f(x):
            for i in range(9):
                x = x * 1.5
                if x > 20:
                    break
                if x < -20:
                    break
            return x
        """,
        """
        def f(x):
            def keep_going(state):
                i, done, x = state
                return (i < 9) & ~done

            def body(state):
                i, done, x = state
                x = x * 1.5
                done = (x > 20) | (x < -20)
                i = i + 1
                return i, done, x

            i, done, x = jax.lax.while_loop(keep_going, body, (0, jnp.array(False), x))
            return x
        """,
        ["f(2.0)", "f(-2.0)", "f(0.1)"],
    ),
    "while with else": (
        """
        def f(x, limit):
            while x < limit:
                step = x * x
                if step > 50:
                    break
                x = x + step
            else:
                x = -x
            return x, step
        """,
        """
        def f(x, limit):
            def keep_going(state):
                done, step, x = state
                return (x < limit) & ~done

            def body(state):
                done, step, x = state
                step = x * x
                done = step > 50
                x = jnp.where(done, x, x + step)
                return done, step, x

            step = x * x
            done, step, x = jax.lax.while_loop(keep_going, body, (jnp.array(False), step, x))
            x = jnp.where(done, x, -x)
            return x, step
        """,
        ["f(jnp.float32(1.5), 100.0)", "f(jnp.float32(1.5), 3.0)"],
    ),
    "carry": (
        "def f(xs):\n    return jax.lax.scan(lambda c, x: (c + x, x), jnp.int32(0), xs)[0]\n",
        "def f(xs):\n    return jax.lax.scan(lambda c, x: (c + x, x), jnp.float32(0), xs)[0]\n",
        ["f(jnp.ones(3))"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_corrected_cell(name: str) -> None:
    before, after, calls = CASES[name]
    before, after = (textwrap.dedent(t).lstrip("\n") for t in (before, after))
    fix = next(f for f in fixes_of(before, calls) if f.cell)
    assert fix.cell == after
    assert fix.verified and fix.tested == "cell"
    assert fix.diff and "-" in fix.diff


@pytest.mark.parametrize(
    "name", ["elif", "while with a branch inside", "selection by a mask", "numpy buffer"]
)
def test_corrected_cell_has_nothing_left_to_correct(name: str) -> None:
    _, after, calls = CASES[name]
    after = textwrap.dedent(after).lstrip("\n")
    assert not set(findings_of(after, calls)) & {
        "tracer-bool",
        "tracer-int",
        "dynamic-shape",
        "in-place-update",
    }
    assert fixes_of(after, calls) == []


UNFIXABLE = {
    "data-dependent result": ("def f(x):\n    return x[x > 1]\n", ["f(jnp.arange(4.0))"]),
    "text": ("def f(x):\n    return len('a' if x > 0 else 'bc')\n", ["f(jnp.float32(1.0))"]),
    "the user's own error": ("def f(x):\n    return x @ jnp.ones(7)\n", ["f(jnp.arange(3.0))"]),
    "place of a value in a list": (
        "def f(a, b, c):\n    return [a, b].index(c + 1)\n",
        ["f(*jnp.array([3, 4, 3]))"],
    ),
    "number with the smallest value": (
        "def f(xs, a):\n    return min(range(len(xs)), key=lambda i: abs(xs[i] - a))\n",
        ["f(jnp.arange(5.0), 2.2)"],
    ),
    "list that a counted loop fills": (
        "def f(x, n):\n    seen = []\n    def body(s):\n        x, k = s\n        seen.append(x)\n"
        "        return 2 * x, k + 1\n    x, _ = jax.lax.while_loop(lambda s: s[1] < n, body, (x, 0))\n"
        "    return x, seen\n",
        ["f(1.0, 3)"],
    ),
    "reduction by a function": (
        "def f(v, ws):\n    return functools.reduce(lambda s, w: jnp.tanh(s * w) + w * v, ws, 1.0)\n",
        ["f(2.0, jnp.ones(40))"],
    ),
    "variable that a branch writes": (
        "def f(x):\n    top = 5.0\n    def g(v):\n        nonlocal top\n        top = jnp.max(v)\n        return v / 2\n"
        "    return jax.lax.cond(x.sum() > 1, g, jnp.sin, x) + top\n",
        ["f(jnp.ones(3))"],
    ),
    "branches of other sizes": (
        "def f(i, x):\n    return jax.lax.switch(i, [lambda v: v, lambda v: v[::2, 1:]], x)\n",
        ["f(0, jnp.ones((3, 4)))"],
    ),
    "recursion": (
        "def f(a, b):\n    if b == 0:\n        return a\n    return f(b, a % b)\n",
        ["f(jnp.int32(18), jnp.int32(12))"],
    ),
    "view that is changed": (
        "def f(m, s):\n    col = m[:, 0]\n    col *= s\n    return m\n",
        ["f(np.ones((2, 2)), 3.0)"],
    ),
    "state and result in each other's place": (
        "def f(x, ks):\n    turn = lambda s, k: (s.mean(), s + k)\n    return jax.lax.scan(turn, x, ks)[1]\n",
        ["f(jnp.ones(2), jnp.ones((3, 2)))"],
    ),
    "endless recursion": ("def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\n", ["f(jnp.int32(3))"]),
}


@pytest.mark.parametrize("name", UNFIXABLE)
def test_no_fix_is_better_than_a_wrong_one(name: str) -> None:
    assert fixes_of(*UNFIXABLE[name]) == []


def test_array_that_is_changed_in_place_must_come_back() -> None:
    cell = "def f(u):\n    u[1:-1] = 0.5 * (u[2:] + u[:-2])\n"
    fix = fixes_of(cell, ["u = np.arange(6.0) ** 2", "f(u)"])[0]
    assert fix.cell is not None and fix.cell.endswith("    return u\n")
    assert fix.applicability == "unsafe"


def test_missing_import_is_added_once() -> None:
    cell = "def f(x):\n    return x if x > 0 else -x\n"
    new = first_offered(cell, (2, 16, 2, 21), ("x",), {"jax": "jax"})
    assert new.startswith("import jax.numpy as jnp\n\ndef f(x):")
    assert "xp.where" in first_offered(cell, (2, 16, 2, 21), ("x",), {"xp": "jax.numpy"})


@pytest.mark.parametrize("method", ["model.run", "models[0].run", "Model(2.0).run"])
def test_a_method_under_a_name_of_its_own_is_that_of_the_corrected_class(
    notebook: Notebook, method: str
) -> None:
    notebook.run(
        "%%jit -q --no-time -f run\nclass Model:\n    def __init__(self, w):\n        self.w = w\n\n"
        "    def run(self, x):\n        return x * self.w if x.sum() > 0 else x\n\n"
        f"model = Model(2.0)\nmodels = [model]\nrun = {method}\nrun(jnp.ones(3))\n"
    )
    (found,) = (f for f in notebook.report().findings if f.severity == "error")
    assert [x.verified for x in found.fixes] == [True]


@pytest.mark.parametrize("line", ["!ls", "names = !ls", "%time 3", "took = %timeit -o 3"])
def test_magic_lines_survive(line: str) -> None:
    cell = f"%jit -f f\ndef f(x):\n    return x if x > 0 else -x\n{line}\n"
    new = first_offered(cell, (3, 16, 3, 21), ("x",), {"jnp": "jax.numpy"})
    assert new == cell.replace("x if x > 0 else -x", "jnp.where(x > 0, x, -x)")


@pytest.mark.parametrize(
    ("call", "safe"),
    [("f(jnp.float32(1.0), 2.0)", False), ("f(3, 4)", True), ("f(jnp.arange(3)[1], 4)", True)],
)
def test_the_larger_of_two_is_safe_where_neither_can_be_nan(notebook, call, safe):
    """Python's `max(0.3, nan)` is 0.3, that of jax NaN."""
    notebook.ok(f"%%jitcheck -q\ndef f(x, y):\n    return max(x, y) + 1\n{call}")
    fixes = [x for f in notebook.report().findings for x in f.fixes if "jnp.maximum" in x.title]
    assert [x.applicability == "safe" for x in fixes] == [safe] and fixes[0].verified
    assert ("NaN" in fixes[0].title) is not safe
