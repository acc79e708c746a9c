"""Where the host waits for the device in a loop: which line is named, which is left alone, and what mends it."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitmagic import interrupts
from jitmagic.evidence import Evidence, Function, Wait, Where
from jitmagic.rules import device_wait
from jitmagic.rules.base import Thresholds
from jitmagic.silent import waiting

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12, which tells of it")

HOST = "import time\nimport numpy as np\ndef host(x):\n    time.sleep(0.01)\n    return x"
STEP = """%%jit -q --no-time -f step
def step(w):
    w = jax.lax.fori_loop(0, 10, lambda i, w: jnp.cos(w), w)
    return w, w.sum()

"""
START = "w, losses, total = jnp.full((600, 600), 0.05), [], 0.0\n"

MENDED = {
    "a list of floats": (
        START + "for i in range(10):\n    w, loss = step(host(w))\n    losses.append(float(loss))\n",
        "float(loss)", ["    losses.append(loss)\n", "\nlosses = [float(value) for value in losses]\n"],
    ),
    "in nested loops, behind both": (
        START + "for e in range(2):\n    for i in range(6):\n        w, loss = step(host(w))\n"
        "        losses.append(loss.item())\n",
        "loss.item()", ["        losses.append(loss)\n", "\nlosses = [value.item() for value in losses]\n"],
    ),
    "a list of another owner": (
        START + "class Log:\n    values = []\nfor i in range(10):\n    w, loss = step(host(w))\n"
        "    Log.values.append(np.asarray(loss))\n",
        "np.asarray(loss)", ["\nLog.values[:] = [np.asarray(value) for value in Log.values]\n"],
    ),
    "a sum, with the iteration's number": (
        START + "for i in range(10):\n    w, loss = step(host(w))\n    v = float(loss)\n    total += i * v\n",
        "float(loss)",
        ["\nkept = []\nfor i", "    kept.append((i, loss))\n", "\nfor i, loss in kept:\n    v = float(loss)\n    total += i * v\n"],
    ),
    "an entry of a dict": (
        START + "log = {'loss': []}\nfor i in range(10):\n    w, loss = step(host(w))\n    log['loss'].append(loss.item())\n",
        "loss.item()", ["    kept.append(loss)\n", "\nfor loss in kept:\n    log['loss'].append(loss.item())\n"],
    ),
    "a decision that nothing in the loop reads": (
        START + "best = 1e9\nfor i in range(10):\n    w, loss = step(host(w))\n    if loss < best:\n        best = loss\n",
        "loss < best", ["\nfor loss in kept:\n    if loss < best:\n        best = loss\n"],
    ),
    "inside of a function": (
        "def train(n):\n    w, losses = jnp.full((600, 600), 0.05), []\n    for i in range(n):\n        w, loss = step(host(w))\n"
        "        losses.append(float(loss))\n    return losses\ntrain(10)\n",
        "float(loss)", ["\n    losses = [float(value) for value in losses]\n    return losses"],
    ),
    "a comprehension": (
        "w = jnp.full((600, 600), 0.05)\nlosses = [float(step(host(w * i))[1]) for i in range(10)]\n",
        "float(step(host(w * i))[1])", ["[float(value) for value in [step(host(w * i))[1] for i in range(10)]]"],
    ),
    "a loop that goes on with the value": (
        START + "while len(losses) < 10:\n    w, loss = step(host(w))\n    losses.append(float(loss))\n",
        "float(loss)", [],
    ),
}  # fmt: skip


@jax.jit
def busy(w):
    w = jax.lax.fori_loop(0, 10, lambda i, w: jnp.cos(w), w)
    return w, w.sum()


@pytest.fixture
def told_at_once(monkeypatch):
    """From a few milliseconds on."""
    w = jnp.full((600, 600), 0.05)
    jax.block_until_ready(busy(w))
    if busy(w)[1].is_ready():
        pytest.skip("behind a callback this jax computes before a call returns")
    for name, value in (("WAITED", 0.0), ("IDLE", 0.0), ("IDLE_S", 0.02)):
        monkeypatch.setattr(device_wait, name, value)


@pytest.mark.parametrize(("cell", "asks", "wanted"), MENDED.values(), ids=MENDED)
def test_the_line_is_named_and_the_values_are_fetched_behind_the_loop(
    notebook, told_at_once, cell, asks, wanted
):
    notebook.ok(HOST)
    notebook.ok(STEP + cell)
    (finding,) = [f for f in notebook.report().findings if f.kind == "device-wait"]
    assert f"`{asks}` waits" in finding.message and finding.severity == "note"
    texts = [fix.cell for fix in finding.fixes if fix.verified]
    assert bool(texts) == bool(wanted), finding.fixes
    assert all(part in texts[0] for part in wanted), texts


@pytest.mark.parametrize(
    "loop",
    {
        "only some iterations ask": "for i in range(10):\n    w, loss = step(host(w))\n    if i % 4 == 0:\n        float(loss)\n",
        "behind the loop": "for i in range(10):\n    w, loss = step(host(w))\nfloat(loss)\n",
        "the wait is asked for": "for i in range(10):\n    w, loss = step(host(w))\n    loss.block_until_ready()\n    float(loss)\n",
        "nothing is read": "for i in range(10):\n    w, loss = step(host(w))\n    losses.append(loss)\n",
    }.values(),
)  # fmt: skip
def test_what_waits_for_nothing_that_could_be_saved_is_not_told(notebook, told_at_once, loop):
    notebook.ok(HOST)
    notebook.ok(STEP + START + loop)
    assert "device-wait" not in notebook.kinds()


WHERE = Where("<cell>", 4, 0, 4, 11, "float(loss)", "float(loss)")


@pytest.mark.parametrize(
    ("seconds", "idle_s", "cell_s", "told"),
    [
        (0.8, 0.4, 2.0, True),
        (0.8, 0.09, 1.0, False),  # too little in seconds,
        (8.0, 0.4, 10.0, False),  # too little of the cell: the device has enough to do
        (0.4, 0.3, 5.0, False),  # hardly waited for
    ],
)
def test_it_is_told_where_it_is_a_relevant_part_of_the_cell(seconds, idle_s, cell_s, told):
    wait = Wait(WHERE, ("loss",), 100, seconds, idle_s, cell_s)
    found = list(device_wait.find(Evidence(Function("step", "<cell>", "", 1), waits=(wait,)), Thresholds()))
    assert bool(found) == told


def test_what_is_shown_later_is_read_first(notebook, told_at_once):
    notebook.ok(HOST)
    notebook.ok(STEP + START + "for i in range(10):\n    w, loss = step(host(w))\n    print(i, loss)\n")
    (finding,) = [f for f in notebook.report().findings if f.kind == "device-wait"]
    (fix,) = finding.fixes
    assert fix.verified and fix.applicability == "unsafe" and "what is shown comes at the end" in fix.title


@pytest.mark.parametrize(
    "last", ["", "1 / 0", "%unload_ext jitmagic"], ids=["it ends", "it fails", "unloaded"]
)
def test_nothing_is_listened_to_when_the_cell_has_ended(notebook, last):
    notebook.ok(HOST)
    notebook.run(f"{STEP}{START}w, loss = step(host(w))\nlosses.append(float(loss))\n{last}")
    told = [sys.monitoring.get_tool(tool) for tool in range(6)]
    notebook.ok("%load_ext jitmagic")
    assert "jitmagic" not in told


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python tells nothing of it before")
@pytest.mark.parametrize("asks", [np.asarray, float])
def test_an_interrupt_that_comes_while_we_listen_is_raised_in_the_users_code(monkeypatch, asks):
    def interrupted(waits, array, frame):
        raise KeyboardInterrupt

    sent = []
    monkeypatch.setattr(interrupts, "raise_soon", lambda: sent.append(asks))
    monkeypatch.setattr(waiting.Waits, "_await", interrupted)
    x = jnp.sum(jnp.ones(3))
    with waiting.Waits():
        assert asks(x) == 3
    assert sent and set(sent) == {asks}
