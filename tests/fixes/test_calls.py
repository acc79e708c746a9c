"""What the families of calls write, word for word, without a run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

import pytest

from jitmagic.fixes.calls.callbacks import callbacks
from jitmagic.fixes.calls.counterparts import counterparts
from jitmagic.fixes.calls.debug_print import prints
from jitmagic.fixes.calls.inner_functions import carried_along
from jitmagic.fixes.calls.memoized import caches, memos
from jitmagic.fixes.change import Change, Spot
from jitmagic.source.edits import Text
from jitmagic.source.modules import Modules

MEMO = "kept = {}\ndef g(k, x):\n    if k in kept:\n        return kept[k]\n    y = x + 1\n    kept[k] = y\n    return y\n"
CASES = {
    "names of their own": (
        counterparts,
        "from jax.numpy import where\nfrom numpy import sin\nimport numpy\nimport jax.numpy as J\n"
        "def f(x):\n    return numpy.where(x > 0, sin(x), numpy.linalg.norm(x)) + float(x[0] + 1) ** 2\n",
        6,
        ["    return where(x > 0, J.sin(x), J.linalg.norm(x)) + (x[0] + 1) ** 2\n"],
    ),
    "what stands in a callback": (
        counterparts,
        "import jax\nimport numpy as np\ndef tell(v):\n    print(np.sum(v))\n\ndef f(x):\n"
        "    jax.debug.callback(tell, x)\n    jax.debug.callback(lambda v: print(float(v)), x)\n    return np.exp(x)\n",
        9,
        ["    jax.debug.callback(lambda v: print(float(v)), x)\n    return jnp.exp(x)\n"],
    ),
    "memo": (memos, MEMO, 6, ["    y = x + 1\n    return y\n", "        if k not in kept:\n            kept[k] = y\n"]),
    "function of a module that is cached": (
        caches, "import jax\nfrom helpers import table\ndef f(x):\n    return jax.numpy.sum(table(x)) + len(x)\n", 4,
        ["table.__wrapped__(x)"],
    ),
    "print of what a text says": (
        prints, "from jax import debug\ndef f(x):\n    s = f'{x:.1f} {{m}}'  # short\n    print(s, s, end='\\n')\n    return x\n", 3,
        ["def f(x):\n    debug.print(\"{x:.1f} {{m}} {x:.1f} {{m}}\", x=x)\n"],
    ),
    "keywords of a log": (
        callbacks, "import logging\ndef f(x, k):\n    logging.info('at %s', x + 1, extra={'k': k})\n    return x\n", 3,
        ["jax.debug.callback(lambda value, value2: logging.info('at %s', value, extra=value2), x + 1, {'k': k})"],
    ),
    "state of a scan": (
        carried_along,
        "from jax.lax import scan\ndef f(xs):\n    n = 0\n    def go(c, x):\n        nonlocal n  # steps\n        n += 1\n"
        "        return c + x, c\n    out, cs = scan(go, 0.0, xs)\n    return out, n\n",
        5,
        ["        return (c + x, n), c\n    (out, n), cs = scan(go, (0.0, n), xs)\n"],
    ),
}  # fmt: skip


def spot(cell: str, line: int) -> Spot:
    return Spot(Text(cell), "", line, function="f", modules=Modules.of({}, ast.parse(cell)))


@pytest.mark.parametrize("name", CASES)
def test_family_writes(name: str) -> None:
    family: Callable[[Spot], Iterable[Change]]
    family, cell, line, wanted = CASES[name]
    found = [c.edits.result() for c in family(spot(cell, line)) if c.edits is not None]
    for text in wanted:
        assert any(text in cell for cell in found), found


UNSETTLED = {
    "an argument": "class M:\n    def g(self, x):\n        if self.kept is None:\n            self.kept = x + 1\n        return self.kept\n",
    "a part of the state": "class M:\n    def g(self):\n        if self.kept is None:\n            self.kept = self.w + 1\n"
    "        return self.kept\n    def grow(self):\n        self.w += 1\n",
}  # fmt: skip


@pytest.mark.parametrize("name", UNSETTLED)
def test_a_memo_without_a_key_stays_where_another_call_may_give_another_value(name: str) -> None:
    assert not list(memos(spot(UNSETTLED[name], 4)))
