"""Who has Python tell of what runs: listeners of ours, and profilers, debuggers and tracers of the user's, which are
told of no work of ours."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

_TOOL, _TOOLS = "jitmagic", 6
"""What Python knows listeners of ours by, and how many of all it may know."""


def free_tool(*wanted: int) -> int | None:
    """A number under which Python tells of events from 3.12 on; None where others have them all."""
    if sys.version_info >= (3, 12):
        for tool in wanted or (4, 3):
            with contextlib.suppress(ValueError):
                sys.monitoring.use_tool_id(tool, _TOOL)
                return tool
    return None


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """While this holds, listeners of the user's are told of nothing in this thread, those of Python 3.12 in none."""
    tracing, profiling, tools = sys.gettrace(), sys.getprofile(), _take_tools()
    if tracing is not None:
        sys.settrace(None)
    if profiling is not None and _is_users(profiling):
        _stop(profiling)
    try:
        yield
    finally:
        for tool, name, event, callback in tools:
            if sys.version_info >= (3, 12) and sys.monitoring.get_tool(tool) == name:
                sys.monitoring.register_callback(tool, event, callback)
        if profiling is not None and _is_users(profiling):
            _go_on(profiling)
        if tracing is not None:
            sys.settrace(tracing)


def _is_users(listener: object) -> bool:
    return str(getattr(listener, "__module__", "")).partition(".")[0] != "jitmagic"


def _stop(profiling: Any) -> None:
    profiling.disable() if _is_of_c(profiling) else sys.setprofile(None)


def _go_on(profiling: Any) -> None:
    profiling.enable() if _is_of_c(profiling) else sys.setprofile(profiling)


def _is_of_c(profiling: object) -> bool:
    """What `cProfile` listens with until Python 3.11: no function that `sys.setprofile` takes."""
    return any(cls.__module__ == "_lsprof" for cls in type(profiling).__mro__)


def _take_tools() -> list[tuple[int, str, int, Callable[..., object]]]:
    """What tools of others are told with, each with its number, its name and the event."""
    found: list[tuple[int, str, int, Callable[..., object]]] = []
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        for tool in range(_TOOLS):
            name = monitoring.get_tool(tool)
            if name is None or name == _TOOL:
                continue
            for event in _EVENTS:
                if (callback := monitoring.register_callback(tool, event, None)) is not None:
                    found.append((tool, name, event, callback))
    return found


_EVENTS: list[int] = []
if sys.version_info >= (3, 12):
    _EVENTS += filter(None, vars(sys.monitoring.events).values())
