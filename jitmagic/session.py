"""What this notebook knows: the watched functions, the cell that runs, the last exception.

One `Session` per shell, made when the extension is loaded. It decides which functions of a cell are watched
and when a report is shown; what is in the report is decided elsewhere.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import html
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from jitmagic import cell as cells
from jitmagic import frontend
from jitmagic.arrival import Arrival
from jitmagic.options import JitOptions
from jitmagic.settings import CellSource, Settings
from jitmagic.watched import compiled_already

if TYPE_CHECKING:
    from jitmagic import checking
    from jitmagic.report import Finding, FunctionReport, Report


@dataclass(frozen=True)
class Request:
    """What one magic line asks for."""

    kind: str
    """`jit` or `jitcheck`."""
    functions: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    options: JitOptions = JitOptions()
    dyn: str | None = None
    settings: Settings = Settings()
    off: bool = False
    quiet: bool = False
    give_back: bool = False
    store_in: str | None = None
    save: str | None = None
    compare: str | None = None
    """A saved report to compare the timings with."""
    fix: bool = False
    widget: bool = False


@dataclass
class Run:
    """One `%%jit` or `%%jitcheck` cell: what it asked for and what it defined."""

    request: Request
    source: CellSource
    targets: tuple[str, ...]
    checkers: dict[str, checking.Checker] = field(default_factory=dict)
    earlier: dict[str, tuple[FunctionReport, str]] = field(default_factory=dict)
    """What an earlier run of the same functions gave, and what that run is called."""


@dataclass
class Running:
    """The cell that the shell is executing now."""

    source: str = ""
    id: str | None = None
    tree: ast.Module | None = None
    run: Run | None = None
    """Set by the magic in this cell."""
    shown: Any = None
    """Handle of the run's one display in this cell: progress first, then the report."""
    report: Report | None = None
    """What that display shows; None while there is only progress."""
    news: list[checking.Checker] = field(default_factory=list)
    compiling: set[str] | None = None
    """Functions of the cell that compile something by themselves, once somebody has asked."""


_sessions: list[Session] = []


def current() -> Session:
    """The session of the loaded extension; raises LookupError where it is not loaded."""
    if not _sessions:
        raise LookupError("the jitmagic extension is not loaded")
    return _sessions[-1]


def name_bound(names: Sequence[str]) -> None:
    """Called by the cell's own code after a statement that binds these names."""
    if _sessions:
        _aside("the look at what the cell defines", _sessions[-1].names_bound, names)


def _aside(what: str, step: Callable[..., None], *args: Any) -> None:
    """A step of ours beside the user's cell: where it fails, one line says so and the cell goes on."""
    try:
        step(*args)
    except UsageError:
        raise
    except Exception as exc:
        from jitmagic import subject
        from jitmagic.render import escape

        if subject.RAISE:
            raise
        text = escape.one_line(f"{type(exc).__name__}: {_text_of(exc)[:300]}")
        print(f"jitmagic: {what} itself failed ({text})", file=sys.stderr)


def _text_of(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception:  # an exception that cannot be written
        return ""


class Session:
    """The state of the extension in one shell."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.running = Running()
        self.last: Run | None = None
        self.last_error: BaseException | None = None
        self.always = False
        self.sources: list[str] = []
        """Sources of the cells that ran, for what the notebook rebinds; the newest 200."""
        self.panels: list[Any] = []
        """The newest panels of `-w`, which tell when a cell keeps the kernel busy."""
        self.watcher: Any = None
        """Hears which functions jax compiles, from the first cell with a magic on."""
        self.runs: dict[tuple[Any, ...], list[FunctionReport]] = {}
        """The functions that each cell timed when it last ran."""
        self.ledger: Any = None
        """Every trace and compilation since jax was imported, by cell."""
        self.arrival = Arrival("jax", self._keep_ledger)

    # -- the shell's events

    def open(self) -> None:
        """Hook into the shell."""
        _sessions.append(self)
        self.arrival.wait()
        self.shell.events.register("pre_run_cell", self.before_cell)
        self.shell.events.register("post_run_cell", self.after_cell)
        self.shell.ast_transformers.append(self)
        transforms = self.shell.input_transformer_manager.cleanup_transforms
        names = [getattr(t, "__name__", "") for t in transforms]
        transforms.insert(names.index("cell_magic") if "cell_magic" in names else 0, cells.to_line_magic)

    def close(self) -> None:
        """Leave the shell as it was; functions that were compiled stay compiled, unwatched."""
        self.arrival.stop()
        for listener in (self.watcher, self.ledger):
            if listener is not None:
                listener.stop()
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
        _aside("the look at what the cell hands over", self._give_back, self.running.tree)
        return cells.instrument(tree)

    def _give_back(self, tree: ast.Module) -> None:
        """What an earlier cell had compiled, and this one hands to jax or uses as a decorator, is the user's again."""
        from jitmagic.watched import Watched

        for name in cells.not_for_jit(tree):
            held = self.shell.user_ns.get(name)
            if isinstance(held, Watched):
                self.shell.user_ns[name] = held._checker.original

    def before_cell(self, info: Any) -> None:
        """A cell begins."""
        _settled()
        source = getattr(info, "raw_cell", "") or ""
        self.running = Running(source, getattr(info, "cell_id", None))
        self.sources = [*self.sources[-199:], source]
        _aside("the start of the cell", self._settle_panels, True)

    def _keep_ledger(self) -> None:
        """Listen to every compilation from the moment that jax is there."""
        if self.ledger is not None or "jax" not in sys.modules:
            return
        from jitmagic import quiet
        from jitmagic.tracing.ledger import Ledger

        self.ledger = Ledger(self._cell_number, quiet.is_ours)
        self.ledger.start()

    def _cell_number(self) -> int | None:
        """Number of the running cell, as in `Out[7]`; the shell's own count may be one ahead by now."""
        return getattr(self.shell.displayhook, "prompt_count", None)

    def timeline(self) -> Report:
        """Every trace and compilation of the session, as a report. Raises UsageError before jax is imported."""
        from jitmagic import checking

        self._keep_ledger()
        if self.ledger is None:
            raise UsageError("--session: jax is not imported yet, so nothing was traced or compiled")
        return replace(checking.assemble([]), session=self.ledger.session())

    def after_cell(self, result: Any) -> None:
        """A cell has ended: the calls of its magic line, the report, what it returns."""
        error = result.error_in_exec or result.error_before_exec
        run, tree = self.running.run, self.running.tree
        _aside("the end of the cell", self._settle_panels, False)
        if error is not None and not isinstance(error, UsageError):
            _aside("the look at the error", self._failed_with, error)
        if run is not None and tree is not None and tree.body:
            _aside("the look at what the cell defines", self.names_bound, cells.bound_names(tree.body[-1]))
        if run is not None and error is None:
            self._run_calls(run, result)
        _aside("the report", self._show_all, error, run)
        if run is not None:
            for step in (
                lambda: self._keep_run(run),
                lambda: self._hand_out(run, result),
                lambda: self._panels(run),
            ):
                _aside("the report", step)
        self.running.run = None

    def _settle_panels(self, busy: bool) -> None:
        self._keep_ledger()
        for panel in self.panels:
            panel.kernel_busy(busy)

    def _show_all(self, error: BaseException | None, run: Run | None) -> None:
        if error is not None and not self._told() and (self.always or _shows(run)):
            self._post_mortem(error)
        self._show_pending()
        if self.running.shown is not None and self.running.report is None:
            self.running.shown.update({"text/plain": "", "text/html": ""}, raw=True)

    def _failed_with(self, error: BaseException) -> None:
        """Remember the error for the post-mortem; what came of an error of jax's does not hide it."""
        from jitmagic.postmortem import is_jax_error

        jax_loaded = "jax" in sys.modules
        if self.last_error is None or not jax_loaded or is_jax_error(error):
            self.last_error = error
        elif not is_jax_error(self.last_error):
            self.last_error = error

    def _told(self) -> bool:
        """A watched function has told of a failed call in this cell."""
        run = self.running.run
        watched = [*self.running.news, *(run.checkers.values() if run is not None else ())]
        return any(call.outcome == "failed" for c in watched for call in c.seen.calls[-1:])

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
            self.shell.last_execution_succeeded = False
            self.shell.showtraceback()

    def _hand_out(self, run: Run, result: Any) -> None:
        """`-o`, `-v` and `--save`."""
        request = run.request
        if not (request.give_back or request.store_in or request.save or request.fix):
            return
        report = self.report()
        if request.store_in:
            self.shell.user_ns[request.store_in] = report
        if request.save:
            from jitmagic.render import save

            save(report, request.save)
        if request.fix:
            self._put_below(run, report, bool(result.error_in_exec))
        if request.give_back:
            result.result = report
            with self.shell.display_trap:
                self.shell.displayhook(report)

    def _put_below(self, run: Run, report: Report, failed: bool) -> None:
        """`--fix`: the corrected cell, without that option, in a new cell below."""
        from jitmagic.correction import corrected

        fixes = [x for f in report.findings if f.severity != "note" for x in f.fixes if x.verified]
        source = run.source.text
        texts = [corrected(source, x) for x in sorted(fixes, key=lambda x: x.cell is None)]
        text = next((t for t in texts if t != source), None)
        if text is not None:
            text = re.sub(r"(?m)^(%%?jit\w*.*?) --fix(?=\s|$)", r"\1", text)
            self.shell.set_next_input(text)
            if failed and self._live():
                frontend.insert_below(run.source.id, source, text)

    def _panels(self, run: Run) -> None:
        """`-w`: a panel, in a display of its own, for each function that was called."""
        if not run.request.widget:
            return
        from IPython.display import display

        from jitmagic.panel import Panel

        called = [c for c in run.checkers.values() if c.seen.samples]
        for checker in called:
            panel = Panel(checker)
            self.panels = [*self.panels[-7:], panel]
            display(panel.widget)
        if not called:
            print("the panel needs a call: put one in the cell or on the magic line, as in %%jit -w f(x)")

    # -- a magic line

    def begin(self, request: Request) -> None:
        """A `%%jit` or `%%jitcheck` cell begins. Raises UsageError where it can't be done."""
        tree = self.running.tree or ast.Module([], [])
        index = cells.magic_index(tree)
        after = ast.Module(tree.body[index + 1 :] if index is not None else [], [])
        targets = self._targets(request, after)
        self._check_paths(request, after)
        text = self.running.source
        body = cells.body_of(text)
        source = CellSource(
            text, body, None, self.running.id, cells.magic_line_of(text), tuple(request.calls)
        )
        self.last = self.running.run = Run(request, source, targets, earlier=self._earlier(request, targets))
        self.last_error = None  # what failed before is no news of this cell
        present = [n for n in request.functions if n.partition(".")[0] not in cells.top_level_names(after)]
        self._listen()
        for name in present:
            self._watch(name)
        if not request.functions:
            used = {n.id for n in ast.walk(after) if isinstance(n, ast.Name)}
            calls = (ast.parse(call) for call in request.calls)
            self._watch_compiled(used | {n.id for c in calls for n in ast.walk(c) if isinstance(n, ast.Name)})

    def _earlier(self, request: Request, targets: Sequence[str]) -> dict[str, tuple[FunctionReport, str]]:
        """Earlier timings of these functions: of the file that is compared with, else of the last run of the cell."""
        path = request.compare or (request.save if (request.save or "").lower().endswith(".json") else None)
        if path is not None:
            from jitmagic.render import load

            try:
                saved = load(path)
            except (OSError, ValueError) as exc:
                if request.compare:
                    raise UsageError(f"--compare {path}: {exc}") from None
            else:
                return {f.name: (f, f"the run in {path}") for f in saved.functions}
        known = self.runs.get(self._place(targets))
        return {f.name: (f, "the last run of this cell") for f in known} if known else {}

    def _place(self, targets: Sequence[str]) -> tuple[Any, ...]:
        """What stays the same when a cell runs again: its id, or in a terminal the functions it takes."""
        return (self.running.id,) if self.running.id is not None else tuple(targets)

    def _keep_run(self, run: Run) -> None:
        from jitmagic.conclusions import function_report

        timed = [c for c in run.checkers.values() if c.seen.timing.jit is not None]
        if timed:
            self.runs[self._place(run.targets)] = [function_report(c) for c in timed]

    def _listen(self) -> None:
        """Note what jax compiles from now on, for functions that are jitted anew each time."""
        import jax  # noqa: F401  the timeline starts with it

        from jitmagic.silent.events import Watcher

        self._keep_ledger()

        if self.watcher is None:
            self.watcher = Watcher()
        self.watcher.clear()
        self.watcher.start()

    def _targets(self, request: Request, tree: ast.Module) -> tuple[str, ...]:
        """Which functions the cell's magic takes."""
        found = cells.definitions(tree)
        usable = [d.name for d in found if not d.is_generator and not d.is_async]
        bound = cells.top_level_names(tree)
        for name in request.functions:
            head, _, method = name.partition(".")
            known = name in usable or (not method and head in bound) or self._in_namespace(name)
            if not known and not (method and head in bound and not _class_in(tree, head)):
                near = difflib.get_close_matches(name, [*usable, *bound], 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; it defines {_listing(usable)}"
                raise UsageError(f"-f {name}: neither this cell nor the notebook has such a function{hint}")
        if request.functions:
            return request.functions
        of_python = cells.not_for_jit(tree)
        functions = tuple(n for n in usable if "." not in n and n not in of_python)
        used = (self.shell.user_ns.get(n.id) for n in ast.walk(tree) if isinstance(n, ast.Name))
        if (
            not functions
            and of_python.isdisjoint(usable)
            and not request.calls
            and not cells.uses_jit(tree)
            and not any(map(compiled_already, used))
        ):
            methods = [n for n in usable if "." in n]
            hint = f"; methods are chosen by name, as in -f {methods[0]}" if methods else ""
            raise UsageError(f"this cell defines no function to compile{hint}")
        return functions

    def _in_namespace(self, name: str) -> bool:
        head, _, method = name.partition(".")
        value = self.shell.user_ns.get(head)
        return callable(getattr(value, method, None)) if method else callable(value)

    def _check_paths(self, request: Request, tree: ast.Module) -> None:
        """A dynamic variable has to start from a name that somebody binds."""
        from jitmagic.state import paths

        if not request.dyn:
            return
        bound = cells.top_level_names(tree) | set(self.shell.user_ns)
        inner = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        inner |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        for text in paths.split_paths(request.dyn):
            if text == "auto":
                continue
            try:
                root = paths.parse(text).root
            except ValueError as exc:
                raise UsageError(f"--dyn {text}: {exc}") from None
            if root not in bound and root not in inner and not self._may_close_over(request, tree):
                near = difflib.get_close_matches(root, bound, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise UsageError(f"--dyn {text}: neither this cell nor the notebook binds {root!r}{hint}")

    def _may_close_over(self, request: Request, tree: ast.Module) -> bool:
        """A chosen function comes from a call (`f = make()`), so its own closure may bind the name."""
        defined = {d.name for d in cells.definitions(tree)}
        return any(name not in defined for name in request.functions)

    def names_bound(self, names: Iterable[str]) -> None:
        """The running cell has bound these names: take the functions that its magic asked for."""
        run = self.running.run
        if run is None or run.request.off:
            return
        for target in run.targets:
            if target.partition(".")[0] in names:
                self._watch(target)
        if not run.request.functions:
            self._watch_compiled(names)

    def _watch_compiled(self, names: Iterable[str]) -> None:
        """Watch what the user's own code has compiled under these names: `g = jax.jit(f)`, methods of a class."""
        for name in names:
            value = self.shell.user_ns.get(name)
            if compiled_already(value):
                self._watch(name, own=True)
            elif isinstance(value, type) and value.__module__ == "__main__":
                for method, held in list(vars(value).items()):
                    if compiled_already(held):
                        self._watch(f"{name}.{method}", own=True)

    def _watch(self, target: str, *, own: bool = False) -> None:
        """Put the watched form of a function or method where the function was; `own`: it is compiled already,
        and goes on running as it is."""
        from jitmagic import checking
        from jitmagic.watched import Watched

        run = self.running.run
        head, _, method = target.partition(".")
        holder = self.shell.user_ns.get(head)
        fn = holder.__dict__.get(method) if method and isinstance(holder, type) else holder
        if run is None or fn is None or isinstance(fn, Watched) or isinstance(fn, type) or not callable(fn):
            return
        request = run.request
        settings = self._settings_for(target, request)
        checker = checking.Checker(
            fn, _known_as(target, fn) if own else target,
            options=None if own else request.options, dyn=None if own else request.dyn,
            namespace=self.shell.user_ns, settings=replace(settings, compile=False) if own else settings,
            cell=run.source, on_news=self._news, progress=self._progress(target),
        )  # fmt: skip
        checker.call_source = self._call_source
        checker.reported = lambda: self.last is not None and not self.last.request.quiet
        checker.history = lambda: self._cells_after(checker.cell.text)
        checker.seen.earlier = run.earlier.get(target)
        run.checkers[target] = checker
        watched = Watched(fn, checker)
        if method:
            setattr(holder, method, watched)
        else:
            self.shell.user_ns[head] = watched

    def _cells_after(self, text: str) -> list[str]:
        """Sources of the cells that ran after the newest one of this text, those with magics left out."""
        last = max((i for i, s in enumerate(self.sources) if s == text), default=len(self.sources))
        return [s for s in self.sources[last + 1 :] if not s.lstrip().startswith(("%", "!"))]

    def _settings_for(self, target: str, request: Request) -> Settings:
        """Under `%%jitcheck`, what a function jits by itself is watched as it runs: the whole is not for jit."""
        tree = self.running.tree
        if request.kind == "jit" or tree is None:
            return replace(request.settings, diagnose=True)
        if self.running.compiling is None:
            self.running.compiling = cells.compile_inside(tree)
        return replace(request.settings, diagnose=target not in self.running.compiling)

    def _call_source(self) -> tuple[str, str | None]:
        return self.running.source, self.running.id

    # -- what is shown

    def _news(self, checker: checking.Checker) -> None:
        """Something new was seen; shown at once in a kernel, at the end of the cell in a terminal."""
        from jitmagic.tracing.compat import trace_state_clean

        if checker not in self.running.news:
            self.running.news.append(checker)
        failed = bool(checker.seen.calls) and checker.seen.calls[-1].outcome == "failed"
        if trace_state_clean() and (failed or self._live()):
            self._show_pending()

    def _live(self) -> bool:
        """Displays can be updated in place."""
        return getattr(self.shell, "kernel", None) is not None

    def _show_pending(self) -> None:
        news = self.running.news
        owner = self.last
        if not news or owner is None:
            return
        if owner.request.quiet or (owner.request.give_back and self.running.run is owner):
            news.clear()
            return
        from IPython.display import display

        from jitmagic import checking

        report = checking.assemble(news)
        self.running.report = report
        if self._live() and self.running.shown is not None:
            self.running.shown.update(report)
        else:
            self.running.shown = display(report, display_id=True)
        if not self._live():
            news.clear()

    def _progress(self, name: str) -> Any:
        from jitmagic import progress

        def shown(stage: str) -> Any:
            last = self.ledger.last(name, stage) if self.ledger is not None else None
            before = f" ({last:.0f} s last time)" if last is not None and last >= 1 else ""
            return progress.shown(f"{name}: {stage}", self._quiet, self._tell, before)

        return shown

    def _tell(self, line: str | None) -> None:
        """Progress in the run's display, below the report where one is there; nothing moves when it goes."""
        from IPython.display import display

        running = self.running
        if line is None and running.report is None:
            return  # the report will stand there, or after_cell clears it
        bundle = running.report._repr_mimebundle_() if running.report is not None else {"text/plain": ""}
        if line is not None:
            words = f'<div style="opacity:0.75">{html.escape(line)}</div>'
            bundle |= {"text/plain": f"{bundle['text/plain']}\n{line}".strip("\n"),
                       "text/html": bundle.get("text/html", "") + words}  # fmt: skip
        if running.shown is None:
            running.shown = display(bundle, raw=True, display_id=True)
        else:
            running.shown.update(bundle, raw=True)

    def _quiet(self) -> bool:
        return bool(self.last and self.last.request.quiet)

    def report(self) -> Report:
        """Everything known since the last cell with a magic."""
        from jitmagic import checking

        run = self.last
        if run is None:
            return self._with_leftovers(checking.assemble([]), self.sources)
        checkers = _shown(list(run.checkers.values()))
        start = max((i for i, s in enumerate(self.sources) if s == run.source.text), default=0)
        known = self._with_leftovers(checking.assemble(checkers, run.source), self.sources[start:])
        return self._with_compilations(known, checkers)

    def _with_leftovers(self, known: Report, sources: Sequence[str]) -> Report:
        """The report with what these cells make and do not use."""
        from jitmagic import leftover, subject

        try:
            found = leftover.findings(sources, self.sources, self.shell.user_ns)
        except Exception as exc:
            if subject.RAISE:
                raise
            note = f"the search for results that nobody uses itself failed ({type(exc).__name__})"
            return replace(known, notes=(*known.notes, note))
        return replace(known, findings=(*known.findings, *found)) if found else known

    def _with_compilations(self, known: Report, checkers: list[checking.Checker]) -> Report:
        """The report with the places that make compiled functions again and again."""
        from jitmagic import remade

        if self.watcher is None:
            return known
        found = tuple(map(self._corrected, remade.findings(self.watcher.events, checkers)))
        kept = [f for f in known.findings if not any(remade.is_same(f, g) for g in found)]
        return replace(known, findings=tuple([*kept, *found])) if found else known

    def _corrected(self, finding: Finding) -> Finding:
        """A finding about a function that nobody watches, with fixes tried on the whole cell."""
        from jitmagic import evidence as ev
        from jitmagic.postmortem import with_fixes

        run = self.last
        if finding.fixes or run is None or finding.span is None or finding.span.cell is not None:
            return finding
        function = ev.Function(finding.function, "", "", 0, cell=run.source.body)
        return with_fixes(
            (finding,), ev.Evidence(function), run.source.text, self.sources, self.shell.user_ns
        )[0]

    # -- single calls and exceptions

    def check_call(self, text: str, request: Request) -> Report:
        """Diagnose one call of any function of the notebook. Raises UsageError for anything but a call."""
        from jitmagic import checking

        try:
            node = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as exc:
            raise UsageError(f"{text.strip()!r} is no call that Python can read: {exc.msg}") from None
        if not isinstance(node, ast.Call):
            raise UsageError(f"{text.strip()!r} is no call; write it as it would stand in a cell, f(x, 3)")
        fn, args, kwargs = self._evaluate(node)
        name = ast.unparse(node.func)
        inner = getattr(fn, "_checker", None)
        checker = checking.Checker(
            inner.fn if inner is not None else fn, name, options=request.options, dyn=request.dyn,
            namespace=self.shell.user_ns, settings=request.settings,
            cell=inner.cell if inner is not None else CellSource(),
        )  # fmt: skip
        checker.seen.count = 1
        checker.call_source = lambda: (text, self.running.id)
        checker.check(args, kwargs)
        self.last = Run(request, checker.cell, (name,), {name: checker})
        return self.report()

    def _evaluate(self, node: ast.Call) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Function and arguments of a call, evaluated in the notebook's names."""
        ns = self.shell.user_ns

        def value(n: ast.expr) -> Any:
            return eval(compile(ast.fix_missing_locations(ast.Expression(n)), "<jitcheck call>", "eval"), ns)

        args: list[Any] = []
        for a in node.args:
            args += list(value(a.value)) if isinstance(a, ast.Starred) else [value(a)]
        kwargs: dict[str, Any] = {}
        for k in node.keywords:
            kwargs |= {k.arg: value(k.value)} if k.arg else dict(value(k.value))
        return value(node.func), tuple(args), kwargs

    def post_mortem(self) -> Report | None:
        """The report of the last exception, where jax raised it while tracing."""
        error = self.last_error
        if error is None:
            return None
        from jitmagic.postmortem import report_of

        return report_of(error, self.sources, self._subjects(), self.shell.user_ns)

    def _post_mortem(self, error: BaseException) -> None:
        from IPython.display import display

        from jitmagic.postmortem import report_of

        report = report_of(error, self.sources, self._subjects(), self.shell.user_ns)
        if report is not None:
            display(report)

    def _subjects(self) -> list[checking.Checker]:
        return list(self.last.checkers.values()) if self.last is not None else []


def _settled() -> None:
    """What an interrupt has cut short is put right before the next cell, unless a run of ours runs that cell."""
    quiet = sys.modules.get("jitmagic.quiet")
    frame: Any = sys._getframe(1)
    while quiet is not None and frame is not None:
        room = str(frame.f_globals.get("__name__", ""))
        if room.startswith("jitmagic.") and room not in (__name__, "jitmagic.magics"):
            return
        frame = frame.f_back
    if quiet is not None:
        quiet.reset()


def _shown(checkers: list[checking.Checker]) -> list[checking.Checker]:
    """All but plain functions that were called through their compiled form only."""
    called = [c.fn for c in checkers if c.seen.count]
    return [c for c in checkers if c.seen.count or c.fn not in called]


def _shows(run: Run | None) -> bool:
    """The magic of this cell asked for a report on the screen."""
    return run is not None and not run.request.quiet and not run.request.give_back


def _known_as(target: str, fn: Any) -> str:
    """The name of the function inside what is compiled, where the source has one."""
    name = getattr(fn, "__name__", "")
    return target if "." in target or not str(name).isidentifier() else str(name)


def _copy(tree: ast.Module) -> ast.Module:
    return ast.Module(list(tree.body), [])


def _class_in(tree: ast.Module, name: str) -> bool:
    return any(isinstance(n, ast.ClassDef) and n.name == name for n in tree.body)


def _listing(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) or "no function"
