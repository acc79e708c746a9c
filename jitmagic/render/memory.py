"""The page of `%jitcheck --memory`: every array that is alive, what keeps it, and what to delete."""

from __future__ import annotations

from jitmagic import units
from jitmagic.render.escape import brief
from jitmagic.render.parts import Cell, Para, Part, Phrase, Section, Table, VerdictLine, runs
from jitmagic.report import LiveArray, Memory

ROWS = 40
KEPT_BY = {
    "name": "the notebook",
    "output": "an output",
    "traceback": "the last error",
    "check": "a call kept to try fixes on",
    "elsewhere": "no name: a closure, a generator, a cache",
}
DELETE = {
    "output": '`ip = get_ipython(); ip.displayhook.flush(); ip.user_ns_hidden.update({n: "" for n in ip.user_ns_hidden '
    'if n[0] == "_"})` lets go of the outputs',
    "traceback": "`import sys; sys.last_exc = sys.last_value = sys.last_traceback = "
    "get_ipython().InteractiveTB.tb = None` lets go of the last error",
    "check": "to delete a function, and to run another cell with `%%jit` or `%%jitcheck`, lets go of its calls",
}


def verdict(memory: Memory) -> VerdictLine:
    """`1.2 GB in 14 arrays, 300 MB of it kept by outputs and the last error alone`."""
    total, count = sum(a.bytes for a in memory.arrays), len(memory.arrays)
    words = f"{units.size(total)} in {units.counted(count, 'array')}" if count else "no array is alive"
    left = sum(a.bytes for a in memory.arrays if a.kept_by in DELETE)
    if left:
        words += f", {units.size(left)} of it by no name of the notebook"
    if memory.used is not None and memory.limit is not None:
        words += f"; the devices tell of {units.size(memory.used)} in use, of {units.size(memory.limit)}"
    if left > total / 10:
        return VerdictLine("!", "warning", "memory", (Phrase(words),))
    return VerdictLine("·", "note", "memory", (Phrase(words),))


def parts(memory: Memory) -> tuple[Part, ...]:
    """The table, and how to let go of what nobody needs."""
    shown, hidden = memory.arrays[:ROWS], memory.arrays[ROWS:]
    made: list[Part] = []
    if shown:
        made.append(
            Table(("array", "type", "size", "kept by", "device"), tuple(map(_row, shown)), frozenset({2}))
        )
    if hidden:
        rest = units.size(sum(a.bytes for a in hidden))
        made.append(Para((Phrase(f"… {units.counted(len(hidden), 'smaller array')}, {rest}"),)))
    ways = [words for kind, words in DELETE.items() if any(a.kept_by == kind for a in memory.arrays)]
    if ways:
        made.append(Section((Phrase("to delete:", "strong"),), tuple(Para(runs(words)) for words in ways)))
    if memory.used is None or memory.limit is None:
        made.append(
            Para((Phrase("how much is in use is not reported: the device keeps no memory statistics"),))
        )
    return tuple(made)


def _row(array: LiveArray) -> tuple[Cell, ...]:
    return ((Phrase(brief(array.path, 40), "code"),), (Phrase(array.type),), (Phrase(units.size(array.bytes)),),
            (Phrase(KEPT_BY[array.kept_by]),), (Phrase(brief(array.devices, 30)),))  # fmt: skip
