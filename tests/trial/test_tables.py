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
