"""JM302 frozen-side-effect: the world outside is asked once, while jax traces."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from jitmagic.evidence import Evidence, Where
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, root
from jitmagic.rules.parsed_text import bound_names, loaded_names, parse
from jitmagic.rules.words import quoted
from jitmagic.source.tree import walk

CLOCK = frozenset(
    "time.time time.time_ns time.perf_counter time.perf_counter_ns time.monotonic time.process_time "
    "time.localtime "
    "datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow datetime.now "
    "datetime.date.today".split()
)
READERS = frozenset(
    "os.getenv os.environ.get open input numpy.load numpy.loadtxt numpy.genfromtxt numpy.fromfile "
    "jax.numpy.load "
    "os.listdir os.path.exists os.getcwd uuid.uuid4 os.urandom".split()
)


BEFORE = "ask {0} before the call and pass what it gives as an argument"
WORDS = {
    "clock": (
        "reads the clock with {0}",
        "measure around the call, after `jax.block_until_ready`, or pass the time as an argument",
    ),
    "wait": ("waits in {0}", "wait before or after the call, outside the compiled function"),
    "environment": ("reads the environment with {0}", BEFORE),
    "file": ("reads or writes a file with {0}", BEFORE),
    "iterator": (
        "takes the next element of {1}",
        "take the next element before the call and pass it as an argument",
    ),
    "input": ("asks the user with {0}", BEFORE),
    "process": ("asks the system with {0}", BEFORE),
    "queue": ("takes an element out of {1}", BEFORE),
    "id": ("makes a new identifier with {0}", BEFORE),
}
"""What the function does, and what to do instead; {0} is the call, {1} what it is about."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each question to the world outside, in the function or in what it calls."""
    if evidence.silent is not None:
        for fact in evidence.silent.effects:
            what, help = (t.format(quoted(fact.asked), quoted(fact.names[0])) for t in WORDS[fact.what])
            yield _finding(evidence, fact.where, fact.names, what, help)
        return
    source = parse(evidence.function)
    if source is None:
        return
    own = source.own()
    local = bound_names(own)
    for name, call in source.calls(own):
        if root(ast.unparse(call.func)) in local:
            continue
        asked = ast.unparse(call.func)
        if name == "next" and call.args:
            outside = [n for n in loaded_names(call.args[0]) if n not in local]
            if outside:
                what = f"takes the next element of {quoted(outside[0])}"
                help = f"call `next({outside[0]})` before the call and pass what it gives as an argument"
                yield _finding(evidence, source.where(call), outside[0], what, help)
        elif name in CLOCK:
            help = "measure around the call, after `jax.block_until_ready`, or pass the time as an argument"
            yield _finding(evidence, source.where(call), asked, f"reads the clock with {quoted(asked)}", help)
        elif name in READERS:
            help = f"call {quoted(asked)} before the call and pass what it gives as an argument"
            yield _finding(evidence, source.where(call), asked, f"asks {quoted(asked)}", help)
    for node in walk(own):
        if isinstance(node, ast.Subscript) and source.dotted(node.value) == "os.environ":
            help = "read it before the call and pass it as an argument"
            yield _finding(evidence, source.where(node), "os.environ", "reads the environment", help)


def _finding(evidence: Evidence, where: Where, culprit: str | Sequence[str], what: str, help: str) -> Finding:
    later = "do not wait" if what.startswith("waits") else "go on with the same answer"
    return RULE.finding(
        evidence,
        f"`{evidence.function.name}` {what}: that happens once, while jax traces it, and later calls {later}",
        where=where,
        culprits=[culprit] if isinstance(culprit, str) else culprit,
        help=help,
    )


RULE = Rule("JM302", "frozen-side-effect", "warning", find)
