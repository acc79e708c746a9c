"""JM301 hidden-rng: random numbers that are the same at every call."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitmagic.evidence import Evidence, HiddenRandom, Problem, Where, Write
from jitmagic.report import Finding, Severity
from jitmagic.rules.base import Rule, Thresholds, culprits, exception_detail, root
from jitmagic.rules.classify import of_kind
from jitmagic.rules.parsed_text import ParsedText, bound_names, loaded_names, parse
from jitmagic.rules.state_write import GENERATORS, is_dynamic, is_generator
from jitmagic.rules.words import expression, quoted

DERIVERS = frozenset("split fold_in key PRNGKey clone key_data wrap_key_data key_impl".split())


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """Draws outside JAX, keys with a fixed seed, keys and generators from outside."""
    told: set[tuple[str, int]] = set()
    frozen = [w for w in evidence.writes if _is_frozen_state(evidence, w)]
    facts = evidence.silent.random
    # draws that a framework makes from its state show as draws from a key without a name
    drawn = [f for f in facts if frozen and f.origin == "captured" and not _is_known(evidence, f)]
    rest = [f for f in facts if f not in drawn]
    refused = [_refused(evidence, p) for p in of_kind(evidence, RULE.kind)]
    of_frameworks = [_frozen(evidence, w, drawn) for w in frozen]
    for finding in (
        *refused,
        *_unknown_to_jax(evidence),
        *of_frameworks,
        *_facts(evidence, rest),
        *_generators(evidence),
        *_keys_from_outside(evidence),
    ):
        place = (finding.span.cell or "", finding.span.line) if finding.span else ("", 0)
        if place not in told:
            told.add(place)
            yield finding


def _facts(evidence: Evidence, facts: list[HiddenRandom]) -> Iterator[Finding]:
    for fact in facts:
        if not any(is_dynamic(evidence, n) for n in fact.names):
            yield _told(evidence, fact)


def _told(evidence: Evidence, fact: HiddenRandom) -> Finding:
    function, text = evidence.function.name, quoted(fact.text)
    what = {
        "host": f"{text} draws in Python, once, while jax traces `{function}`: the compiled function gives the "
        "same numbers at every call",
        "generator": f"{text} draws from a generator of Python, once, while jax traces `{function}`: the "
        "compiled function gives the same numbers at every call",
        "fixed": f"{text} makes the same key at every call of `{function}`, so its random numbers never change",
        "captured": f"the key of {text} is no argument of `{function}` but a constant of the compiled program: "
        "it gives the same random numbers at every call",
    }[fact.origin]
    return RULE.finding(
        evidence,
        what,
        where=_handed_on(evidence, fact) or fact.where,
        culprits=fact.names,
        severity="warning" if fact.origin in ("host", "generator") else _unless_constant(evidence),
        help=f"take a key as an argument of `{function}`, draw with `jax.random`, and split a new key for each "
        "call outside",
    )


def _handed_on(evidence: Evidence, fact: HiddenRandom) -> Where | None:
    """Where a captured key is read, if the draw itself does not name it."""
    name = fact.names[0] if fact.origin == "captured" and fact.names else ""
    known = next((v for v in evidence.variables if v.path == name), None)
    if known is None or root(name) in fact.where.source:
        return None
    return next(iter(known.reads), None)


def _unless_constant(evidence: Evidence) -> Severity:
    """A function without inputs (an initialisation) may well mean the same numbers, if it is called once."""
    if evidence.dynamic_inputs == 0 and len(evidence.calls) < 2:
        return "note"
    return "warning"


def _refused(evidence: Evidence, problem: Problem) -> Finding:
    """A draw from a framework's random state that the framework itself refuses inside a trace of jax's."""
    names = culprits(evidence, problem)
    return RULE.finding(
        evidence,
        f"{quoted(expression(problem))} draws from a random state of the framework, {_UNKNOWN}",
        where=problem.where,
        culprits=[problem.callee, problem.callee.rpartition(".")[0], *names],
        severity="error",
        help=_OWN_JIT,
        detail=exception_detail(problem),
    )


def _unknown_to_jax(evidence: Evidence) -> Iterator[Finding]:
    """Draws from a framework's random state in a function that the user's own `jax.jit` compiles."""
    if not evidence.jitted_by_user:
        return
    for state in evidence.variables:
        if state.type == "rng" and state.framework and not state.declared:
            place = next(iter(state.reads), None)
            yield RULE.finding(
                evidence,
                f"`{evidence.function.name}` draws from the random state {quoted(state.path)}, {_UNKNOWN}",
                where=place or evidence.function.where,
                culprits=[place.text if place else "", state.path, state.path.rpartition(".")[0]],
                help=_OWN_JIT,
            )


_UNKNOWN = "which a plain `jax.jit` does not know: the draw is refused, or every call gives the same numbers"
_OWN_JIT = (
    "compile with the framework's own `jit` (`brainpy.math.jit`, `brainstate.transform.jit`, `flax.nnx.jit`), or leave "
    "the compiling to `%%jit`; or take a key as an argument and draw with `jax.random`"
)


def _is_frozen_state(evidence: Evidence, write: Write) -> bool:
    """A framework's random state that is not among the variables declared dynamic."""
    of_framework = is_generator(evidence, write) and write.before not in GENERATORS
    return of_framework and not is_dynamic(evidence, write.path)


def _is_known(evidence: Evidence, fact: HiddenRandom) -> bool:
    return any(v.path == name and v.type != "rng" for v in evidence.variables for name in fact.names)


def _frozen(evidence: Evidence, write: Write, drawn: list[HiddenRandom]) -> Finding:
    return RULE.finding(
        evidence,
        f"{quoted(write.path)} is not among the dynamic variables, so what `{evidence.function.name}` draws "
        "from it is drawn once, while jax traces: the compiled function gives the same numbers at every call",
        where=next((f.where for f in drawn), write.where or evidence.function.where),
        culprits=[write.path, root(write.path)],
        help=f"declare it too (`--dyn {write.path}`)",
    )


def _generators(evidence: Evidence) -> Iterator[Finding]:
    """Generators whose state the trace moved on, where the draw itself is not known."""
    drawn = [n for f in evidence.silent.random for n in f.names]
    for write in evidence.writes:
        if write.before not in GENERATORS or is_dynamic(evidence, write.path):
            continue
        # NumPy's own state has one name, whatever the notebook calls the module.
        names = (write.path, "numpy.random") if write.path.endswith(".random") else (write.path,)
        if any(n in names or n.startswith(tuple(f"{x}." for x in names)) for n in drawn):
            continue
        yield RULE.finding(
            evidence,
            f"{quoted(write.path)} is drawn from once, while jax traces `{evidence.function.name}`: the compiled "
            "function gives the same numbers at every call",
            where=write.where or evidence.function.where,
            culprits=[write.path, root(write.path)],
            help="take a key as an argument and draw with `jax.random`, or draw before the call and pass the "
            "numbers",
        )


def _keys_from_outside(evidence: Evidence) -> Iterator[Finding]:
    """Draws from keys of the surroundings that move on, or that no traced program has shown."""
    source = parse(evidence.function)
    if source is None:
        return
    own = source.own()
    local = bound_names(own)
    for name, call in source.calls(own):
        if is_draw(name) and call.args:
            yield from _outside(evidence, source, call, local)


def is_draw(name: str) -> bool:
    """Whether the full name is a function of `jax.random` that uses a key up."""
    return name.startswith("jax.random.") and name.rsplit(".", 1)[-1] not in DERIVERS


def _outside(evidence: Evidence, source: ParsedText, call: ast.Call, local: set[str]) -> Iterator[Finding]:
    """A draw whose key comes from a name of the surroundings."""
    names = [n for n in loaded_names(call.args[0]) if n not in local] or _attributes_of_self(call.args[0])
    if not names:
        return
    name = names[0]
    if is_dynamic(evidence, name):
        return
    written = any(root(w.path) == root(name) for w in evidence.writes)
    known = any(root(v.path) == root(name) and v.role == "constant" for v in evidence.variables)
    if not (written or known):
        return
    how = "moves on once, while jax traces" if written else "is a constant of the compiled program"
    yield RULE.finding(
        evidence,
        f"the key of {quoted(ast.unparse(call.func))} comes from {quoted(name)}, which {how}: "
        f"`{evidence.function.name}` gives the same random numbers at every call",
        where=source.where(call),
        culprits=[name],
        severity="warning" if written else _if_repeated(evidence),
        help=f"take the key as an argument of `{evidence.function.name}` and make a new one for each call "
        "outside",
    )


def _attributes_of_self(node: ast.expr) -> list[str]:
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return [ast.unparse(node)] if is_own else []


def _if_repeated(evidence: Evidence) -> Severity:
    """Fixed numbers do harm where the function is called again."""
    return "warning" if len(evidence.calls) > 1 else "note"


RULE = Rule("JM301", "hidden-rng", "warning", find)
