"""JM502 jit-differs-from-eager: the compiled function gives another result than the plain one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Difference, Evidence, TypeTest, Where
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.parsed_text import loaded_names, parse
from jitmagic.rules.words import quoted, short
from jitmagic.source.tree import walk


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """At most one error, at the test of a type where there is one; differences of type or of order alone are a
    note. Where nothing was compared, a warning for a `try` that goes another way while jax traces."""
    wrong = [d for d in evidence.differences if d.reason in ("values", "shape", "structure", "raises")]
    if takes_another_branch(evidence):
        wrong = wrong or [d for d in evidence.differences if d.reason == "NaN"]
    other = [d for d in evidence.differences if d.reason in ("dtype", "type")]
    order = [d for d in evidence.differences if d.reason == "order"]
    answered = [t for t in evidence.silent.tests if t.met]
    if wrong:
        yield _finding(evidence, wrong[0])
    elif answered and not evidence.compared:
        test = min(answered, key=lambda t: t.where.line)
        yield RULE.finding(
            evidence,
            f"the compiled `{evidence.function.name}` goes another way than without jit{_why(test)}",
            where=test.where,
            culprits=[test.name] if test.name else parameters_read(evidence),
            help=_INSTEAD,
            severity="warning",
        )
    elif order:
        yield RULE.finding(
            evidence,
            f"the compiled `{evidence.function.name}` returns a dict with its keys in order ({order[0].jit}), where it "
            f"returns them as they were put in without jit ({order[0].eager}): what goes through it in turn meets them "
            "so",
            where=None,
            severity="note",
        )
    elif other:
        first = other[0]
        yield RULE.finding(
            evidence,
            f"the compiled `{evidence.function.name}` returns {first.jit or 'another type'} where it returns "
            f"{first.eager or 'something else'} without jit"
            + ("; the values are equal" if first.reason == "dtype" else ", and these were not compared"),
            where=None,
            severity="note",
        )


def takes_another_branch(evidence: Evidence) -> bool:
    """NaN on one side only, and a test of a type that explains it."""
    return any(d.reason == "NaN" for d in evidence.differences) and bool(type_test(evidence)[0])


def _finding(evidence: Evidence, difference: Difference) -> Finding:
    tested, where = type_test(evidence)
    name = evidence.function.name
    values = f": {short(difference.jit, 40)} compiled, {short(difference.eager, 40)} without"
    tests = evidence.silent.tests
    raises = difference.reason == "raises"
    swallowing = next((t for t in tests if t.where == where and t.swallows), None)
    if swallowing is not None:
        why, help = _why(swallowing), _INSTEAD
    elif tested:
        seen = quoted(where.text if where else tested)
        why = f"; {seen} sees a traced value while jax traces, and another path is taken"
        help = f"test with `isinstance({tested}, jax.Array)`, which holds for arrays and while jax traces"
    elif raises and difference.eager.startswith("IndexError"):
        why = "; NumPy raises for an index out of bounds, a compiled program takes the nearest element"
        help = (
            "check the index before the call, or read with `x.at[i].get(mode='fill', fill_value=...)`, which says "
            "what stands for elements that there are not"
        )
    elif raises:
        why = "; Python raises for a division by zero, a compiled program goes on"
        help = (
            "keep zero away from the divisor: `jnp.where(d == 0, 1, d)`, and choose what the result is there"
        )
    elif difference.remedy:
        option, _, value = difference.remedy.partition("=")
        why = f"; the compiler is at fault: with its `{option}` off, the same program gives the result without jit"
        help = (
            f"compile it with `compiler_options={{{option!r}: {value!r}}}` as an option of `jax.jit`, or start the "
            f"kernel with `XLA_FLAGS=--{difference.remedy}`; the first was tried here"
        )
    elif difference.compiler:
        why = "; the same operations one by one give the result without jit, so the compiler is at fault"
        help = (
            "on a CPU, start the kernel with "
            "`XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_INVALID`, which turns off the "
            "fusion known to go wrong; on others, compare with another version of jaxlib"
        )
    elif difference.wraps:
        why = "; whole numbers leave the range of 32 bits there, and wrap around"
        help = 'compute with floats, or with 64 bits: `jax.config.update("jax_enable_x64", True)`'
    else:
        why, help = (
            "",
            "look for Python code that acts on types or catches exceptions, and for integers over 32 bits",
        )
    if difference.where is not None and where is None and not raises and not difference.wraps:
        why += "; this is the first line that goes wrong"
    return RULE.finding(
        evidence,
        f"the compiled `{name}` gives another result than without jit{values if difference.jit else ''}{why}",
        where=where or difference.where or last_return(evidence) or evidence.function.where,
        culprits=[tested] if tested else parameters_read(evidence),
        help=help,
        detail=difference.eager
        if raises
        else f"largest difference {difference.worst:g}, allowed {difference.allowed:g} ({difference.reason})",
    )


_INSTEAD = "use `jnp.where` or `jax.lax.cond` there, or catch only the exceptions that are meant"


def _why(swallowing: TypeTest) -> str:
    asked = f"{quoted(swallowing.asked)} asks for a value" if swallowing.asked else "a value is asked for"
    return f"; {asked}, and {quoted(swallowing.where.source)} takes the error of jax for an answer"


def type_test(evidence: Evidence) -> tuple[str, Where | None]:
    """Name and place of the `try` that was seen to go another way, else of the first test of a type in the function,
    or of its first `try`."""
    tests = sorted(evidence.silent.tests, key=lambda t: not t.met)
    return next(((t.name, t.where) for t in tests), ("", None))


def last_return(evidence: Evidence) -> Where | None:
    """The place of the last `return` of the function."""
    source = parse(evidence.function)
    found = [n for n in walk(source.own()) if isinstance(n, ast.Return)] if source else []
    return source.where(max(found, key=lambda n: n.lineno)) if source and found else None


def parameters_read(evidence: Evidence) -> list[str]:
    """Parameters that the function computes with."""
    source = parse(evidence.function)
    read = loaded_names(source.own()) if source else []
    return [p for p in evidence.function.parameters if p in read]


RULE = Rule("JM502", "jit-differs-from-eager", "error", find)
