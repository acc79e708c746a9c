"""What only the front end can do, asked of the in-editor layer (lab/src/requests.ts); without it nothing happens."""

from __future__ import annotations

import contextlib

TARGET = "jitmagic"
"""Name of the comm that the layer listens on."""


def insert_below(cell_id: str | None, source: str, text: str) -> None:
    """Put `text` into a new cell below the one of this id and source (a duplicated notebook has the same ids).

    `set_next_input` does so by itself, but JupyterLab hears it only where the cell has not failed."""
    with contextlib.suppress(
        Exception
    ):  # no kernel, or one without comms: the report shows the change anyway
        from comm import create_comm

        create_comm(
            target_name=TARGET, data={"insert_below": {"cell": cell_id, "source": source, "text": text}}
        )
