"""What a run of ours puts under keys, or into sets, that hold a traced value: nothing of it stays."""

from __future__ import annotations

import jax
import pytest

from jitmagic.checking import corrections
from tests.conftest import Notebook

KEYED = {
    "a tuple": ("Q = {}", "Q[0, n] = 1", "list(Q.items())"),
    "a nested tuple": ("Q = {}", "Q['a', (n, 'b')] = n", "list(Q.items())"),
    "what is looked up": ("Q = {}", "if (n,) not in Q: Q[n,] = n * 2", "list(Q.items())"),
    "a value that is read": ("Q = {}", "Q[n, 1] = Q.get((n, 1), 0.0) + 0.5 * n", "list(Q.items())"),
    "a named tuple": ("K = collections.namedtuple('K', 'n')\nQ = collections.Counter()", "Q[K(n)] += 1", "list(Q.items())"),
    "an ordered dict": ("Q = collections.OrderedDict({(3, 'a'): 0, (2, 'a'): 0})", "Q.move_to_end((n, 'a'))", "list(Q.items())"),
    "a default": ("Q = collections.defaultdict(list)", "Q[n, 1].append(n)", "list(Q.items())"),
    "a frozen object": ("@dataclasses.dataclass(frozen=True)\nclass K:\n    n: int\nQ = {}", "Q[K(n)] = n", "[(k.n, v) for k, v in Q.items()]"),
    "a member": ("Q = set()", "Q.add(n)", "sorted(Q)"),
    "a tuple as member": ("Q = {('z', 0)}", "Q.add(('a', n))", "sorted(Q)"),
    "a set as member": ("Q = set()", "Q.add(frozenset([n]))", "sorted(map(sorted, Q))"),
    "many members": ("Q = {1}", "Q.update([n, n + 1])", "sorted(Q)"),
    "of an object": ("class M:\n    def __init__(self): self.t = {}\nQ = M()", "Q.t[n, 1] = n", "list(Q.t.items())"),
    "of a class": ("class Q:\n    t = {}", "Q.t[n, 1] = n", "list(Q.t.items())"),
    "deep in others": ("Q = {'a': [{}]}", "Q['a'][0][n, 1] = n", "list(Q['a'][0].items())"),
}  # fmt: skip


@pytest.mark.parametrize("what", KEYED)
def test_a_traced_value_stays_in_no_key(notebook: Notebook, monkeypatch: pytest.MonkeyPatch, what: str):
    if what not in ("what is looked up", "a tuple as member"):  # each correction runs the cell again
        monkeypatch.setattr(corrections.Search, "corrections", lambda *args: [])
    made, does, look = KEYED[what]

    def left(magic: str) -> object:
        notebook.ok(f"import collections, dataclasses\n{made}\nx = jnp.arange(3.0)")
        notebook.ok(f"{magic}def f(x, n):\n    {does}\n    return x * n\nf(x, 2); f(x, 3); f(x, 2)")
        assert "itself failed" not in notebook.text
        return notebook.ok(look)

    plain = left("")
    found = left("%%jitcheck\n")
    assert not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(found))
    assert repr(found) == repr(plain)
    assert notebook.report().findings
