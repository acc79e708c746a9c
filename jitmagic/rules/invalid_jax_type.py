"""JM108 invalid-jax-type: an argument or a result is no array, number, or container of them."""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Leaf, Problem
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail
from jitmagic.rules.classify import arrays_named, binding_place, of_kind, offenders
from jitmagic.rules.returned import returned
from jitmagic.rules.words import listed, quoted, static_help

SOURCES_OF_DATA = frozenset(
    "Loader Iterator iterator Dataset generator Generator RandomState zip map".split()
)
NAMED = {
    "str": "a string", "function": "a function", "builtin_function_or_method": "a function",
    "NoneType": "None",
    "method": "a method", "PjitFunction": "a compiled function", "module": "a module", "type": "a class",
    "ufunc": "a NumPy function", "partial": "a `functools.partial`", "generator": "a generator",
    "bytes": "a byte string", "datetime64": "a date", "timedelta64": "a duration", "datetime": "a date",
    "date": "a date", "timedelta": "a duration",
}  # fmt: skip
ARRAYS_OF = {
    "datetime64": (
        "dates",
        "pass numbers: `(t - t[0]) / np.timedelta64(1, 's')` before the call gives seconds",
    ),
    "timedelta64": ("durations", "pass numbers: `t / np.timedelta64(1, 's')` before the call gives seconds"),
    "<U": (
        "strings",
        "pass numbers: `names, numbers = np.unique(texts, return_inverse=True)` before the call",
    ),
    "|S": (
        "strings",
        "pass numbers: `names, numbers = np.unique(texts, return_inverse=True)` before the call",
    ),
    "object": (
        "Python objects",
        "make it an array of numbers before the call: `np.array(values, dtype=float)`",
    ),
    "[(": ("records", "pass the fields as arrays of their own"),
}
"""What an array of NumPy that jax cannot take has in it, by the beginning of its dtype, and what to pass."""


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each problem with arguments or results that are no arrays."""
    for problem in of_kind(evidence, RULE.kind):
        leaves = offenders(evidence, problem)
        if problem.leaves:
            yield _argument(evidence, problem, leaves)
        else:
            yield _inside(evidence, problem)


def _argument(evidence: Evidence, problem: Problem, leaves: tuple[Leaf, ...]) -> Finding:
    names = blamed(problem, leaves)
    function = evidence.function.name
    what = NAMED.get(leaves[0].python_type, f"of type `{leaves[0].python_type}`") if leaves else "no array"
    content, pass_instead = "", ""
    if not leaves:
        content, pass_instead = next(filter(None, map(_refused, arrays_named(evidence, problem))), ("", ""))
        what = f"a NumPy array of {content}" if content else what
    return RULE.finding(
        evidence,
        f"{quoted(names[0])} is {what}, but the inputs of the compiled `{function}` have to be "
        f"{'arrays of numbers' if content else 'arrays or numbers'}, or tuples, lists and dicts of them",
        where=binding_place(evidence, problem),
        culprits=names,
        help=pass_instead or _help(evidence, names, leaves),
        detail=exception_detail(problem),
    )


def _refused(leaf: Leaf) -> tuple[str, str] | None:
    return next((told for start, told in ARRAYS_OF.items() if leaf.dtype.startswith(start)), None)


def _help(evidence: Evidence, names: tuple[str, ...], leaves: tuple[Leaf, ...]) -> str:
    first = names[0]
    if any(word in x.python_type for x in leaves for word in SOURCES_OF_DATA):
        return (
            f"take the array out of {quoted(first)} before the call and pass that; with {quoted(first)} "
            "static the first data would be used for ever"
        )
    static = static_help(evidence, names)
    if static:
        return static
    argument = leaves[0].argument if leaves else first
    if all(x.path == argument or not x.hashable for x in leaves):
        return f"make {quoted(argument)} static if it never changes, or leave it out of the arguments"
    return f"pass {listed(names[:3])} apart from the arrays, as a static argument"


def _inside(evidence: Evidence, problem: Problem) -> Finding:
    names = culprits(evidence, problem)
    function = evidence.function.name
    result = returned(evidence, problem)
    if result is not None:
        what = NAMED.get(result.type, f"of type `{result.type}`")
        part = f"at `{result.component}`" if result.component else "as its result"
        return RULE.finding(
            evidence,
            f"`{function}` returns what is {what} {part}, but a compiled function returns arrays and numbers only",
            where=result.where or evidence.function.where,
            culprits=result.names,
            help="return arrays and numbers only, and add the rest after the call",
            detail=exception_detail(problem),
        )
    if problem.told.unordered_keys:
        message = f"JAX sorts the keys of dicts, and one that `{function}` takes or returns has keys without an order"
        help = "give the dict keys of one type, strings say"
    elif problem.told.is_returned or problem.construct == "return":
        message = f"`{function}` returns something that is no array, which a compiled function cannot do"
        help = "return arrays and numbers only, and add the rest after the call"
    else:
        callee = quoted(problem.callee) if problem.callee else "a function of JAX"
        subject = f"{quoted(names[0])}, which is" if names else "something that is"
        message = f"{callee} was given {subject} no array or number"
        help = "pass arrays and numbers, and keep strings, functions and None out of the arguments"
    where = problem.where or evidence.function.where
    return RULE.finding(
        evidence, message, where=where, culprits=names, help=help, detail=exception_detail(problem)
    )


def blamed(problem: Problem, leaves: tuple[Leaf, ...]) -> tuple[str, ...]:
    """The leaf first where it is the only bad one of its argument, else the argument."""
    paths = [x.path for x in leaves] or list(problem.leaves)
    arguments = list(dict.fromkeys(x.argument for x in leaves))
    names = [*paths, *arguments] if len(paths) == 1 else [*arguments, *paths]
    return tuple(dict.fromkeys(names))


RULE = Rule("JM108", "invalid-jax-type", "error", find)
