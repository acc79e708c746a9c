"""A cell run again, plain or under its magic: what the proof of a correction asks for.

`CellReruns` runs the whole cell and those after it, from where it began. `CallReruns` runs its definitions, and the
calls that were kept: where the whole cannot be run again.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import jax

from jitmagic import rules
from jitmagic.checking.conclusions import evidence_of, told_of
from jitmagic.checking.plain_runs import settle
from jitmagic.checking.request import Request, Run, taken
from jitmagic.checking.subject import Subject
from jitmagic.checking.users_jit import held_by
from jitmagic.checking.watching import Watching
from jitmagic.correction import functions_of, option_of, with_option
from jitmagic.options import JitOptions
from jitmagic.settings import CellSource
from jitmagic.silent.waiting import Waits
from jitmagic.source.cell import definitions, uses_jit
from jitmagic.source.edits import Text, masked
from jitmagic.source.tree import parsed
from jitmagic.state.paths import split_paths
from jitmagic.state.values import children, is_user_class
from jitmagic.tracing import stages
from jitmagic.tracing.messages import is_of_jax, refuses_stores
from jitmagic.trial import budget, quiet
from jitmagic.trial.beginning import Beginning
from jitmagic.trial.budget import within
from jitmagic.trial.permission import allowing
from jitmagic.trial.play import Ran, play
from jitmagic.trial.python_loops import loops_in_python, on_numpy
from jitmagic.trial.verify import Attempt, Examined, Verifier
from jitmagic.trial.whose_run import plainly, recording

RequestOf = Callable[[str], Request]
"""What a whole magic line asks for; raises where it cannot be meant."""
MOST = 1000
"""Values that are looked at for objects."""
USED_UP = "it gives arrays of the notebook away (donated), which can't be put back"
_DONATES = re.compile(r"\bdonate\w*\s*=|--donate")
InTime = Callable[[], contextlib.AbstractContextManager[None]]


class CellReruns:
    """Runs one cell and those after it again; `in_time` ends a run that takes too long with OutOfTime."""

    tested: Literal["cell", "calls"] = "cell"

    def __init__(
        self,
        run: Run,
        names: dict[str, object],
        request_of: RequestOf,
        in_time: InTime,
        earlier: Collection[str] = (),
    ) -> None:
        self.run, self.names, self.request_of = run, names, request_of
        self.in_time, self.earlier = in_time, earlier
        self.refused = ""
        """What the plain run was refused."""
        self.original = Attempt(run.source.magic, run.source.body, (*run.source.calls, *run.later))
        self.half_the_time = in_time
        """The same for runs without jit: the rest is there to try corrections in."""
        self._too_slow = False

    def obstacle(self) -> str:
        """Why the cell cannot be run again; empty where it can."""
        beginning = self.run.beginning
        if self._too_slow:
            return "without jit it takes too long"
        if beginning is None:
            return self.run.not_kept or "what it began from is not known any more"
        if too_large := next(
            (f"without jit {s.seen.too_large}" for s in self._subjects() if s.seen.too_large), ""
        ):
            return too_large
        if self._uses_up(self.original) and beginning.holds_arrays:
            return USED_UP
        with allowing(self.run.request.settings.rerun):
            return beginning.obstacle or self.refused

    def _subjects(self) -> Collection[Subject]:
        return self.run.checkers.values()

    def _uses_up(self, attempt: Attempt) -> bool:
        """A run of this may give arrays away: where they are the notebook's, they can't be put back."""
        donates = any(s.options.donates for s in self._subjects())
        return donates or any(map(_DONATES.search, (attempt.magic, attempt.cell, *attempt.later)))

    def plain(self, attempt: Attempt, *, briefly: bool = False) -> Ran:
        """Without the magic, and without jit; `briefly`: it may take half of the time. Raises OutOfTime."""
        briefly |= attempt == self.original
        try:
            with self.half_the_time() if briefly else contextlib.nullcontext():
                return self._as_it_can(attempt)
        except budget.OutOfTime:
            self._too_slow |= attempt == self.original
            raise

    def _as_it_can(self, attempt: Attempt) -> Ran:
        """As it is, else in a form that can run."""
        ran = self._plain(attempt, self._unjitted(attempt))
        other: Ran | None = None
        if refused := quiet.refusal(ran.error):
            self.refused = str(refused) if attempt == self.original else self.refused
        elif ran.error is not None and refuses_stores(ran.error):
            other, baseline = self._plain(attempt, self._unjitted(attempt), on_numpy=True), "NumPy arrays"
        elif ran.tracers or ran.error is not None and is_of_jax(ran.error) and ran.failed != "OverflowError":
            other, baseline = self._plain(attempt, self._unjitted(attempt, in_python=True)), "loops in Python"
        if other is None or other.error is not None or other.tracers:
            return ran
        other.baseline = baseline
        return other

    def _plain(
        self,
        attempt: Attempt,
        around: contextlib.AbstractContextManager[None],
        *,
        on_numpy: bool = False,
        **more: object,
    ) -> Ran:
        def bound(names: Collection[str]) -> None:
            for name in set(names) & set(self.run.targets) if on_numpy else ():
                self._wrap(name)

        with self.in_time():
            return self._play(attempt, around=around, bound=bound, **more)

    def given(self) -> Iterator[object]:
        """Objects from before that the calls are given: none, as the whole is run again."""
        return iter(())

    def _wrap(self, name: str) -> None:
        if callable(fn := self.names.get(name)):
            self.names[name] = on_numpy(fn)

    @contextlib.contextmanager
    def _unjitted(self, attempt: Attempt, *, in_python: bool = False) -> Iterator[None]:
        compiles = _compiles(attempt)
        off = loops_in_python() if in_python else jax.disable_jit() if compiles else contextlib.nullcontext()
        with plainly(), off:
            yield

    def observe(self, cell: str, names: dict[str, object]) -> None:
        """A plain run of a form of the cell that calls these names on its way, as far as it goes. Raises OutOfTime."""
        attempt = replace(self.original, cell=cell)
        with contextlib.suppress(SyntaxError):
            self._plain(attempt, self._unjitted(attempt), more=names)

    def equations(self) -> int:
        """How many the functions have, as the user has run them."""
        return sum(s.seen.equations or 0 for s in self._subjects())

    def left_plain(self, function: str) -> frozenset[str]:
        """Functions that run without jit where a correction for this one is tried: under `%%jitcheck` those that can't
        be compiled as they are, or would be wrong."""
        checkers = {} if self.run.request.settings.compile else self.run.checkers
        others = {t: c.seen for t, c in checkers.items() if c.name != function}
        return frozenset(
            t for t, s in others.items() if s.is_wrong or any(c.outcome == "failed" for c in s.calls)
        )

    def under_magic(self, attempt: Attempt, plain: Collection[str] = ()) -> Examined:
        """As the user would run it, with what is found; under `%%jitcheck`, what is for jit is compiled too, but for
        what is to stay `plain`. Raises OutOfTime, ValueError for a magic line that is none."""
        if self.run.beginning is None or not self.run.beginning.can_be_left:
            return self._under_magic(attempt, plain)
        with self.run.beginning.rewound(), quiet.held_back():  # until all goes that the run has made
            examined = self._under_magic(attempt, plain)
            self.run.beginning.left.append(examined)
            return examined

    def let_go(self) -> bool:
        """End unseen what runs have left that acts when it goes; whether there may be such."""
        return self.run.beginning is not None and self.run.beginning.let_go()

    def _under_magic(self, attempt: Attempt, plain: Collection[str]) -> Examined:
        if self._uses_up(attempt) and self.run.beginning is not None and self.run.beginning.holds_arrays:
            raise ValueError(USED_UP)
        request, tree = self._request(attempt), parsed(masked(attempt.cell))
        source = replace(self.run.source, text=attempt.text, body=attempt.cell, magic=attempt.magic)
        run = Run(request, source, taken(request, tree), later=list(attempt.later))
        watching = Watching(run, self.names, tree, plain=plain)
        waits = Waits(unasked=True)
        with self.in_time(), recording(run.checkers.values()), stages.counted() as counted:
            spared: list[Callable[[], None]] = []

            def begin() -> None:
                if self._uses_up(attempt) and self.run.beginning is not None:
                    spared.append(self.run.beginning.spare())
                watching.begin()

            def last() -> tuple[()]:
                if self._uses_up(self.original):  # the cell as it is means to, too
                    for renew in spared:
                        renew()
                return _settled(run)

            with waits if any(c.seen.waits for c in self.run.checkers.values()) else contextlib.nullcontext():
                ran = self._play(attempt, first=begin, bound=watching.bound, last=last)
            checkers = list(run.checkers.values())
            for checker in checkers[:1]:
                checker.seen.waits = waits.facts()
            large = rules.Thresholds(large_constant=request.settings.large_constant)
            facts = tuple(map(evidence_of, checkers))
            found = [f for e in facts for f in rules.run(e, large)]
        return Examined(
            ran, rules.select(found), facts, sum(c.seen.traces for c in checkers),
            _equations(checkers), sum(e[0] == stages.COMPILE for e in counted.events),
        )  # fmt: skip

    def _play(self, attempt: Attempt, **how: Any) -> Ran:
        above = int(attempt.magic.startswith("%%"))
        return self._played(attempt.cell, attempt.later, lines_above=above, **how)

    def _played(self, cell: str, later: Sequence[str], **how: Any) -> Ran:
        assert self.run.beginning is not None
        with allowing(self.run.request.settings.rerun):
            return play(self.run.beginning, cell, later, **how)

    def _request(self, attempt: Attempt) -> Request:
        """What the magic line of an attempt asks for, with nothing measured. Raises ValueError."""
        request = self.run.request
        if attempt.magic != self.original.magic:
            try:
                request = self.request_of(attempt.magic)
            except Exception as exc:  # IPython's UsageError, which this room does not know
                raise ValueError(f"{attempt.magic}: {exc}") from exc
        compiled = request.settings.compile or not _compiles(attempt)
        long = any(c.compiles_long for c in self.run.checkers.values())
        settings = replace(
            request.settings, time=False, measure=False, rehearse=False, compile=compiled, long_programs=long
        )
        return replace(request, settings=settings)


def _equations(subjects: Iterable[Subject]) -> int:
    return sum(s.seen.equations or 0 for s in subjects)


def _compiles(attempt: Attempt) -> bool:
    """The cell, or one after it, compiles something by itself."""
    return any(uses_jit(parsed(masked(s))) for s in (attempt.cell, *attempt.later))


def _settled(run: Run) -> tuple[()]:
    """Nothing more to show; asked first is what a further run of the functions would leave alone."""
    for checker in run.checkers.values():
        with contextlib.suppress(Exception):
            settle(checker)
    return ()


class CallReruns(CellReruns):
    """Runs the definitions of a cell as the notebook is now, and the calls of one function that were kept."""

    tested: Literal["cell", "calls"] = "calls"

    def __init__(
        self, run: Run, subject: Subject, names: dict[str, object], request_of: RequestOf, in_time: InTime
    ) -> None:
        source = subject.cell
        later = (*run.source.calls, *run.later)  # corrected too, but not run
        run = Run(run.request, source, run.targets)
        super().__init__(run, names, request_of, in_time)
        self.subject, self.function, self.samples = subject, subject.bound_as, subject.seen.samples
        self.original = Attempt(source.magic, source.body, later)
        self.values: dict[tuple[int, str], object] = {}
        """What calls pass for new parameters, by the number of the call."""
        run.beginning = Beginning(names, self._definitions(source.body))
        for sample in self.samples:
            run.beginning.reached(subject.reach(sample.args, sample.kwargs))

    def _subjects(self) -> Collection[Subject]:
        return (self.subject,)

    def _uses_up(self, attempt: Attempt) -> bool:
        return bool(self.subject.dyn) and super()._uses_up(attempt)  # arguments are copied

    def obstacle(self) -> str:
        """Why the calls cannot be made again; empty where they can."""
        if not self.samples:
            return "no call was kept"
        return super().obstacle()

    def _definitions(self, cell: str) -> ast.Module:
        """The statements of a cell that define something, in their places."""
        defined = {d.name for d in definitions(parsed(masked(cell)))}
        kept = [s for s in parsed(masked(cell)).body if _defines(s, defined)]
        return ast.Module(kept, [])

    def _play(self, attempt: Attempt, *, last: Callable[[], Iterable[Any]] = tuple, **how: Any) -> Ran:
        text = Text(attempt.cell)
        kept = self._definitions(attempt.cell).body
        gone = {
            n
            for s in text.tree.body
            if s not in kept
            for n in range(s.lineno, (s.end_lineno or s.lineno) + 1)
        }
        lines = ["\n" if i in gone else line for i, line in enumerate(text.lines, 1)]
        above = int(attempt.magic.startswith("%%"))
        called = partial(self._called, dict(attempt.passed), super()._uses_up(attempt))
        return self._played(
            "".join(lines), (), last=lambda: itertools.chain(called(), last()),
            lines_above=above, **how,
        )  # fmt: skip

    def _called(self, passed: Mapping[str, str], donates: bool) -> Iterator[object]:
        """The results of the calls that were kept, with what they pass for new parameters. A function that `donates` is
        given copies of the user's arrays to use up."""
        head, _, method = self.function.partition(".")
        holder = self.names[head]
        fn: Any = held_by(holder).get(method) if method else holder
        for number, sample in enumerate(self.samples):
            given = sample.args, sample.kwargs | self._more(number, fn, passed)
            args, kwargs = jax.tree.map(_copied, given) if donates else given
            with contextlib.ExitStack() as stack:
                for value in _objects((args, kwargs)):
                    kind = self.names.get(type(value).__name__)
                    if isinstance(kind, type) and is_user_class(kind) and kind is not type(value):
                        stack.enter_context(_of_class(value, kind))
                yield fn(*args, **kwargs)

    def given(self) -> Iterator[object]:
        """Objects that the calls are given, and those in them."""
        for sample in self.samples:
            yield from _objects((sample.args, sample.kwargs))

    def _more(self, number: int, fn: Callable[..., object], passed: Mapping[str, str]) -> dict[str, object]:
        """What the call of this number passes for new parameters: the same in each run."""
        sample = self.samples[number]
        for code in passed.values():
            if (number, code) not in self.values:
                call = inspect.signature(fn).bind_partial(*sample.args, **sample.kwargs)
                call.apply_defaults()
                self.values[number, code] = eval(code, dict(self.names), call.arguments)
        return {name: self.values[number, code] for name, code in passed.items()}


def _copied(value: object) -> object:
    return value.copy() if isinstance(value, jax.Array) else value


@contextlib.contextmanager
def _of_class(value: object, cls: object) -> Iterator[None]:
    """An object as one of the class that the corrected cell defines."""
    old = type(value)
    with contextlib.suppress(TypeError):  # a tuple, say
        object.__setattr__(value, "__class__", cls)
    try:
        yield
    finally:
        if type(value) is not old:
            object.__setattr__(value, "__class__", old)


def _objects(value: object, seen: dict[int, object] | None = None) -> Iterator[object]:
    """The objects of the user's classes in a value."""
    seen = {} if seen is None else seen
    if id(value) not in seen and len(seen) < MOST:
        seen[id(value)] = value
        if is_user_class(type(value)):
            yield value
        for _, _, inner in children(value):
            yield from _objects(inner, seen)


def _defines(statement: ast.stmt, defined: Collection[str]) -> bool:
    """A definition or import; a function made of those that the cell defines; what registers a class."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return True
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Assign):
        of_functions = isinstance(value, ast.Call) and any(
            isinstance(n, ast.Name) and n.id in defined for a in value.args for n in ast.walk(a)
        )
        return isinstance(value, ast.Lambda) or of_functions and not _calls_own(value, defined)
    called = getattr(getattr(value, "func", None), "attr", "")
    return isinstance(statement, ast.Expr) and (called.startswith("register_") or called.startswith("def"))


def _calls_own(node: ast.AST | None, defined: Collection[str]) -> bool:
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call)) if node is not None else ()
    return any(isinstance(c.func, ast.Name) and c.func.id in defined for c in calls)


def verifier_of(
    run: Run, names: dict[str, object], request_of: RequestOf, deadline: float, earlier: Collection[str] = ()
) -> Verifier:
    """What proves corrections of a cell until a deadline (by `prove.clock`)."""
    told = [f for c in run.checkers.values() for f in told_of(c)]
    reruns = CellReruns(run, names, request_of, _until(deadline), earlier)
    reruns.half_the_time = lambda: within(max(0.0, deadline - budget.clock()) / 2)
    return Verifier(reruns, told)


def verifier_on_calls(
    run: Run, subject: Subject, names: dict[str, object], request_of: RequestOf, deadline: float
) -> Verifier:
    """What tests corrections of a function on the calls that were kept of it."""
    return Verifier(CallReruns(run, subject, names, request_of, _until(deadline)), told_of(subject))


def verifier_of_function(subject: Subject, deadline: float) -> Verifier:
    """What tests corrections of a function that no cell with a magic has defined, on the calls that were kept."""
    line = magic_of(subject)
    request = _asked(subject, line)
    source = CellSource(subject.cell.text, subject.cell.body, magic=line)
    names = dict(subject.namespace)
    head, _, method = subject.bound_as.partition(".")
    if not method:
        names[head] = subject.fn
    run = Run(request, source, request.functions)
    reruns = CallReruns(run, subject, names, partial(_asked, subject), _until(deadline))
    reruns.original = replace(reruns.original, magic=line)
    return Verifier(reruns, told_of(subject))


def magic_of(subject: Subject) -> str:
    """The magic line that would ask for a function as it is compiled now."""
    options, line = subject.options, f"%%jit -f {subject.bound_as}"
    for flag, values in (
        ("--static", options.static_argnames), ("--static-argnums", options.static_argnums),
        ("--donate", options.donate_argnames), ("--donate-argnums", options.donate_argnums),
    ):  # fmt: skip
        line = with_option(line, flag, tuple(map(str, values)))
    return with_option(line, "--dyn", split_paths(subject.dyn)) if subject.dyn else line


def _asked(subject: Subject, line: str) -> Request:
    """What such a line asks for."""
    numbers = {key: tuple(map(int, option_of(line, f"--{key}-argnums"))) for key in ("static", "donate")}
    options = JitOptions.of(
        static_argnames=option_of(line, "--static") or None, static_argnums=numbers["static"] or None,
        donate_argnames=option_of(line, "--donate") or None, donate_argnums=numbers["donate"] or None,
    )  # fmt: skip
    dyn = ",".join(option_of(line, "--dyn")) or None
    return Request(
        "jit", tuple(functions_of(line)), (), options, dyn, replace(subject.settings, compile=True)
    )


def _until(deadline: float) -> InTime:
    return lambda: within(max(0.0, deadline - budget.clock()))
