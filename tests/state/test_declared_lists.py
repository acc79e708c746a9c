"""State in lists and counters that was not declared: the declaration that is offered takes them all, and follows the plain cell."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import Notebook

TRAINER = """
class Trainer:
    def __init__(self):
        self.w, self.steps, self.HISTORY = jnp.zeros(3), 0, EMPTY
    def step(self, x):
        self.w = self.w + x
        self.steps += 1
        STORE
trainer = Trainer()
for k in range(5):
    trainer.step(jnp.ones(3) * k)
"""
WINDOW = """
import collections
seen, WINDOW, mean = {'n': 0}, collections.deque(maxlen=3), jnp.zeros(3)
def observe(x):
    global mean
    seen['n'] += 1
    mean = mean + (x - mean) / seen['n']
    WINDOW.append(mean)
for k in range(5):
    observe(jnp.ones(3) * k)
"""


def trainer(history: str, empty: str, store: str) -> str:
    return TRAINER.replace("HISTORY", history).replace("EMPTY", empty).replace("STORE", store)


# the cell, the magic line, what has to be declared, what is left, and what that is
CELLS = {
    "a list": (
        trainer("losses", "[]", "self.losses.append(self.w.sum())"), "-f Trainer.step --dyn self.w",
        {"self.w", "self.steps", "self.losses"}, "[float(v) for v in trainer.losses], int(trainer.steps)",
        ([0.0, 3.0, 9.0, 18.0, 30.0], 5),
    ),
    "a list in a dict": (
        trainer("log", "{'loss': []}", "self.log['loss'].append(self.w.sum())"), "-f Trainer.step --dyn self.w",
        {"self.w", "self.steps", "self.log['loss']"}, "[float(v) for v in trainer.log['loss']], int(trainer.steps)",
        ([0.0, 3.0, 9.0, 18.0, 30.0], 5),
    ),
    "a deque": (
        WINDOW.replace("WINDOW", "window"), "", {"mean", "seen['n']", "window"},
        "[round(float(v[0]), 3) for v in window], int(seen['n'])", ([1.0, 1.5, 2.0], 5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_what_is_offered_holds_the_list_too(notebook: Notebook, name: str) -> None:
    cell, line, paths, left, wanted = CELLS[name]
    notebook.ok(f"%%jit -q --no-time {line}\n{cell}")
    fixes = [x for f in notebook.report().findings for x in f.fixes if x.verified and x.dyn]
    assert {frozenset(x.dyn or ()) for x in fixes} == {frozenset(paths)}
    notebook.ok(f'%%jit -q --no-time {line.partition(" --dyn")[0]} --dyn "{",".join(sorted(paths))}"\n{cell}')
    assert notebook.ok(left) == wanted
    [function] = notebook.report().functions
    assert (function.verdict, function.calls, function.traces, function.compiles) == ("ok", 5, 1, 1)


@pytest.mark.filterwarnings("ignore")
def test_a_random_state_that_is_made_when_it_is_first_read_is_not_made_in_a_trace() -> None:
    """In a process of its own: the default state is made once."""
    pytest.importorskip("brainstate")
    source = (
        "import jax, jax.numpy as jnp, jitmagic, brainstate as bst\n"
        "from jitmagic.state.errors import StateError\n"
        "g = jitmagic.jit(lambda x: x + bst.random.rand(3))\n"
        "try:\n    jax.jit(lambda x: g(x).sum())(jnp.ones(3))\n"
        "except StateError:\n    print(float(g(jnp.ones(3)).sum()) > 3)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
