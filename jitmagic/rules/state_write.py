"""JM205 state-write: the function changes something outside itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jitmagic.evidence import Evidence, Variable, Write
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, covers, culprits, exception_detail, root
from jitmagic.rules.classify import of_kind
from jitmagic.rules.parsed_text import only_stored, parse
from jitmagic.rules.words import agree, listed, quoted, short

GENERATORS = frozenset("RandomState Random Generator SystemRandom".split())
"""How a write shows a generator of numpy or Python, of which hidden-rng tells."""

_LAST = re.compile(r"""\[('([^'\\]|\\.)*'|"([^"\\]|\\.)*"|[^\[\]]*)\]$""")
"""The last item of a path: `['W_[1]']`, `[0]`."""

DEED = {"bound": "binds {}", "changed": "changes {}", "added": "adds to {}", "removed": "removes from {}"}


def is_dynamic(evidence: Evidence, path: str) -> bool:
    """Whether the state is declared dynamic, so that writing to it is what the user wants."""
    declared = [*(evidence.options.dyn or ()), *(v.path for v in evidence.variables if v.role == "dynamic")]
    return any(covers(d, path) for d in declared)


def is_generator(evidence: Evidence, write: Write) -> bool:
    """Whether what was written is a random state, of which hidden-rng tells."""
    return write.before in GENERATORS or any(
        v.type == "rng" and v.path == write.path for v in evidence.variables
    )


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each place that writes, and for writes that a framework refused."""
    writes = [
        w
        for w in evidence.writes
        if not w.tracer and not is_dynamic(evidence, w.path) and not is_generator(evidence, w)
    ]
    seen = evidence.silent.refs  # what is written in these, the caller sees
    writes = [w for w in writes if root(w.path) not in seen]
    own = [w for w in writes if w.origin == "argument" and root(w.path) in evidence.function.parameters]
    if evidence.framework == "flax":  # recompile-static tells of it
        writes, own = [w for w in writes if w not in own], []
    source = parse(evidence.function)
    for name in dict.fromkeys(root(w.path) for w in own):
        if source is not None and only_stored(source.own(), name):
            continue  # in-place-update tells of it
        yield _argument(evidence, name, [w for w in own if root(w.path) == name])
    writes = [w for w in writes if w not in own]
    for where, name in dict.fromkeys((w.where, root(w.path)) for w in writes):
        yield _written(evidence, [w for w in writes if (w.where, root(w.path)) == (where, name)])
    refused = [
        v for v in evidence.variables
        if v.framework.startswith("flax") and v.written and not v.declared and v.origin != "argument"
        and root(v.path) not in seen
    ]  # fmt: skip
    if refused:
        yield _refused(evidence, refused)
    unknown = _unknown_to_jax(evidence)
    if unknown and not any(p for kind in ("leaked-tracer", RULE.kind) for p in of_kind(evidence, kind)):
        yield _lost(evidence, unknown)
    for problem in of_kind(evidence, RULE.kind):
        names = [n for n in culprits(evidence, problem) if root(n) not in evidence.function.parameters]
        yield RULE.finding(
            evidence,
            f"{listed(names[:3]) or 'state'} belongs to the code outside `{evidence.function.name}` and "
            "cannot be changed while jax traces it",
            where=problem.where,
            culprits=names,
            severity="error",
            help=f"pass {quoted(names[0]) if names else 'the object'} as an argument, through the "
            "framework's own `jit` (such as `nnx.jit`) where it is a framework's object",
            detail=exception_detail(problem),
        )


def _refused(evidence: Evidence, variables: list[Variable]) -> Finding:
    """Variables that flax lets nobody write from a trace they do not belong to."""
    first, function = variables[0], evidence.function.name
    names = [v.path for v in variables]
    them = agree(names, "it", "them")
    return RULE.finding(
        evidence,
        f"`{function}` writes {listed(names[:4])} without taking {them} as {agree(names, 'an argument', 'arguments')}: "
        f"jitmagic passes {them} in and out here, but `jax.jit` and `nnx.jit` refuse it",
        where=first.changed_at,
        culprits=list(dict.fromkeys([*map(root, names), *names])),
        help=f"declare it (`--dyn {root(first.path)}`), or pass {quoted(root(first.path))} as an argument through "
        "`nnx.jit`",
    )


def _unknown_to_jax(evidence: Evidence) -> list[Variable]:
    """Variables of frameworks that a function writes which the user's own `jax.jit` compiles; flax refuses that."""
    own = [v for v in evidence.variables if v.framework and v.written and not v.declared and v.type != "rng"]
    return [v for v in own if not v.framework.startswith("flax")] if evidence.jitted_by_user else []


def _lost(evidence: Evidence, variables: list[Variable]) -> Finding:
    function, names = evidence.function.name, [v.path for v in variables]
    them = agree(names, "it", "them")
    return RULE.finding(
        evidence,
        f"`{function}` writes {listed(names[:4])}, and a plain `jax.jit` does not know {them}: later calls start from "
        "the values of the first one, and what is left there is a traced value in place of numbers",
        where=variables[0].changed_at,
        culprits=[*names, *(root(n) for n in names)],
        help="compile with the framework's own `jit` (`brainpy.math.jit`, `brainstate.transform.jit`), or leave the "
        "compiling to `%%jit`",
    )


def _argument(evidence: Evidence, name: str, writes: list[Write]) -> Finding:
    """What the caller handed in and gets back changed, in a run without jit."""
    function, paths = evidence.function.name, list(dict.fromkeys(w.path for w in writes))
    belongs = agree(paths, "belongs", "belong")
    arrays = {x.path for c in evidence.calls for x in c.leaves if x.kind == "numpy"}
    copy = f"`{name} = {name}.copy()`" if name in arrays else f"`{name} = dict({name})`, `copy.copy({name})`"
    help = f"work on a copy ({copy}), or return the new `{name}` and bind it "
    if name == "self":
        help = f"return the new value of {quoted(paths[0])} beside the result, and store it "
    return RULE.finding(
        evidence,
        f"`{function}` changes {listed(paths[:4])}, which {belongs} to the caller: a second call with the same "
        f"`{name}` starts from what the first one left, and a compiled `{function}` would leave it as it was",
        where=writes[0].where,
        culprits=[*paths, name],
        help=f"{help}where `{function}` is called",
    )


def _written(evidence: Evidence, writes: list[Write]) -> Finding:
    first, function = writes[0], evidence.function.name
    names = list(dict.fromkeys(map(_holder, writes)))
    values = (
        f" (from {short(first.before, 30)} to {short(first.after, 30)})"
        if first.before and first.after and first.before != first.after
        else ""
    )
    once = all(w.settled for w in writes)
    when = (
        "that happens once, and a further run without jit changes nothing there"
        if once
        else "that happens only while jax traces it, not in the other calls of the compiled function"
    )
    return RULE.finding(
        evidence,
        f"`{function}` {DEED[first.action].format(listed(names[:4]))}{values}: {when}",
        where=first.where,
        culprits=list(dict.fromkeys([*names, *(w.path for w in writes), root(first.path)])),
        severity="note" if once else None,
        help=f"take {quoted(names[0])} as an argument and return the new value, or declare it dynamic "
        f"(`--dyn {names[0]}`)"
        if first.before != first.after or first.action != "changed"
        else f"change {quoted(names[0])} outside of `{function}`, or through `jax.debug.callback`",
    )


def _holder(write: Write) -> str:
    """What was written, or the container that has one item more or fewer."""
    return _LAST.sub("", write.path) if write.action in ("added", "removed") else write.path


RULE = Rule("JM205", "state-write", "warning", find)
