"""One `NotebookSession` per shell, made when the extension is loaded. It hears when a cell begins and ends; which
functions are watched, what is shown and what a report holds is decided in the modules here."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.interactiveshell import ExecutionResult

from jitmagic import listeners
from jitmagic.checking.request import Request, Run, may_be_rerun
from jitmagic.interrupts import alarms_held
from jitmagic.notebook import options_at_end, targets
from jitmagic.notebook.display import Display
from jitmagic.notebook.earlier import Earlier
from jitmagic.notebook.running import Notebook, Running, say
from jitmagic.patches import none_awaited
from jitmagic.settings import CellSource
from jitmagic.source import cell as cells
from jitmagic.source.tree import frames_for, nodes_of

if TYPE_CHECKING:
    from jitmagic.checking.checker import Checker
    from jitmagic.checking.hearing import Hearing
    from jitmagic.trial.beginning import Beginning
    from jitmagic.trial.verify import Verifier

T = TypeVar("T")
MOST_LATER = 40
"""Cells behind one with a magic that are run again with it."""

_sessions: list[NotebookSession] = []
_said: set[str] = set()
"""What has failed in the running cell, and was told."""


def current() -> NotebookSession:
    """The session of the loaded extension; raises LookupError where it is not loaded."""
    if not _sessions:
        raise LookupError("the jitmagic extension is not loaded")
    return _sessions[-1]


def name_bound(names: Sequence[str]) -> None:
    """Called by the cell's own code after a statement that binds these names."""
    if _sessions:
        _aside("the look at what the cell defines", _sessions[-1].names_bound, names)


def _aside(what: str, step: Callable[..., object], *args: object) -> None:
    """A step of ours beside the user's cell: where it fails, one line says so and the cell goes on."""
    try:
        with interruptible(), listeners.paused():
            step(*args)
    except UsageError:
        raise
    except Exception as exc:
        _say(what, exc)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """An interrupt is shown without our frames."""
    try:
        yield
    except KeyboardInterrupt as exc:
        if tracebacks := sys.modules.get("jitmagic.checking.tracebacks"):
            tracebacks.shorten(exc, tuple)
        raise


def asked(what: str, step: Callable[[], T]) -> T | None:
    """What the user has asked us for; where we fail ourselves, one line says so. Errors of the user's are raised."""
    try:
        with interruptible():
            return step()
    except UsageError:
        raise
    except Exception as exc:
        from jitmagic.checking import tracebacks

        if not tracebacks.is_ours(exc):
            tracebacks.shorten(exc, tuple)
            raise
        _say(what, exc)
        return None


def _remember(run: Run, beginning: Beginning) -> None:
    """The cell can be run again from here, unless the user would notice that something lives on for that."""
    from jitmagic.state import ends

    noticed = next((s.noticed for s in beginning.snapshots if s.noticed), "")
    run.beginning = None if noticed else beginning
    run.not_kept = ends.why(noticed) if noticed else ""


def _say(what: str, exc: Exception) -> None:
    from jitmagic.checking import subject
    from jitmagic.render import escape

    if subject.RAISE:
        raise exc
    text = escape.one_line(f"{type(exc).__name__}: {_text_of(exc)[:300]}")
    if text not in _said:
        say(f"jitmagic: {what} itself failed ({text})", file=sys.stderr)
    _said.add(text)


def _afterwards(what: str, step: Callable[..., object], *args: object) -> None:
    """A step of ours behind the user's cell: an interrupt ends it alone."""
    try:
        with alarms_held(), none_awaited():
            _aside(what, step, *args)
    except KeyboardInterrupt:
        say(f"jitmagic: {what} was interrupted", file=sys.stderr)


def _text_of(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception:  # an exception that cannot be written
        return ""


class Limit:
    """Python's limit of recursion: higher where the cell, or one with a magic before it, is nested deeply."""

    def __init__(self) -> None:
        self.before = self.now = self.frames = 0

    def raise_for(self, source: str, tree: ast.Module) -> None:
        """IPython reads the tree of a cell by recursion, as we do with those that have a magic."""
        deep = frames_for(tree) if len(source) > _SHORT else 0
        self.frames = max(self.frames, deep) if "%jit" in source else self.frames
        limit = sys.getrecursionlimit()
        if limit != self.now:  # else the cell runs another one, as `%%time` does
            self.before = limit
        self.now = self.before + max(self.frames, deep)
        sys.setrecursionlimit(self.now)

    def put_back(self) -> None:
        """The cell has ended."""
        if sys.getrecursionlimit() == self.now:
            sys.setrecursionlimit(self.before)


_SHORT = 1200
"""Cells with so few characters are not nested too deeply."""


class NotebookSession(Notebook):
    """The extension in one shell: it hears the shell's events, and keeps what is known of the notebook."""

    def __init__(self, shell: Any, request_of: Callable[[str], Request]) -> None:
        super().__init__(shell, request_of)
        self.display = Display(self)
        self.earlier = Earlier()
        self.limit = Limit()
        self.hearing: Hearing | None = None
        """What hears the calls of those that stay as they are."""

    # -- the shell's events

    def open(self) -> None:
        """Hook into the shell."""
        _forget_made()
        _sessions.append(self)
        self.compilations.arrival.wait()
        self.shell.events.register("pre_run_cell", self.before_cell)
        self.shell.events.register("post_run_cell", self.after_cell)
        self.shell.ast_transformers.append(self)
        transforms = self.shell.input_transformer_manager.cleanup_transforms
        names = [getattr(t, "__name__", "") for t in transforms]
        transforms.insert(names.index("cell_magic") if "cell_magic" in names else 0, cells.to_line_magic)

    def close(self) -> None:
        """Leave the shell as it was; functions that were compiled stay compiled, unwatched."""
        _forget_made()
        for checker in tuple(self.checkers):
            checker.retire()
        if self.hearing is not None:
            from jitmagic.state import ends

            self.hearing.close()
            ends.cell_begins(ast.parse(""))
        if self.running.waits is not None:
            self.running.waits.stop()
        self.compilations.stop()
        self.shell.events.unregister("pre_run_cell", self.before_cell)
        self.shell.events.unregister("post_run_cell", self.after_cell)
        with contextlib.suppress(ValueError):
            self.shell.ast_transformers.remove(self)
        with contextlib.suppress(ValueError):
            self.shell.input_transformer_manager.cleanup_transforms.remove(cells.to_line_magic)
        with contextlib.suppress(ValueError):
            _sessions.remove(self)

    def visit(self, tree: ast.Module) -> ast.Module:
        """IPython's hook for each cell's tree: put our hooks behind the statements after a magic."""
        self.running.tree = ast.parse("") if not isinstance(tree, ast.Module) else _copy(tree)
        self.limit.raise_for(self.running.source, self.running.tree)
        if self.hearing is not None:
            from jitmagic.state import ends

            _aside("the look at what the cell starts from", ends.cell_begins, self.running.tree)
        _aside("the look at what the cell hands over", self._give_back, self.running.tree)
        _aside("the look at what the cell starts from", self._later_cell, self.running.tree)
        _aside("the look at what the cell defines", cells.instrument, tree)
        if self.last is not None and not self.is_live() and cells.magic_index(self.running.tree) is None:
            self._report_first(None)
        if self.hearing is not None:
            if _is_deaf(self.running.tree):
                self.hearing.close()
            read = {n.id for n in nodes_of(self.running.tree) if isinstance(n, ast.Name)}
            _aside("the look at the calls", self.hearing.cell_reads, read)
        return tree

    def before_cell(self, info: object) -> None:
        """A cell begins."""
        with interruptible():
            self._cell_begins(info)

    def _cell_begins(self, info: object) -> None:
        _settled()
        _said.clear()
        if self.running.waits is not None:
            self.running.waits.stop()
        source = getattr(info, "raw_cell", "") or ""
        self.running = Running(source, getattr(info, "cell_id", None))
        self.sources = [*self.sources[-199:], source]
        _aside("the start of the cell", self._settle_panels, True)
        if self.hearing is not None:
            _aside("the start of the cell", self.hearing.cell_begins, self.shell.user_ns)

    def after_cell(self, result: Any) -> None:
        """A cell has ended; without a result where it was interrupted before it began."""
        if result is None:
            result = ExecutionResult(None)
            result.error_before_exec = KeyboardInterrupt()
        try:
            self._cell_ends(result)
        except KeyboardInterrupt:
            say("jitmagic: the end of the cell was interrupted", file=sys.stderr)
        finally:
            self.running.run = None
            if tracebacks := sys.modules.get("jitmagic.checking.tracebacks"):
                tracebacks.end_of_cell()
            self.limit.put_back()

    def _cell_ends(self, result: Any) -> None:
        """The calls of its magic line, the report, what it returns."""
        error = result.error_in_exec or result.error_before_exec
        run, tree = self.running.run, self.running.tree
        _aside("the end of the cell", self._settle_panels, False)
        if error is not None and not isinstance(error, UsageError):
            _afterwards("the look at the error", self._failed_with, error)
        if run is not None and tree is not None and tree.body:
            _aside("the look at what the cell defines", self._bound_last, tree.body[-1])
        if run is not None and error is None:
            self._run_calls(run, result)
        if run is not None or not self.running.is_over:
            self._calls_end(result.error_in_exec)
        if not self.running.is_over:
            unused = self.last is None and not self.always and error is None  # nothing of ours runs then
            (_aside if unused else _afterwards)("the report", self.display.end_of_cell, error, run)
        if run is not None:
            _afterwards(
                "the report", self.earlier.keep, run, self.running.place(run.targets), self.running.report
            )
            _afterwards("the report", options_at_end.hand_out, self, run, result)
            _afterwards("the report", options_at_end.show_panels, self, run)
        if run is not None and tree is not None and cells.deletes(tree):
            self._loosen_calls()

    def _calls_end(self, error: BaseException | None) -> None:
        if self.hearing is not None:
            _aside("the look at the calls", self.hearing.cell_ends, error)

    def _settle_panels(self, busy: bool) -> None:
        self.compilations.listen()
        for panel in self.panels:
            panel.kernel_busy(busy)

    def _failed_with(self, error: BaseException) -> None:
        """Remember the error for the post-mortem; what came of an error of jax's does not hide it."""
        if self.last_error is None or "jax" not in sys.modules:
            self.last_error = error
            return
        from jitmagic.checking.postmortem import is_jax_error

        if is_jax_error(error) or not is_jax_error(self.last_error):
            self.last_error = error

    def _run_calls(self, run: Run, result: Any) -> None:
        """The calls of the magic line, as if they stood at the end of the cell."""
        try:
            for call in run.request.calls:
                with self.shell.builtin_trap:
                    code = compile(call, f"<{run.request.kind} call>", "exec")
                    exec(code, self.shell.user_global_ns, self.shell.user_ns)
        except BaseException as exc:
            result.error_in_exec = exc
            self._failed_with(exc)
            if (tracebacks := sys.modules.get("jitmagic.checking.tracebacks")) and not hasattr(
                exc, "_render_traceback_"
            ):
                tracebacks.shorten(exc, tuple)
            self.shell.last_execution_succeeded = False
            self.shell.showtraceback()

    # -- a magic line

    def begin(self, request: Request, wrong: Sequence[str] = ()) -> None:
        """A `%%jit` or `%%jitcheck` cell begins. Raises UsageError where it can't be done, or where something on its
        line is `wrong`."""
        if self.running.tree is None:
            raise UsageError(
                f"this cell has loaded jitmagic in its middle: run it again for its %{request.kind}"
            )
        _aside("the magic", self._begin, request, wrong)

    def _begin(self, request: Request, wrong: Sequence[str]) -> None:
        from jitmagic.checking import hearing, tracebacks, watching
        from jitmagic.silent.waiting import Waits
        from jitmagic.state import ends

        running, names = self.running, self.shell.user_ns
        after = cells.after_magic(running.tree)
        ends.cell_begins(after)
        chosen = targets.chosen(request, after, names, wrong)
        if (is_deaf := _is_deaf(after)) and request.kind == "jitcheck":
            chosen = ()
        if not request.quiet and (line := targets.none_taken(request, after, chosen, names)):
            say(line)
        earlier = self.earlier.of(request, running.place(chosen))
        if self.last is not None:
            self.last.beginning = None
        source = _source_of(running, request)
        source = replace(source, before_fix=self.earlier.before_fix(source.body))
        self.last = running.run = Run(request, source, chosen, earlier=earlier)
        _aside("the look at what the cell starts from", self._take_beginning, running.run, after)
        self.last_error = None  # what failed before is no news of this cell
        self.compilations.listen_anew()
        running.waits = Waits()
        tracebacks.name_of_cell[:] = [self.cell_name]
        self.hearing = self.hearing or hearing.Hearing()
        hears = self.hearing.add if not is_deaf else lambda checker: True
        running.watching = watching.Watching(running.run, names, after, self._prepare, hears=hears)
        running.watching.begin()
        if not cells.listens(after):
            running.waits.start()
        if not self.is_live() and not request.calls:
            self._report_first(running.run)

    def _report_first(self, run: Run | None) -> None:
        """In a terminal the report stands above `Out[]`, which is the last thing that the cell shows."""
        show = sys.displayhook
        if show is not self.shell.displayhook:  # the cell runs within another
            return

        def report_and_show(value: object) -> None:
            if value is not None and self.shell.ast_node_interactivity.startswith("last_expr"):
                sys.displayhook, self.running.is_over = show, True
                if run is None:
                    self._calls_end(None)
                _afterwards("the report", self.display.end_of_cell, None, run)
            show(value)

        sys.displayhook = report_and_show

    def _bound_last(self, statement: ast.stmt) -> None:
        self.names_bound(cells.bound_names(statement))

    def names_bound(self, names: Sequence[str]) -> None:
        """The running cell has bound these names."""
        if self.hearing is not None:
            self.hearing.wake()
        if self.running.watching is not None:
            self.running.watching.bound(names)

    def _prepare(self, checker: Checker) -> None:
        """What a watched function tells this notebook, and asks it."""
        run = self.running.run
        self.checkers.add(checker)
        checker.on_news, checker.progress = self.display.news, self.display.progress(checker.bound_as)
        checker.postpone = lambda stage, step: self.running.postponed.append((checker, stage, step))
        checker.call_source = lambda: (self.running.source, self.running.id)
        checker.reported = lambda: self.last is not None and not self.is_quiet()
        checker.verifier = lambda deadline: self.verifier_of(run, deadline)
        if checker.settings.what_if:
            from jitmagic.whatif import answers

            checker.what_if = answers
        checker.verifier_on_calls = lambda deadline: self._verifier_on_calls(run, checker, deadline)

    def _take_beginning(self, run: Run, tree: ast.Module) -> None:
        from jitmagic.trial.beginning import Beginning

        with contextlib.suppress(SyntaxError):  # which Python tells when it comes to it
            _remember(run, Beginning(self.shell.user_ns, tree, cells.above_magic(self.running.tree)))

    def _verifier_on_calls(self, run: Run | None, checker: Checker, deadline: float) -> Verifier | None:
        from jitmagic.checking.rerun import verifier_on_calls

        if run is None:
            return None
        return verifier_on_calls(run, checker, self.shell.user_ns, self.request_of, deadline)

    def _later_cell(self, tree: ast.Module) -> None:
        """A cell behind one with a magic, which is run again with that one."""
        run = self.last
        if cells.magic_index(tree) is not None:
            return
        deletes = cells.deletes(tree)  # what it takes out is not to live on in what is remembered
        if deletes or self._asks_what_lives():
            self._loosen_calls()
        if run is None:
            return
        run.later.append(self.running.source)
        if run.beginning is None:
            return
        if not deletes and may_be_rerun(self.running.source) and len(run.later) <= MOST_LATER:
            with contextlib.suppress(SyntaxError):  # nothing of such a cell runs
                run.beginning.add(tree)
                _remember(run, run.beginning)
        else:
            run.beginning = None

    def _asks_what_lives(self) -> bool:
        ends = sys.modules.get("jitmagic.state.ends")
        return ends is not None and bool(ends.asked())

    def _loosen_calls(self) -> None:
        """What the user takes out is not to live on in the calls that are kept."""
        for checker in tuple(self.checkers):
            checker.seen.loosen()

    def _give_back(self, tree: ast.Module) -> None:
        checking = sys.modules.get("jitmagic.checking.watching")
        if checking is not None:
            checking.give_back(self.shell.user_ns, tree)
        if self.hearing is not None:
            self.hearing.forget(cells.not_for_jit(tree))


def _is_deaf(tree: ast.Module) -> bool:
    """Nothing of ours hears the calls of this cell: on Python 3.11 one listener is all that Python tells."""
    return sys.version_info < (3, 12) and cells.listens(tree)


def _source_of(running: Running, request: Request) -> CellSource:
    text = running.source
    return CellSource(
        text, cells.body_of(text), None, running.id, cells.magic_line_of(text), tuple(request.calls)
    )


def _forget_made() -> None:
    """What `jitmagic.jit` has made before is none of this notebook's."""
    if made := sys.modules.get("jitmagic.state.made"):
        made.forget()


def _settled() -> None:
    """What an interrupt has cut short is put right before the next cell, unless a run of ours runs that cell."""
    quiet = sys.modules.get("jitmagic.trial.quiet")
    frame: FrameType | None = sys._getframe(1)
    while quiet is not None and frame is not None:
        room = str(frame.f_globals.get("__name__", ""))
        if room.startswith("jitmagic.") and room not in (__name__, "jitmagic.notebook.magics"):
            return
        frame = frame.f_back
    if quiet is not None:
        quiet.reset()


def _copy(tree: ast.Module) -> ast.Module:
    return ast.Module(list(tree.body), [])
