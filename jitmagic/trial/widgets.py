"""Widgets that a run of ours makes, as the bar of `tqdm.notebook` does: no page is told of them, and none stays."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


def channels() -> Iterator[tuple[type, str]]:
    """What sends messages of widgets to the page: the classes, in ipykernel of every age and without a kernel, and the
    names of their methods."""
    for module, name in (
        ("ipykernel.comm.comm", "BaseComm"),
        ("ipykernel.comm.comm", "Comm"),
        ("comm", "DummyComm"),
    ):
        cls = getattr(sys.modules.get(module), name, object)
        for method in vars(cls).keys() & {"publish_msg", "_publish_msg"}:
            yield cls, method


class Unsent:
    """Channels that runs of ours have opened, of which the page was told nothing."""

    def __init__(self) -> None:
        self.opened: list[Any] = []

    def keep(self, _: object, channel: object, kind: str, *args: object, **kwargs: object) -> None:
        """What is called in place of a message's sending."""
        if kind == "comm_open":
            self.opened.append(channel)

    def forget(self) -> None:
        """Take the channels, and the widgets at their ends, out of where Python finds them when the page answers."""
        manager = getattr(sys.modules.get("comm"), "get_comm_manager", lambda: None)()
        widget = sys.modules.get("ipywidgets.widgets.widget")
        of_class = getattr(getattr(widget, "Widget", None), "__dict__", {}).get("widgets")  # until version 7
        for channel in self.opened:
            channel._closed = True  # it says goodbye to no page
            known = getattr(manager or channel.kernel.comm_manager, "comms", {})
            for registry in (known, getattr(widget, "_instances", of_class)):
                if isinstance(registry, dict):
                    registry.pop(channel.comm_id, None)
        self.opened.clear()
