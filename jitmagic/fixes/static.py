"""Fixes that change which arguments are static: the smallest set that lets the function trace, or fewer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from jitmagic.evidence import Evidence
from jitmagic.fixes import declared, specs
from jitmagic.fixes.prove import Prover, undonated, without_static
from jitmagic.options import JitOptions
from jitmagic.report import Finding, Fix
from jitmagic.rules.words import listed

MADE_STATIC = (
    "tracer-bool", "tracer-int", "tracer-array-conversion", "dynamic-shape", "tracer-hash",
    "tracer-format", "invalid-jax-type", "jit-differs-from-eager",
)  # fmt: skip
MADE_DYNAMIC = ("unhashable-static", "recompile-static")


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterable[Fix]:
    """Static arguments where they help, none where they are the problem, a corrected list where it is wrong."""
    if finding.kind in (*MADE_STATIC, "unhashable-static") and evidence.static_verified:
        yield from _make_static(finding, evidence, prover)
    elif finding.kind in MADE_DYNAMIC:
        yield from _make_dynamic(finding, evidence, prover)
    elif finding.kind == "bad-static-spec":
        yield from _correct(evidence, prover)


def _root(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _make_static(finding: Finding, evidence: Evidence, prover: Prover) -> Iterable[Fix]:
    search = prover.checker.seen.search
    names = {_root(leaf) for leaf in evidence.static_verified or ()}
    if search is None or search.leaves is None or not names & {_root(c) for c in finding.culprits}:
        return
    numbers = _numbers(search.argnames, search.argnums, evidence)
    options = replace(
        prover.checker.options, static_argnames=tuple(search.argnames), static_argnums=numbers,
    )  # fmt: skip
    proof = prover.options(options)
    if not proof.holds:
        return
    numbered = (f"argument {n}" for n in search.argnums if str(n) not in _declared(evidence))
    added = [*(n for n in search.argnames if n not in _declared(evidence)), *numbered]
    yield Fix(
        title=f"make {listed(added)} static: {_cost(added, evidence)}",
        applicability="unsafe",
        verified=True,
        evidence=proof.words,
        static_argnames=tuple(search.argnames) or None,
        static_argnums=numbers or None,
    )


def _numbers(names: Sequence[str], numbers: Sequence[int], evidence: Evidence) -> tuple[int, ...]:
    """The positions, those of the names too where there are any: with both given, jax infers neither."""
    order = evidence.function.parameters
    return tuple(dict.fromkeys((*numbers, *(order.index(n) for n in names if n in order)))) if numbers else ()


def _declared(evidence: Evidence) -> set[str]:
    return {*evidence.options.static_argnames, *map(str, evidence.options.static_argnums)}


def _cost(names: Sequence[str], evidence: Evidence) -> str:
    """What static arguments cost: one compilation for each new value."""
    values = {
        tuple(leaf.value for leaf in call.leaves if leaf.argument in names or leaf.path in names)
        for call in evidence.calls
    }
    words = "each new value compiles again"
    return f"{words} ({len(values)} so far)" if len(values) > 1 else words


def _make_dynamic(finding: Finding, evidence: Evidence, prover: Prover) -> Iterable[Fix]:
    roots = {_root(c) for c in finding.culprits}
    old = prover.checker.options
    fewer = _without(old, roots, evidence)
    for options in dict.fromkeys((fewer, without_static(old))):
        if options == old:
            continue
        proof = prover.options(options)
        if proof.holds:
            yield Fix(
                title=f"take {listed(sorted(roots))} as an ordinary argument, not static",
                applicability="safe",
                verified=True,
                evidence=proof.words,
                static_argnames=options.static_argnames,
                static_argnums=options.static_argnums or None,
            )
            return
    yield from _meant(_by_name(fewer, evidence.function.parameters), roots, evidence, prover)


def _meant(kept: JitOptions, roots: set[str], evidence: Evidence, prover: Prover) -> Iterable[Fix]:
    """Another argument static than the one that was declared: the number counts from 0."""
    for names in _settings(evidence):
        options = replace(kept, static_argnames=tuple(dict.fromkeys((*kept.static_argnames, *names))))
        if roots & set(names) or options == kept:
            continue
        proof = prover.options(options)
        if proof.holds:
            yield Fix(
                title=f"make {listed(names)} static in place of {listed(sorted(roots))}", applicability="unsafe",
                verified=True, evidence=proof.words, static_argnames=options.static_argnames, static_argnums=(),
            )  # fmt: skip
            return


def _without(options: JitOptions, names: set[str], evidence: Evidence) -> JitOptions:
    order = evidence.function.parameters
    return replace(
        options,
        static_argnames=tuple(n for n in options.static_argnames if n not in names),
        static_argnums=tuple(
            n for n in options.static_argnums if not (-len(order) <= n < len(order) and order[n] in names)
        ),
    )


def _by_name(old: JitOptions, order: Sequence[str]) -> JitOptions:
    """The numbers as names, which parameters after `*` need."""
    names = [order[n] for n in old.static_argnums if -len(order) <= n < len(order)]
    return old.static_by_name((*old.static_argnames, *names))


def _settings(evidence: Evidence) -> list[tuple[str, ...]]:
    """Arguments that were no arrays in any call: each by itself, then all of them."""
    leaves = [x for c in evidence.calls for x in c.leaves]
    arrays = {x.argument for x in leaves if x.kind in ("array", "numpy") or x.python_type == "float"}
    names = [n for n in dict.fromkeys(x.argument for x in leaves) if n not in arrays and n != "self"]
    return [(n,) for n in names] + ([tuple(names)] if len(names) > 1 else [])


def _correct(evidence: Evidence, prover: Prover) -> Iterable[Fix]:
    """Static specs that are misspelt or off by one: nothing static, then the nearest parameter."""
    import difflib

    order, old = evidence.function.parameters, prover.checker.options
    candidates: list[JitOptions] = []
    wrong_names = [n for n in old.static_argnames if n not in order]
    if wrong_names:
        near = {n: difflib.get_close_matches(n, order, 1) for n in wrong_names}
        names = tuple(m for n in old.static_argnames for m in ([n] if n in order else near[n]))
        candidates.append(replace(old, static_argnames=names))
    if any(not -len(order) <= n < len(order) for n in old.static_argnums):
        shifted = tuple(n - 1 if n > 0 else n for n in old.static_argnums)
        candidates.append(replace(old, static_argnums=shifted))
        inside = tuple(n for n in old.static_argnums if -len(order) <= n < len(order))
        candidates.append(replace(old, static_argnums=inside))
    candidates.append(_by_name(old, order))
    candidates += [replace(without_static(old), static_argnames=names) for names in _settings(evidence)]
    candidates.append(without_static(old))
    yield from _donated(evidence, prover)
    for options in candidates:
        proof = prover.options(options) if options != old else None
        if proof is not None and proof.holds:
            static = options.static_parameters(prover.checker.fn)
            title = f"declare {listed(sorted(static))} static" if static else "declare nothing static"
            yield Fix(
                title=title, applicability="safe", verified=True, evidence=proof.words,
                static_argnames=tuple(options.static_argnames), static_argnums=tuple(options.static_argnums),
            )  # fmt: skip
            return


def _donated(evidence: Evidence, prover: Prover) -> Iterable[Fix]:
    """Donated arguments that the function has not, declared in the cell: a report has no field for them."""
    checker, parameters = prover.checker, evidence.function.parameters
    given = {field: list(getattr(checker.options, field)) for field in specs.FIELDS}
    spec = next(specs.corrections(given, specs.Parameters(parameters, ())))
    if any(spec[f] != given[f] for f in specs.STATIC) or spec == given or not checker.settings.compile:
        return
    proof = prover.options(undonated(checker.options))
    cell = declared.decorated(evidence, spec, checker.namespace)
    if proof.holds and cell is not None:
        words = (
            listed([*spec["donate_argnames"], *(parameters[n] for n in spec["donate_argnums"])]) or "nothing"
        )
        yield Fix(
            title=f"declare {words} donated, in the cell and no longer beside it",
            applicability="safe",
            verified=True,
            evidence=proof.words,
            cell=cell,
        )
