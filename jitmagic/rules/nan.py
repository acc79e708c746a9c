"""JM501 nan: NaN or infinity from finite numbers."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, NotFinite
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.jit_differs_from_eager import last_return, parameters_read, takes_another_branch
from jitmagic.rules.words import quoted


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding where NaN came up in the comparison with the run without jit."""
    if takes_another_branch(evidence):
        return  # a consequence: the run without jit took another path
    if evidence.silent.not_finite:
        yield _told(evidence, evidence.silent.not_finite[0])
        return
    for difference in [d for d in evidence.differences if d.reason == "NaN"][:1]:
        yield RULE.finding(
            evidence,
            f"the result of `{evidence.function.name}` holds NaN or infinity"
            + (f" at `{difference.leaf}`" if difference.leaf else ""),
            where=last_return(evidence) or evidence.function.where,
            culprits=parameters_read(evidence),
            help="keep the inputs of `sqrt`, `log`, `norm` and divisions away from where they (or their "
            "gradients) are not finite, also in the branch of `jnp.where` that is not taken",
            detail=f"without jit: {difference.eager}; compiled: {difference.jit}",
        )


def _told(evidence: Evidence, fact: NotFinite) -> Finding:
    made = "infinity" if fact.infinite else "NaN"
    step = OPERATIONS.get(fact.operation, f"the operation `{fact.operation}`")
    side = "the gradient of " if fact.gradient else ""
    line = f" in {quoted(fact.where.source)}" if fact.where else ""
    text = fact.where.text if fact.where else ""
    if (
        text.endswith(")")
        and fact.operation not in text
        and text.partition("(")[0].replace(".", "").isidentifier()
    ):
        step, line = quoted(text), ""  # a function of many operations is known by its own name
    if fact.derived and not fact.gradient and fact.operation in DERIVATIVES:
        line += ", or the derivative there,"
    return RULE.finding(
        evidence,
        f"the result of `{evidence.function.name}` is not finite: {side}{step}{line} gives {made} first"
        if fact.operation
        else f"the result of `{evidence.function.name}` holds NaN",
        where=fact.where or last_return(evidence) or evidence.function.where,
        culprits=fact.names or parameters_read(evidence),
        help=DETERMINANT
        if fact.where and "det(" in fact.where.source and "log" in evidence.function.cell + fact.where.source
        else "keep the inputs of `sqrt`, `log`, `norm` and divisions away from where they (or their gradients) "
        "are not finite, also in the branch of `jnp.where` that is not taken",
    )


DETERMINANT = (
    "a determinant of many rows leaves the range of floats long before its logarithm does: write "
    "`jnp.linalg.slogdet(a)[1]` for `jnp.log(jnp.linalg.det(a))`"
)


OPERATIONS = {
    "div": "a division", "log": "a logarithm", "log1p": "a logarithm",
    "sqrt": "a square root", "rsqrt": "a root",
    "pow": "a power", "integer_pow": "a power", "exp": "an exponential", "acos": "`arccos`", "asin": "`arcsin`",
    "mul": "a product", "sub": "a difference", "add": "a sum", "atanh": "`arctanh`", "dot_general": "a matrix product",
}  # fmt: skip


DERIVATIVES = frozenset("div mul sub add add_any neg pow integer_pow dot_general select_n while".split())
"""What derivatives are made of."""


RULE = Rule("JM501", "nan", "warning", find)
