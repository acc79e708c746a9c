"""JM401 recompile-static: each new value of a static argument compiles again."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, root
from jitmagic.rules.recompile import histories, is_function, without_address
from jitmagic.rules.words import quoted, short

MANY = 3
"""Values from which a static argument is told."""
MANY_TEXTS = 8
"""The same of texts and flags, which no array can stand for."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each static argument that took many values over the calls that were traced."""
    yield from _counted(evidence)
    for path, forms in histories(evidence).items():
        if not forms[0].static or any(is_function(x) for x in forms):
            continue
        values = list(dict.fromkeys(without_address(x.value) for x in forms))
        texts = all(x.python_type in ("str", "bytes", "bool", "NoneType") for x in forms)
        if len(values) < (MANY_TEXTS if texts else MANY):
            if not texts and len({x.value for x in forms}) >= MANY:
                yield _by_identity(evidence, path, forms[0].python_type)
            continue
        shown = ", ".join(short(v, 20) for v in values[:3])
        yield RULE.finding(
            evidence,
            f"the static argument {quoted(path)} had {len(values)} values ({shown}, …), and "
            f"`{evidence.function.name}` was compiled again for each",
            where=evidence.function.where,
            culprits=[path, root(path)],
            help=_help(evidence, path),
        )


def _counted(evidence: Evidence) -> Iterator[Finding]:
    """A number in a module of flax that the function itself changes: `nnx.jit` takes it as static."""
    if (
        evidence.framework != "flax"
        or evidence.traces < min(MANY, len(evidence.calls))
        or evidence.traces < 2
    ):
        return
    for write in evidence.writes:
        if write.origin == "argument" and not write.tracer and not write.settled:
            yield RULE.finding(
                evidence,
                f"`{evidence.function.name}` changes the number {quoted(write.path)} at each call; what is no array or "
                "variable of flax is static to its `jit`, so each call compiles again",
                where=write.where or evidence.function.where,
                culprits=[write.path, root(write.path)],
                help=f"keep {quoted(write.path)} in a variable: `nnx.Variable(jnp.array(0))`",
            )


def _help(evidence: Evidence, path: str) -> str:
    declared = evidence.options.static_argnames or evidence.options.static_argnums
    if root(path) != path and not declared:  # a jit that takes all but arrays as static
        return f"make {quoted(path)} an array (`jnp.asarray`) where no shape, `range` or `if` needs its value"
    return f"take {quoted(path)} out of the static arguments where no shape, `range` or `if` needs its value"


def _by_identity(evidence: Evidence, path: str, type_name: str) -> Finding:
    return RULE.finding(
        evidence,
        f"the static argument {quoted(path)} is another `{type_name}` object at each call, and "
        f"`{evidence.function.name}` is compiled again for each: objects of this class are never equal",
        where=evidence.function.where,
        culprits=[path, root(path)],
        help=f"make one object and pass it each time, or give `{type_name}` an `__eq__` and a `__hash__` (a frozen "
        "dataclass has both)",
    )


RULE = Rule("JM401", "recompile-static", "warning", find)
