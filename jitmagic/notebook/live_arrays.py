"""What takes the memory of the devices: every array that is alive, and what keeps it."""

from __future__ import annotations

import gc
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from jitmagic.notebook.running import Notebook
from jitmagic.report import KeptBy, LiveArray, Memory
from jitmagic.units import array_type

if TYPE_CHECKING:
    from jitmagic.render import Report

_OUTPUTS = re.compile(r"_+|_\d+|_oh|_ih|_dh|_i+\d*|In|Out")
"""IPython's own names for what cells have shown."""
_NOWHERE: tuple[KeptBy, str] = ("elsewhere", "")


def report_of_memory(notebook: Notebook) -> Report:
    """The live arrays, the largest first. Raises UsageError before jax is imported."""
    if "jax" not in sys.modules:
        raise UsageError("--memory: jax is not imported yet, so there is no array")
    import jax

    from jitmagic.checking import conclusions
    from jitmagic.measure.peak import told_by_devices
    from jitmagic.state.held import is_there

    if getattr(sys, "last_value", None) is None:
        notebook.last_error = None  # who has dropped the error wants its arrays to go
    gc.collect()
    keepers = list(_keepers(notebook))
    found: dict[int, LiveArray] = {}
    for array in filter(is_there, jax.live_arrays()):
        kept_by, path = next(((k, held[id(array)]) for k, held in keepers if id(array) in held), _NOWHERE)
        kind = array_type(str(array.dtype), tuple(array.shape))
        devices = ", ".join(sorted(map(str, array.devices())))
        place = _place(array)
        if place not in found or path and not found[place].path:
            found[place] = LiveArray(path, kind, int(array.nbytes), kept_by, devices)
    used, limit = told_by_devices()
    memory = Memory(tuple(sorted(found.values(), key=lambda a: -a.bytes)), used, limit)
    return replace(conclusions.assemble([]), memory=memory)


def _place(array: Any) -> int:
    """Where it lies in memory: jax has several objects for one array."""
    try:
        return int(array.block_until_ready().unsafe_buffer_pointer())
    except Exception:  # it lies on several devices
        return id(array)


def _keepers(notebook: Notebook) -> Iterator[tuple[KeptBy, dict[int, str]]]:
    """What may keep an array, in the order in which it is blamed: each with the arrays below it by `id`."""
    from jitmagic.state.held import held_arrays

    shell = notebook.shell
    own = {n: v for n, v in shell.user_ns.items() if not _OUTPUTS.fullmatch(n)}
    shown = {n: v for n, v in shell.user_ns.items() if _OUTPUTS.fullmatch(n)}
    hidden = {n: v for n, v in shell.user_ns_hidden.items() if _OUTPUTS.fullmatch(n)}
    calls = {c.name: [(s.args, s.kwargs) for s in c.seen.samples] for c in notebook.checkers}
    scopes: tuple[tuple[KeptBy, dict[str, object]], ...] = (
        ("name", own),
        ("output", {**shown, "IPython": hidden}),
        ("traceback", dict(_of_tracebacks(notebook))),
        ("check", dict(calls)),
    )
    for kind, scope in scopes:
        yield kind, {id(array): path for path, array in held_arrays(scope)}


def _of_tracebacks(notebook: Notebook) -> Iterator[tuple[str, object]]:
    """The local variables of the frames in which the last errors arose."""
    seen: set[int] = set()
    errors = (getattr(sys, "last_value", None), getattr(sys, "last_exc", None), notebook.last_error)
    shown = getattr(getattr(notebook.shell, "InteractiveTB", None), "tb", None)
    begun: list[types.TracebackType | None] = [shown, *(getattr(e, "__traceback__", None) for e in errors)]
    for entry in begun:
        while entry is not None:
            frame = entry.tb_frame
            if id(frame) not in seen and frame.f_code.co_name != "<module>":
                seen.add(id(frame))
                yield from ((f"{name} in {frame.f_code.co_name}", v) for name, v in frame.f_locals.items())
            entry = entry.tb_next
