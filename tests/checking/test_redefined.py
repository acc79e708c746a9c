"""Helpers that were redefined in later cells, compiled ones too, beside numbers that have changed."""

from __future__ import annotations

from typing import Any

import pytest

HELPERS = {
    "compiled by the magic": "def squash(x):\n    return jnp.tanh(x)\n",
    "compiled by jax.jit": "@jax.jit\ndef squash(x):\n    return jnp.tanh(x)\n",
}
CELL = "def response(x):\n    return gain * squash(x).sum()\nfirst = response(jnp.arange(3.0))"


def stale(notebook: Any) -> list[tuple[str, ...]]:
    return [f.culprits for f in notebook.report().findings if f.kind == "stale-constant"]


@pytest.mark.parametrize("name", HELPERS)
def test_a_compiled_helper_that_was_redefined_is_told(notebook: Any, name: str) -> None:
    notebook.ok("gain = 2.0")
    notebook.ok(HELPERS[name] if "jax" in name else "")
    notebook.ok(f"%%jit -q --no-time\n{'' if 'jax' in name else HELPERS[name]}{CELL}")
    notebook.ok(HELPERS[name] + "response(jnp.arange(3.0))")  # the same once more
    assert stale(notebook) == []
    notebook.ok(HELPERS[name].replace("jnp.tanh", "jax.nn.relu") + "response(jnp.arange(3.0))")
    assert stale(notebook) == [("squash",)]


def test_one_correction_mends_all_that_has_gone_stale(notebook: Any) -> None:
    notebook.ok(f"%%jit -q --no-time\ngain = 2.0\n{HELPERS['compiled by the magic']}{CELL}")
    notebook.ok("gain = 5.0\nresponse(jnp.arange(3.0))")
    notebook.ok("def squash(x):\n    return jax.nn.relu(x)\nresponse(jnp.arange(3.0))")
    found = [f for f in notebook.report().findings if f.kind == "stale-constant"]
    assert [f.culprits for f in found] == [("gain",), ("squash",)]
    fix = found[0].fixes[0]
    assert (fix.applicability, fix.verified, fix.tested) == ("safe", True, "cell")
    assert fix.dyn == ("gain", "squash") and fix.cell is None and fix.calls is None
    assert all(f.fixes == (fix,) for f in found)


CLASS = """
class Oscillator:
    def __init__(self, omega):
        self.omega, self.q, self.steps = omega, jnp.float32(1.0), [3]
    def kick(self, dt):
        self.q = self.q - dt * self.omega * self.q * self.size()
        return self.q
    def size(self):
        return 2.0
"""


def test_numbers_that_are_read_beside_what_is_written_are_dynamic_too(notebook: Any) -> None:
    notebook.run(f"%%jit -q --no-time -f Oscillator.kick{CLASS}o = Oscillator(2.0)\no.kick(0.1)")
    fixes = [x for f in notebook.report().findings for x in f.fixes if x.verified and x.dyn]
    assert fixes and set(fixes[0].dyn) == {"self.q", "self.omega"}
