"""Static and donated arguments that a cell's own `jax.jit` declares wrongly, written as they were meant."""

from __future__ import annotations

import ast
import contextlib
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import FunctionNode, Text
from jitmagic.fixes.trial import as_made, define
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

FIELDS = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
NOTHING = "declare nothing static"
Spec = dict[str, list[Any]]


@dataclass(frozen=True)
class Parameters:
    """Names of a function's parameters: those that have a position, and those that only have a name."""

    plain: tuple[str, ...]
    keyword: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.plain, *self.keyword)


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The first correction of the decorator (or call) with which the cell runs as it does without jit."""
    if finding.kind != "bad-static-spec" or prover.samples or not evidence.function.cell:
        return  # a function that was called at all is tried with other options
    try:
        candidates = list(_candidates(Text(evidence.function.cell), evidence.function.name))
    except (SyntaxError, LookupError, ValueError):
        return
    for title, cell in dict.fromkeys(candidates):
        words = _proved(prover, cell, evidence.function.name)
        if words or (words == "" and title != NOTHING):
            from jitmagic.fixes.rewrites import diff

            yield Fix(
                title=title, applicability="safe", verified=bool(words), cell=cell,
                evidence=words or "the cell can be run with it; no call was there to try it on",
                diff=diff(evidence.function.cell, cell),
            )  # fmt: skip
            return


def _proved(prover: Prover, cell: str, name: str) -> str | None:
    """How the cell was proved; empty where nothing calls the function, None where it fails."""
    sources = trial.history(prover)
    with contextlib.suppress(Exception):
        if not any(trial.calls_in(ast.parse(s), name) for s in sources):
            if trial.calls_in(ast.parse(cell), name) or _goes_on(cell, name):
                return None  # the calls stand in the cell itself: it is run as a whole elsewhere
            namespace = dict(prover.checker.namespace)
            with trial.aside(prover):
                define(cell, namespace)
                return "" if callable(as_made(namespace, name)) else None
        got = trial.play(prover, cell, sources, jit=None, function=name).results
        plain = trial.play(prover, cell, sources, jit=False, function=name).results
        if got and trial.same(plain, got):
            return f"traced; equal to the run without jit on {len(got)} call{'s' * (len(got) > 1)}"
    return None


def _goes_on(cell: str, name: str) -> bool:
    """The cell makes something of the function, `g = jax.jit(f)`, and calls that."""
    made = [
        t.id
        for s in ast.parse(cell).body
        if isinstance(s, ast.Assign)
        and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(s.value))
        for t in s.targets
        if isinstance(t, ast.Name)
    ]
    return any(trial.calls_in(ast.parse(cell), m) for m in made)


def _candidates(text: Text, name: str) -> Iterator[tuple[str, str]]:
    node = text.function(name)
    if node is None:
        return
    call = _declaring(text, node)
    if call is None:
        return
    a = node.args
    parameters = Parameters(
        tuple(x.arg for x in (*a.posonlyargs, *a.args)), tuple(x.arg for x in a.kwonlyargs)
    )
    given = {k.arg: _listed(ast.literal_eval(k.value)) for k in call.keywords if k.arg in FIELDS}
    for spec in corrections({k: given.get(k, []) for k in FIELDS}, parameters):
        static = list(
            dict.fromkeys([*(parameters.plain[n] for n in spec["static_argnums"]), *spec["static_argnames"]])
        )
        title = f"declare {' and '.join(static)} static" if static else NOTHING
        yield title, _written(Text(text.source), name, spec)


def corrections(given: Spec, parameters: Parameters) -> Iterator[Spec]:
    """What the declarations may have meant, the likeliest first; each is valid for the parameters."""
    for shift in (-1, 0):
        spec: Spec = {k: [] for k in FIELDS}
        for kind in ("static", "donate"):
            for number in given[f"{kind}_argnums"]:
                _meant(int(number), spec, kind, parameters, shift)
            for word in given[f"{kind}_argnames"]:
                for part in re.split(r"[,\s]+", str(word)):
                    spec[f"{kind}_argnames"] += _nearest(part, parameters.all)
        # an argument is one or the other: what is static has no memory to give away
        static = {*(parameters.plain[n] for n in spec["static_argnums"]), *spec["static_argnames"]}
        spec["donate_argnums"] = [n for n in spec["donate_argnums"] if parameters.plain[n] not in static]
        spec["donate_argnames"] = [n for n in spec["donate_argnames"] if n not in static]
        yield {k: list(dict.fromkeys(v)) for k, v in spec.items()}
    if given["static_argnames"]:  # a name that is spelt like none of them: any could be meant
        yield from ({**{k: [] for k in FIELDS}, "static_argnames": [n]} for n in parameters.all)


def _meant(number: int, spec: Spec, kind: str, parameters: Parameters, shift: int) -> None:
    count = len(parameters.plain)
    if -count <= number < count:
        spec[f"{kind}_argnums"].append(number)
    elif count <= number < len(parameters.all):
        spec[f"{kind}_argnames"].append(parameters.all[number])
    elif count and shift and count <= number + shift < len(parameters.all):
        spec[f"{kind}_argnames"].append(parameters.all[number + shift])
    elif count and shift and number > 0:
        spec[f"{kind}_argnums"].append(min(number + shift, count - 1))


def _nearest(word: str, names: Sequence[str]) -> list[str]:
    return [word] if word in names else difflib.get_close_matches(word, names, 1, 0.5)


def _declaring(text: Text, node: FunctionNode) -> ast.Call | None:
    """The decorator of the function, or the call of `jit` on it, that declares arguments."""
    calls = [n for d in node.decorator_list for n in ast.walk(d) if isinstance(n, ast.Call)]
    calls += [
        n
        for n in ast.walk(text.tree)
        if isinstance(n, ast.Call) and n.args and ast.unparse(n.args[0]).rpartition(".")[2] == node.name
    ]
    return next((c for c in calls if any(k.arg in FIELDS for k in c.keywords)), None)


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, (int, str)) else list(value)


def _written(text: Text, name: str, spec: Spec) -> str:
    node = text.function(name)
    call = _declaring(text, node) if node is not None else None
    if call is None:
        raise LookupError(name)
    old = {k.arg: k for k in call.keywords}
    kept = [*map(text.code, call.args)]
    for keyword in call.keywords:
        if keyword.arg not in FIELDS:
            kept.append(text.code(keyword))
        elif spec[keyword.arg]:
            same = _listed(ast.literal_eval(keyword.value)) == spec[keyword.arg]
            kept.append(text.code(keyword) if same else f"{keyword.arg}={_shown(spec[keyword.arg])}")
    kept += [f"{k}={_shown(spec[k])}" for k in FIELDS if spec[k] and k not in old]
    return text.replace(call, f"{text.code(call.func)}({', '.join(kept)})").result()


def _shown(values: Sequence[Any]) -> str:
    return repr(values[0] if len(values) == 1 else tuple(values)).replace("'", '"')
