"""JM111 bad-static-spec: static or donated arguments that the function does not have."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from jitmagic.evidence import Evidence, Problem, Where
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail, root
from jitmagic.rules.classify import binding_place, of_kind
from jitmagic.rules.parsed_text import parse
from jitmagic.rules.words import listed
from jitmagic.source.edits import FunctionNode
from jitmagic.source.tree import walk

FIELDS = ("static_argnames", "static_argnums", "donate_argnames", "donate_argnums")


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each refused declaration; the parameter that was probably meant is the culprit."""
    for problem in of_kind(evidence, RULE.kind):
        parameters = evidence.function.parameters
        plain = _plain(evidence, problem)
        wrong = _wrong(evidence, plain)
        names = tuple(dict.fromkeys([*meant(evidence, plain), *culprits(evidence, problem)]))
        fitting = [n for n in names if n in parameters]
        have = f"has the parameters {listed(parameters)}" if parameters else "has no parameters"
        said = ", ".join(f"`{field}={value!r}`" for field, value in wrong) or "the declaration of arguments"
        yield RULE.finding(
            evidence,
            f"{said} does not fit `{evidence.function.name}`, which {have}"
            + (" (positions count from 0)" if any("argnums" in field for field, _ in wrong) else ""),
            where=_place(evidence, problem),
            culprits=names,
            help=f"name the argument: `{_by_name(evidence, plain)}={fitting[:1]!r}`"
            if fitting
            else "name a parameter, or declare nothing",
            detail=exception_detail(problem),
        )


def _plain(evidence: Evidence, problem: Problem) -> int:
    """How many parameters have a position, which those after `*` have not."""
    told = problem.told.positional
    return len(evidence.function.parameters) if told is None else told


def _wrong(evidence: Evidence, plain: int) -> list[tuple[str, object]]:
    options = evidence.options
    found: list[tuple[str, object]] = []
    for field in FIELDS:
        values = getattr(options, field)
        bad = [v for v in values if _misfits(v, evidence.function.parameters, plain)]
        if bad:
            found.append((field, bad[0]))
    return found


def _by_name(evidence: Evidence, plain: int) -> str:
    """The option that takes names, for the first that does not fit."""
    wrong = _wrong(evidence, plain)
    return "donate_argnames" if wrong and wrong[0][0].startswith("donate") else "static_argnames"


def _misfits(value: str | int, parameters: tuple[str, ...], count: int) -> bool:
    return not -count <= value < count if isinstance(value, int) else value not in parameters


def meant(evidence: Evidence, plain: int) -> list[str]:
    """Parameters that the wrong numbers and names probably meant: the one after `*` at that place, one less, or
    spelt alike; then those that, made static, let the function trace."""
    parameters = evidence.function.parameters
    verified = [root(x) for x in evidence.static_verified or ()]
    guesses: list[str] = []
    for field, value in _wrong(evidence, plain):
        if isinstance(value, int):
            at = value if plain <= value < len(parameters) else value - 1
            guesses += [parameters[at]] if 0 <= at < len(parameters) else parameters[-1:]
        else:
            guesses += difflib.get_close_matches(str(value), parameters, n=1, cutoff=0.5)
        if "static" in field and not guesses:
            guesses += verified
    return guesses or verified


def _place(evidence: Evidence, problem: Problem) -> Where | None:
    """The decorator that declares the arguments, or the `def` line."""
    source = parse(evidence.function)
    node = source.own() if source else None
    if source and isinstance(node, FunctionNode):
        for decorator in node.decorator_list:
            if any(k.arg in FIELDS for k in walk(decorator) if isinstance(k, ast.keyword)):
                return source.where(decorator)
    return binding_place(evidence, problem)


RULE = Rule("JM111", "bad-static-spec", "error", find)
