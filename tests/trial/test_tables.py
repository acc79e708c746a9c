"""Tables of pandas that a function changes: as after the user's own call, whichever magic is in force."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pandas", reason="pandas is not installed")

MAGICS = ("%%jit -q", "%%jitcheck -q")
MADE = "import pandas as pd\ntable = pd.DataFrame({'a': [1.0, 2.0], 'b': ['x', 'y']})\ncolumn = table['a'].copy()"
CHANGES = {
    "a row is added": "table.loc[len(table)] = [3.0, 'z']",
    "a column is added": "table[f'c{len(table.columns)}'] = 0.0",
    "a value is set": "table.at[0, 'a'] = table.at[0, 'a'] + 1",
    "in place": "table.pop(table.columns[0])",
    "the index": "table.index = table.index + 1",
    "names of columns": "table.columns = [c + '_' for c in table.columns]",
    "a column": "column.iloc[0] = column.iloc[0] + 1",
    "a column's name": "column.name = f'{column.name}_'",
    "attributes": "table.attrs['n'] = table.attrs.get('n', 0) + 1",
    "an axis' name": "table.index.name = f'{table.index.name}_'",
    "a helper": "add(table)",
}
LOOK = "table.to_dict('list'), list(table.index), column.tolist(), column.name, table.index.name, dict(table.attrs)"
HELPER = "def add(t):\n    t.loc[len(t)] = [3.0, 'z']"


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("name", CHANGES)
def test_a_table_is_changed_once(notebook: Any, name: str, magic: str) -> None:
    body = f"def f(x):\n    {CHANGES[name]}\n    return x * 2\nf(jnp.ones(2))"
    seen = []
    for head in ("", f"{magic}\n"):
        notebook.ok(f"{MADE}\n{HELPER}")
        notebook.ok(head + body)
        seen.append(notebook.ok(LOOK))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("magic", MAGICS)
def test_a_table_that_the_cell_fills_beside_the_function(notebook: Any, magic: str) -> None:
    notebook.ok(MADE)
    notebook.error(
        f"{magic}\ndef f(x):\n    return x * 2 if x > 0 else x\n"
        "for i in (1.0, 2.0):\n    table.loc[len(table)] = [i, 'z']\njax.jit(f)(1.0)"
    )
    assert notebook.ns["table"]["a"].tolist() == [1.0, 2.0, 1.0, 2.0]


SHARED = {
    "an array": (
        "memory = np.zeros((3, 2)); table = pd.DataFrame(memory, copy=False)",
        "table.iloc[len(seen), 0] = 1.0",
        "memory.tolist()",
    ),
    "a column's": (
        "memory = np.zeros(3); table = pd.Series(memory, copy=False)",
        "table.iloc[len(seen)] = 1.0",
        "memory.tolist()",
    ),
    "an array of pandas'": (
        "memory = pd.array([0, 0, 0]); table = pd.Series(memory, copy=False)",
        "table.iloc[len(seen)] = 1",
        "memory.tolist(), table.array is memory",
    ),
    "a file": (
        "memory = np.memmap(tempfile.mktemp(), 'f8', 'w+', shape=(3, 2)); table = pd.DataFrame(memory, copy=False)",
        "table.iloc[len(seen), 0] = 1.0",
        "np.fromfile(memory.filename).tolist()",
    ),
    "no more blocks than there were": (
        "table = pd.DataFrame({'a': [1.0]})",
        "table[f'b{len(seen)}'] = 2.0",
        "table._mgr.nblocks, list(table.columns)",
    ),
    "a class of the user's": (
        "table = Counted({'a': [1.0]})",
        "table.loc[len(table), 'a'] = 3.0",
        "Counted.set, table['a'].tolist()",
    ),
}
COUNTED = """
class Counted(pd.DataFrame):
    set = 0
    def __setattr__(self, name, value): Counted.set += 1; super().__setattr__(name, value)
    def __setstate__(self, state): Counted.set += 100; super().__setstate__(state)
"""


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("what", SHARED)
def test_a_table_stays_made_of_what_it_was_made_of(notebook: Any, what: str, magic: str) -> None:
    made, changes, shown = SHARED[what]
    fails = "float(x.sum())" if "check" in magic else "x.sum()"
    body = f"def f(x):\n    {changes}\n    return x * {fails}\ny = f(jnp.ones(2)); seen.append(1)"
    seen = []
    for head in ("", f"{magic}\n"):
        notebook.ok(f"import numpy as np, pandas as pd, tempfile\n{COUNTED}\n{made}\nseen = []")
        notebook.ok(head + body)
        notebook.ok("y = f(y)" if "check" in magic else changes)
        seen.append(notebook.ok(shown))
    assert seen[0] == seen[1]


def test_a_table_that_is_read_in_pieces_is_read_once(notebook: Any) -> None:
    cell = "def f(x):\n    return x * float(next(pieces)['a'].sum())\ny = f(jnp.ones(2))"
    notebook.ok(
        "import io, pandas as pd\npieces = pd.read_csv(io.StringIO('a\\n' + '1\\n' * 9), chunksize=2)"
    )
    notebook.ok("%%jitcheck\n" + cell)
    assert len(notebook.ok("list(pieces)")) == 4
