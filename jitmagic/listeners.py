"""Who has Python tell of what runs: listeners of ours, and profilers, debuggers and tracers of the user's, which are
told of no work of ours."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from jitmagic.interrupts import deferred

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
    tracing, profiling = sys.gettrace(), _users_profile()
    if tracing is None and profiling is None and not _others():
        yield
        return
    tools: list[tuple[int, str, int, Callable[..., object]]] = []
    try:
        with deferred():
            if tracing is not None:
                sys.settrace(None)
            if profiling is not None:
                profiling.disable() if _is_of_c(profiling) else sys.setprofile(None)
            _take_callbacks(tools)
        yield
    finally:
        with deferred():
            for tool, name, event, callback in tools:
                if sys.version_info >= (3, 12) and sys.monitoring.get_tool(tool) == name:
                    sys.monitoring.register_callback(tool, event, callback)
            if profiling is not None:
                profiling.enable() if _is_of_c(profiling) else sys.setprofile(profiling)
            if tracing is not None:
                sys.settrace(tracing)


def _users_profile() -> Any:
    """What the user's own profiler listens with; None where there is none."""
    found = sys.getprofile()
    return None if str(getattr(found, "__module__", "")).partition(".")[0] == "jitmagic" else found


def _is_of_c(profiling: object) -> bool:
    """What `cProfile` listens with until Python 3.11: no function that `sys.setprofile` takes."""
    return any(cls.__module__ == "_lsprof" for cls in type(profiling).__mro__)


def _others() -> list[tuple[int, str]]:
    """The tools of others, by number and name."""
    if sys.version_info < (3, 12):
        return []
    named = ((tool, sys.monitoring.get_tool(tool)) for tool in range(_TOOLS))
    return [(tool, name) for tool, name in named if name is not None and name != _TOOL]


def _take_callbacks(taken: list[tuple[int, str, int, Callable[..., object]]]) -> None:
    if sys.version_info >= (3, 12):
        for tool, name in _others():
            for event in _EVENTS:
                if (callback := sys.monitoring.register_callback(tool, event, None)) is not None:
                    taken.append((tool, name, event, callback))


_EVENTS: list[int] = []
if sys.version_info >= (3, 12):
    _EVENTS += filter(None, vars(sys.monitoring.events).values())
