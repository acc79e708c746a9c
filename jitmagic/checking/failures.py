"""Why a call failed: the real error first, then everything else one recording run can see."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax

from jitmagic import evidence as ev
from jitmagic import patches
from jitmagic.checking.plain_runs import Began
from jitmagic.checking.subject import Subject
from jitmagic.measure import peak
from jitmagic.rules.base import covers
from jitmagic.state import iterators
from jitmagic.state.reached import Reach
from jitmagic.state.wrappers import unwrap
from jitmagic.tracing import callsite, leaks, leaves, locate, minimal_static, recording
from jitmagic.tracing.foreign import leaf_names
from jitmagic.tracing.leaves import by_keyword, signature_key
from jitmagic.tracing.messages import is_of_keys, suggests_a_name, with_facts
from jitmagic.trial import quiet
from jitmagic.trial.budget import OutOfTime, within

UNRECORDED = ("static-spec", "donated", "aux-data", "user", "leak", "carry")
"""What leaves nothing more to see: the run would end there too, or the call cannot be made."""

UNSEARCHED = ("user", "leak", "carry", "donated", "static-spec", "unhashable", "aux-data")
"""Where static arguments are no answer."""

UNASKED = (*UNSEARCHED, "other", "invalid-type")
"""Ends of a run that are no question to a traced value."""
LOOKING = "looking into the error"


def diagnose_failure(
    checker: Subject,
    exc: BaseException,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    began: Began | None,
) -> None:
    """Add what can be known about a failed call to what the checker has seen; the most of it when the cell has ended,
    where it is told from where."""
    first = _in_the_users_names(checker, args, kwargs, _hinted(locate.locate(exc), exc))
    first = _taken_for_an_array(checker, args, kwargs, first)
    if first.op == "donated" and first.where is None:
        first = replace(first, where=callsite.call_under_way(exc))
    if first.op == "leak":
        first = _put_away(checker, first)
    checker.seen.problems = _joined(checker.seen.problems, [first])
    checker.seen.too_large = checker.seen.too_large or peak.too_large_where(exc)
    if iterators.among((args, kwargs)) or is_of_keys(str(exc)) or not _is_new(checker, first, args, kwargs):
        return
    checker.guarded(checker.on_news, checker)  # what follows takes longer
    if began is not None:

        def further(seconds: float) -> None:
            with began.again():
                _look_further(checker, first, args, kwargs)

        checker.later("looking closer", further, (args, kwargs))
        return
    with checker.progress(LOOKING) if checker.progress is not None else contextlib.nullcontext():
        _look_further(checker, first, args, kwargs)


def _look_further(
    checker: Subject, first: ev.Problem, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """What else would stop the trace, whose values they are, and which arguments could be static."""
    if (reason := checker.seen.too_large) and first.op not in UNRECORDED:
        checker.seen.note(f"the search for more problems was left out: without jit {reason}")
    elif first.op not in UNRECORDED and checker.settings.rehearse:
        with _or_note(checker, "the search for more problems"):
            recorded = _recorded(checker, args, kwargs)
            if first.op == "unhashable":  # what is static by intention has its value
                recorded = [p for p in recorded if not set(p.leaves) <= set(first.leaves)]
            checker.seen.problems = _joined(_merge(first, recorded), checker.seen.problems)
    if first.op == "invalid-type" and checker.settings.rehearse:
        with _or_note(checker, "the run with scans in Python"):
            _behind(checker, args, kwargs)
    if first.op not in UNSEARCHED or first.op == "unhashable" and first.leaves:
        with _or_note(checker, "the search for static arguments"):
            _search(checker, args, kwargs)


def _taken_for_an_array(checker: Subject, args: object, kwargs: object, problem: ev.Problem) -> ev.Problem:
    """jax makes a placeholder of any object with an attribute `dtype` (layers of Flax have one), and the function
    then misses what the object has: the argument is at fault."""
    if problem.op != "user" or not problem.told.missing:
        return problem
    static = checker.options.static_parameters(checker.fn)
    taken = [
        path for path, leaf in leaves.named_leaves(checker.fn, args, kwargs)
        if hasattr(leaf, "dtype") and not minimal_static.is_jax_type(leaf) and re.split(r"[.\[]", path)[0] not in static
    ]  # fmt: skip
    if not taken:
        return problem
    return replace(problem, op="invalid-type", where=None, leaves=tuple(taken))


def located(checker: Subject, exc: Exception) -> bool:
    """Add what the exception itself tells; False where it is none of jax's."""
    problem = locate.locate(exc)
    if problem.op in ("user", "other"):
        return False
    problem = replace(problem, leaves=())  # arguments of the library's function, not of this one
    checker.seen.problems = _joined(checker.seen.problems, [problem])
    return True


def _put_away(checker: Subject, problem: ev.Problem) -> ev.Problem:
    """A leak with the place where an inner function stored the value, where jax tells only where it was used."""
    _, plain = unwrap(checker.fn)
    if plain is None or (problem.where is not None and problem.construct in ("call", "assign", "augassign")):
        return problem
    site = leaks.inner_store(plain.__code__, problem.locals)
    if site is None:
        return problem
    names = tuple(dict.fromkeys((*site.names, *problem.locals)))
    return replace(problem, where=site.where, locals=names, construct=site.construct)


def _is_new(checker: Subject, first: ev.Problem, args: object, kwargs: object) -> bool:
    """A call of this form has not failed at this place before: only then is there more to learn from it."""
    try:
        key = (first.op, first.where, first.message, signature_key(checker.fn, args, kwargs))
        new = key not in checker.seen.diagnosed
        checker.seen.diagnosed.add(key)
    except TypeError:  # an argument without a hash
        return True
    return new


def _behind(checker: Subject, args: Sequence[object], kwargs: dict[str, object]) -> None:
    """An argument that jax refuses hides what the function itself gets wrong: trace it with the argument as
    it is, and its scans in Python."""
    try:
        with quiet.undone(checker.reach(args, kwargs)), quiet.held_back(), quiet.plainly(), _scan_in_python():
            with within(checker.settings.budget):
                # staged, so nothing is computed
                jax.make_jaxpr(lambda: (checker.fn(*args, **kwargs), None)[1])()
    except OutOfTime:
        return
    except Exception as exc:
        exc.__context__ = None  # the refusal, which is being handled, is not its cause
        problem = _hinted(locate.locate(exc), exc)
        if problem.op == "user" and problem.where is not None:
            checker.seen.problems = _joined(checker.seen.problems, [problem])


def _hinted(problem: ev.Problem, exc: BaseException) -> ev.Problem:
    """With the name that was probably meant, as Python's own traceback would say it."""
    if not isinstance(exc, AttributeError) or not exc.name or problem.op != "user":
        return problem
    known = {n.lower(): n for n in reversed(dir(exc.obj)) if not n.startswith("_")}
    near = difflib.get_close_matches(exc.name.lower(), known, 1, 0.7)
    if not near or suggests_a_name(problem.message):
        return problem
    return with_facts(replace(problem, message=f"{problem.message}. Did you mean: '{known[near[0]]}'?"))


@contextlib.contextmanager
def _scan_in_python() -> Iterator[None]:
    """`jax.lax.scan` as the first turn of a Python loop: its carry may then hold any object."""

    def scan(
        f: Callable[..., Any],
        init: object,
        xs: Any = None,
        length: int | None = None,
        *_: object,
        **more: object,
    ) -> Any:
        count = length or len(jax.tree.leaves(xs)[0])
        first = count - 1 if more.get("reverse") else 0
        carry, y = f(init, jax.tree.map(lambda x: x[first], xs))
        return carry, jax.tree.map(lambda v: jax.numpy.stack([v] * count), y)

    with patches.replaced(jax.lax, scan=patches.here(scan, jax.lax.scan)):
        yield


def _joined(problems: Sequence[ev.Problem], more: Sequence[ev.Problem]) -> list[ev.Problem]:
    """All problems, those seen twice once."""
    out: list[ev.Problem] = []
    for problem in [*problems, *more]:
        if not any(_same(problem, p) for p in out):
            out.append(problem)
    return out


@contextlib.contextmanager
def _or_note(checker: Subject, what: str) -> Iterator[None]:
    """A step that adds to the diagnosis; without it the rest still stands."""
    try:
        yield
    except Exception as exc:
        checker.failed_inside(what, exc)


def _in_the_users_names(
    checker: Subject, args: Sequence[object], kwargs: object, problem: ev.Problem
) -> ev.Problem:
    """The hidden arguments of what is traced by the names that the user knows them by."""
    paths = checker.dynamic_paths(args) if checker.compiled is not None else ()
    hidden = {f"_dyn{i}": p for i, p in enumerate(paths)}
    if checker.framework:
        hidden |= leaf_names(checker.fn, args, kwargs)
    message = re.sub(r"_dyn\d+|_leaves\[\d+\]", lambda m: hidden.get(m[0], m[0]), problem.message)
    named = (by_keyword(checker.fn, hidden.get(leaf, leaf)) for leaf in problem.leaves)
    return with_facts(replace(problem, leaves=tuple(named), message=message))


def _recorded(checker: Subject, args: tuple[object, ...], kwargs: dict[str, object]) -> Sequence[ev.Problem]:
    if not recording.available():
        checker.seen.note("on this version of jax problems are shown one at a time")
        return ()
    reach = checker.reach(args, kwargs)
    names = {id(leaf.value): leaf.path for leaf in reach.leaves() if leaf.is_array}
    static = checker.options.static_parameters(checker.fn)
    # a function without source shows up as its caller's line, which is not where the problem is
    files = {f.__code__.co_filename for f in reach.functions}
    found: list[ev.Problem] = []
    for inside in (False, True):
        with quiet.undone(reach) as before, quiet.held_back(), quiet.plainly():
            run = recording.record(
                checker.fn, args, kwargs,
                static=static, constants=names, budget_s=checker.settings.budget / 4, reach_inside=inside,
            )  # fmt: skip
            quiet.heed()
            if run.complete and not inside:
                _note_writes(checker, before.changes(), args, reach)
        # What ends the run without jit may be no problem of a trace; a question inside a loop that jax traces is.
        last = run.problems[-1:] if run.error is not None else ()
        ended_by = [p for p in last if inside or p.op in UNASKED]
        seen = [p for p in run.problems if p not in ended_by and (p.where is None or p.where.file in files)]
        found = _joined(found, seen)
        if run.note and (inside or run.error is None):
            checker.seen.note(run.note)
        if run.error is None:
            break  # every body of a loop or branch was traced through: there is no question in them
    return found


def _note_writes(checker: Subject, writes: Sequence[ev.Write], args: Sequence[object], reach: Reach) -> None:
    """What the function writes, behind the place too where its trace has failed."""
    variables = {leaf.path for leaf in reach.leaves(used_only=False) if leaf.is_variable}
    lifted = (*checker.dynamic_paths(args), *variables)
    for write in checker.users_own(writes, reach):
        if not any(covers(path, write.path) for path in lifted):
            checker.seen.writes.setdefault(write.path, write)


def _merge(first: ev.Problem, recorded: Sequence[ev.Problem]) -> list[ev.Problem]:
    """The real error with the provenance of its recorded twin, then the others."""
    twin = next((p for p in recorded if _same(p, first)), None)
    if twin is not None:
        leaves = tuple(dict.fromkeys([*twin.leaves, *first.leaves]))
        names = tuple(dict.fromkeys([*first.locals, *twin.locals]))
        first = replace(first, leaves=leaves, locals=names, value=twin.value or first.value)
    return [first, *(p for p in recorded if p is not twin)]


def _same(a: ev.Problem, b: ev.Problem) -> bool:
    if a.where is None or b.where is None:
        return a.where is b.where and a.op == b.op and a.message == b.message
    return (a.where.file, a.where.line) == (b.where.file, b.where.line) and (
        a.op == b.op or (a.where.column, a.where.end_column) == (b.where.column, b.where.end_column)
    )


def _search(checker: Subject, args: Sequence[object], kwargs: dict[str, object]) -> None:
    """The smallest set of leaves that would have to be static, where there is one."""
    problems = checker.seen.problems
    suspects = list(dict.fromkeys(leaf for p in problems if p.op != "setitem" for leaf in p.leaves))
    stored = [leaf for p in problems for leaf in p.leaves if leaf not in suspects]
    with quiet.undone(checker.reach(args, kwargs)), quiet.held_back(), quiet.plainly():
        result = minimal_static.smallest_static(
            checker.fn, args, kwargs,
            static_argnums=checker.options.static_argnums, static_argnames=checker.options.static_argnames,
            suspects=suspects, stored=stored, budget_s=checker.settings.budget / 2,
        )  # fmt: skip
    checker.seen.static_verified, checker.seen.search = result.leaves, result
    later = [p for p in result.errors if p.op != "user" and p.where is not None]
    checker.seen.problems = _joined(problems, later)
