"""JM302 frozen-side-effect: the world outside is asked once, while jax traces."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Where
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.words import quoted

BEFORE = "ask {0} before the call and pass what it gives as an argument"
WORDS = {
    "clock": (
        "reads the clock with {0}",
        "measure around the call, after `jax.block_until_ready`, or pass the time as an argument",
    ),
    "wait": ("waits in {0}", "wait before or after the call, outside the compiled function"),
    "environment": ("reads the environment with {0}", BEFORE),
    "asked setting": ("reads a setting with {0}", BEFORE),
    "file": ("reads or writes a file with {0}", BEFORE),
    "iterator": (
        "takes the next element of {1}",
        "take the next element before the call and pass it as an argument",
    ),
    "input": ("asks the user with {0}", BEFORE),
    "process": ("asks the system with {0}", BEFORE),
    "queue": ("takes an element out of {1}", BEFORE),
    "id": ("makes a new identifier with {0}", BEFORE),
    "setting": ("changes a setting with {0}", "set it before the call, outside the compiled function"),
}
"""What the function does, and what to do instead; {0} is the call, {1} what it is about."""
_LATER = {"wait": "do not wait", "setting": "leave it out"}


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each question to the world outside, in the function or in what it calls; one for each line that
    does something outside, where nothing else is told of that line."""
    done = [fact for fact in evidence.silent.effects if fact.what == "outside"]
    asked = [fact for fact in evidence.silent.effects if fact.what != "outside"]
    told = {_line(fact.where) for fact in asked} | {_line(fact.where) for fact in evidence.silent.random}
    written = {_line(write.where) for write in evidence.writes}
    told |= written
    for fact in (f for f in done if _line(f.where) not in told):
        yield RULE.finding(
            evidence,
            f"{quoted(fact.asked)} runs once, while jax traces `{evidence.function.name}`: later calls leave it out",
            where=fact.where,
            culprits=fact.names,
            help="call it before or after the compiled function, or hand it to `jax.debug.callback`",
        )
    for fact in (f for f in asked if f.what != "setting" or _line(f.where) not in written):
        what, help = (t.format(quoted(fact.asked), quoted(fact.names[0])) for t in WORDS[fact.what])
        later = _LATER.get(fact.what, "go on with the same answer")
        yield RULE.finding(
            evidence,
            f"`{evidence.function.name}` {what}: that happens once, while jax traces it, and later calls {later}",
            where=fact.where,
            culprits=fact.names,
            help=help,
        )


def _line(where: Where | None) -> object:
    return where and (where.file, where.line)


RULE = Rule("JM302", "frozen-side-effect", "warning", find)
