"""The magics: flags in, calls out. What a flag means is decided elsewhere."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import itertools
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import IPython.display
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import Bool, Float, Int, List, Unicode

from jitmagic.checking.request import Request
from jitmagic.notebook import completion, live_arrays, options_at_end, reports
from jitmagic.notebook.session import NotebookSession, asked, interruptible
from jitmagic.options import JitOptions, find_device
from jitmagic.settings import Settings, WhatIfs
from jitmagic.source import cell as cells

if TYPE_CHECKING:
    from jitmagic.render import Report

_TOKEN = re.compile(r"""(?:[^\s'"\[({]|'[^']*'|"[^"]*"|\[[^\]]*\]|\([^)]*\)|\{[^}]*\}|['"\[({])+""")

_UNKNOWN = "unrecognized arguments: "
"""What argparse writes before the words that it does not know."""

LONGER = 6
"""How many times as long `--search` may look."""

_ARGUMENTS = [
    argument("-f", dest="functions", action="append", metavar="NAME",
             help="which function (f) or method (Model.step) to take; repeatable; default: every top-level "
                  "function of the cell"),
    argument("-d", "--dyn", metavar="PATHS",
             help="dynamic variables: comma-separated names or paths (w,b or l.w or params['w']), or auto"),
    argument("-s", "--static", metavar="NAMES", help="static arguments by name, comma-separated, as in jax.jit"),
    argument("--static-argnums", metavar="N,M", help="static arguments by position"),
    argument("--donate", metavar="NAMES", help="donated arguments or dynamic variables by name"),
    argument("--donate-argnums", metavar="N,M", help="donated arguments by position"),
    argument("--device", metavar="D", help="device to compile for: cpu, gpu:1"),
    argument("--backend", metavar="B", help="backend to compile for"),
    argument("--keep-unused", action="store_const", const=True, help="keep arguments that are not used"),
    argument("--inline", action="store_const", const=True, help="inline the function into outer ones"),
    argument("-n", dest="loops", type=int, metavar="N", help="calls per batch of the timing; default: chosen"),
    argument("-r", dest="repeats", type=int, metavar="R", help="batches of the timing; default: 7"),
    argument("-p", dest="precision", type=int, metavar="P", help="digits of the times shown; default: 3"),
    argument("--no-time", action="store_const", const=True,
             help="no timing loops; the function still runs once without jit, to compare the results"),
    argument("--profile", action="store_const", const=True,
             help="a longer look at the time of each line; with --save the trace is kept beside the report"),
    argument("--rerun", action="store_const", const=True,
             help="whatever the cell calls and changes may run again, to compare, to time and to try fixes"),
    argument("--trace-only", action="store_const", const=True,
             help="nothing runs on real values: no comparison, no timing, no recording run"),
    argument("--search", action="store_const", const=True,
             help="look for corrections, and wait for the run without jit, six times as long"),
    argument("--vmap", metavar="ARGS",
             help="what if: trace, compile and cost the function vmapped over these arguments"),
    argument("--grad", metavar="ARGS", help="what if: the same for the value and gradient for these arguments"),
    argument("--devices", type=int, metavar="N",
             help="what if: the same for the function shared by N devices, virtual ones where there are fewer"),
    argument("--off", action="store_const", const=True,
             help="leave the functions uncompiled for this cell, for breakpoint() and %%debug"),
    argument("-q", dest="quiet", action="store_const", const=True, help="display nothing"),
    argument("-o", dest="give_back", action="store_true", help="return the Report"),
    argument("-v", dest="store_in", metavar="NAME", help="store the Report in NAME"),
    argument("--save", metavar="FILE", help="write the report: .html, .json or .txt by its suffix"),
    argument("--compare", metavar="FILE", help="compare the timings with those of a report saved as .json"),
    argument("--fix", action="store_const", const=True, help="put the corrected cell into a new cell below"),
    argument("-w", "--widget", action="store_const", const=True, help="the interactive panel"),
    argument("--session", action="store_true",
             help="the timeline of every trace and compilation of the session, by cell, with the reason"),
    argument("--memory", action="store_true",
             help="every array that is alive, what keeps it, and what to delete"),
    argument("--explain", metavar="CODE", help="the page of one rule"),
    argument("--cell", action="store_true", help=argparse.SUPPRESS),
    argument("call", nargs="...", metavar="CALL", help="calls to make after the cell, separated by semicolons"),
]  # fmt: skip


def _with_arguments(fn: object) -> Any:
    """All options of the contract's table, in its order."""
    for decorate in reversed(_ARGUMENTS):
        fn = decorate(fn)
    return magic_arguments()(fn)


@magics_class
class JitMagics(Magics):
    """`%%jit` and `%%jitcheck`. Every trait is the default of the option of its name."""

    budget = Float(10.0, help="seconds that extra runs may take").tag(config=True)
    large_constant = Int(1_000_000, help="bytes from which a constant is called large").tag(config=True)
    dyn = Unicode("", help="default of --dyn").tag(config=True)
    static = Unicode("", help="default of --static").tag(config=True)
    static_argnums = Unicode("", help="default of --static-argnums").tag(config=True)
    donate = Unicode("", help="default of --donate").tag(config=True)
    donate_argnums = Unicode("", help="default of --donate-argnums").tag(config=True)
    device = Unicode("", help="default of --device").tag(config=True)
    backend = Unicode("", help="default of --backend").tag(config=True)
    keep_unused = Bool(False, help="default of --keep-unused").tag(config=True)
    inline = Bool(False, help="default of --inline").tag(config=True)
    loops = Int(0, help="default of -n; 0: chosen").tag(config=True)
    repeats = Int(7, help="default of -r").tag(config=True)
    precision = Int(3, help="default of -p").tag(config=True)
    no_time = Bool(False, help="default of --no-time").tag(config=True)
    profile = Bool(False, help="default of --profile").tag(config=True)
    search = Bool(False, help="default of --search").tag(config=True)
    rerun = List(Unicode(), help="names of what may run again too: mylib.*; *: as --rerun").tag(config=True)
    trace_only = Bool(False, help="default of --trace-only").tag(config=True)
    off = Bool(False, help="default of --off").tag(config=True)
    quiet = Bool(False, help="default of -q").tag(config=True)
    fix = Bool(False, help="default of --fix").tag(config=True)
    widget = Bool(False, help="default of -w").tag(config=True)

    session: NotebookSession
    shell: Any
    end_completion: Callable[[], None] = staticmethod(lambda: None)

    @no_var_expand
    @_with_arguments
    @line_cell_magic
    def jit(self, line: str = "", cell: str | None = None) -> Any:
        """Run the cell with its functions compiled by jax.jit, and report what happened.

        In a cell of its own line, `%jit` does the same for what the cell defines after it.

            %%jit f(jnp.ones(3), 2)
            def f(x, n):
                return w * x ** n
        """
        args, request, wrong = self._request("jit", line)
        wrong += [
            f"--{page} belongs to %jitcheck: %jitcheck --{page}"
            for page in ("session", "memory")
            if getattr(args, page)
        ]
        if args.explain and not wrong:
            return self._explain(args.explain)
        return self._begin("jit", line, cell, request, wrong)

    @no_var_expand
    @_with_arguments
    @line_cell_magic
    def jitcheck(self, line: str = "", cell: str | None = None) -> Any:
        """Diagnose functions for jax.jit without replacing or compiling them.

        `%%jitcheck` runs the cell and diagnoses its functions; `%jitcheck f(x)` diagnoses one call;
        `%jitcheck` alone reports everything known since the last such cell, and the last exception where
        jax raised it; `%jitcheck on` and `%jitcheck off` do so for every later cell;
        `%jitcheck --session` shows where the time for compiling went, `%jitcheck --memory` what keeps which
        array; `%jitcheck --explain JM101` shows the page of one rule.
        """
        args, request, wrong = self._request("jitcheck", line)
        if cell is not None or args.cell:
            return self._begin("jitcheck", line, cell, request, wrong)
        _stop(wrong)
        if args.explain:
            return self._explain(args.explain)
        if args.session:
            return self._answer(lambda: self.session.compilations.timeline(), request)
        if args.memory:
            return self._answer(lambda: live_arrays.report_of_memory(self.session), request)
        text = " ".join(args.call) if not args.call else line[-_tail(line, args.call) :]
        if text.strip() in ("on", "off"):
            self.session.always = text.strip() == "on"
            return None
        if text.strip():
            return self._answer(lambda: reports.of_call(self.session, text, request), request)
        if cells.definitions(cells.after_magic(self.session.running.tree)):
            return self._begin("jitcheck", line, cell, request, wrong)
        return self._answer(self._known, request)

    # -- from flags to a request

    def request_of(self, line: str) -> Request:
        """What a whole magic line (`%%jit -f step`) asks for. Raises UsageError."""
        kind, _, rest = line.lstrip("%").partition(" ")
        _, request, wrong = self._request(kind, rest)
        _stop(wrong)
        return request

    @interruptible()
    def _request(self, kind: str, line: str) -> tuple[Any, Request, list[str]]:
        """The parsed line, what it asks for, and what in it can't be meant. Raises UsageError if it can't be read."""
        tokens, wrong = [m.group() for m in _TOKEN.finditer(line)], list[str]()
        parser = getattr(self, kind).parser
        try:
            args = parser.parse_args([*map(_unquoted, tokens)])
        except UsageError as exc:
            said, meant = _with_nearest(str(exc), tokens, parser.format_help())
            try:  # what else is wrong, where the words that are none are those that they are most like
                args = parser.parse_args([_unquoted(w) for t in tokens if (w := meant.get(t, t))])
            except UsageError:
                raise UsageError(said) from None
            wrong.append(said)
        calls: tuple[str, ...] = ()
        if args.call:
            text = line[-_tail(line, args.call) :]
            if args.call[0].startswith("-"):
                raise UsageError("; ".join([*wrong, f"unrecognized option: {args.call[0]}"]))
            if not (kind == "jitcheck" and text.strip() in ("on", "off")):
                calls = _calls(text, wrong)
        return args, self._asked(kind, args, calls, wrong), wrong

    def _asked(self, kind: str, args: Any, calls: tuple[str, ...], wrong: list[str]) -> Request:
        def value(name: str) -> Any:
            given = getattr(args, name)
            return given if given is not None else getattr(self, name) or None

        if args.store_in and not args.store_in.isidentifier():
            wrong.append(f"-v {args.store_in}: not a name that a variable can have")
        if args.save and not args.save.lower().endswith((".html", ".json", ".txt")):
            wrong.append(f"--save {args.save}: the suffix has to be .html, .json or .txt")
        if args.save and not os.path.isdir(os.path.dirname(os.path.expanduser(args.save)) or "."):
            wrong.append(f"--save {args.save}: there is no such directory")
        counts = {
            "-n": value("loops"),
            "-r": value("repeats"),
            "-p": value("precision"),
            "--devices": args.devices,
        }
        wrong += [f"{flag} {n}: has to be 1 or more" for flag, n in counts.items() if n is not None and n < 1]
        for flag, text in (("--vmap", args.vmap), ("--grad", args.grad)):
            if text is not None and not _names(text):
                wrong.append(f"{flag} {text}: takes names of arguments separated by commas, like x,y")
        options = _options(value, wrong)
        budget = self.budget * LONGER if value("search") else self.budget
        settings = Settings(
            time=not value("no_time") and kind == "jit", loops=value("loops"),
            repeats=value("repeats") or 7,
            timing_budget=self.budget if args.repeats or value("loops") else Settings.timing_budget,
            profile=bool(value("profile")), trace_directory=_beside(args.save) if value("profile") else None,
            digits=value("precision") or 3, budget=budget,
            compare_budget=budget if value("search") else min(budget, Settings.compare_budget),
            large_constant=self.large_constant,
            trace_only=bool(value("trace_only")), rehearse=not value("trace_only"), compile=kind == "jit",
            rerun=("*",) if args.rerun else tuple(self.rerun),
            what_if=WhatIfs(_names(args.vmap), _names(args.grad), args.devices),
        )  # fmt: skip
        return Request(
            kind, tuple(args.functions or ()), calls, options, value("dyn"), settings,
            off=bool(value("off")), quiet=bool(value("quiet")), give_back=args.give_back, store_in=args.store_in,
            save=args.save, compare=args.compare, fix=bool(value("fix")), widget=bool(value("widget")),
        )  # fmt: skip

    # -- what happens then

    def _begin(self, kind: str, line: str, cell: str | None, request: Request, wrong: list[str]) -> Any:
        if cell is None:
            self.session.begin(request, wrong)
            return None
        # called as a function (`run_cell_magic`), not typed as a cell: run the cell it would have been
        result = self.shell.run_cell(f"%%{kind} {line}\n{cell}")
        return result.result

    def _known(self) -> Report:
        report = reports.of_notebook(self.session)
        error = self.session.last_error
        late = reports.of_error(self.session, error)
        if late is not None and error is not None:
            late = reports.with_fixes_of_call(self.session, late, error)
            from jitmagic.checking.postmortem import joined

            report = joined(report, late)
        return report

    def _answer(self, report: Callable[[], Report], request: Request) -> Report | None:
        return asked("the report", lambda: self._finish(report(), request))

    def _finish(self, report: Report, request: Request) -> Report | None:
        options_at_end.keep(self.shell, report, request)
        if request.fix and self.session.last is not None:
            options_at_end.put_below(self.session, self.session.last, report)
        if request.give_back:
            return report
        if not request.quiet:
            IPython.display.display(report)
        return None

    def _explain(self, code: str) -> None:
        from jitmagic import rules

        try:
            text = rules.page(code)
        except (KeyError, ValueError) as exc:
            raise UsageError(str(exc.args[0] if exc.args else exc)) from None
        IPython.display.display({"text/markdown": text, "text/plain": text}, raw=True)


def _stop(wrong: Sequence[str]) -> None:
    """Raises UsageError where something on the line can't be meant."""
    if wrong:
        raise UsageError("; ".join(wrong))


def _with_nearest(message: str, tokens: Sequence[str], known: str) -> tuple[str, dict[str, str]]:
    """What argparse says of words that are no options: all of them, each with the option that is most like
    it; and that option for each word, empty where there is none."""
    head, unknown, words = message.partition(_UNKNOWN)
    options = sorted({"--cell", *re.findall(r"(?<!\w)--?[a-zA-Z][\w-]*", known)})
    told, meant = [], dict[str, str]()
    before = itertools.takewhile(lambda t: "(" not in t, tokens)
    for word in dict.fromkeys((*words.split(), *(t for t in before if t.startswith("--")))):
        name = word.partition("=")[0]
        if not any(o.startswith(name) for o in options):
            near = difflib.get_close_matches(name, options, 1) if word.startswith("-") else []
            told.append(f"{word} (did you mean {near[0]}?)" if near else word)
            meant[word] = near[0] + word.removeprefix(name) if near else ""
    said = f"{head if unknown else f'{message}; '}{_UNKNOWN}{', '.join(told)}" if told else message
    return said, meant


def _options(value: Callable[[str], Any], wrong: list[str]) -> JitOptions:
    """The options of `jax.jit`; what can't be one goes to `wrong`."""
    options = JitOptions.of(
        static_argnames=_names(value("static")) or None,
        static_argnums=_numbers("--static-argnums", value("static_argnums"), wrong) or None,
        donate_argnames=_names(value("donate")) or None,
        donate_argnums=_numbers("--donate-argnums", value("donate_argnums"), wrong) or None,
        device=value("device"), backend=value("backend"), keep_unused=bool(value("keep_unused")),
        inline=bool(value("inline")),
    )  # fmt: skip
    for flag, asked_for in (("--device", options.device), ("--backend", options.backend)):
        try:
            find_device(asked_for)
        except ValueError as exc:
            wrong.append(f"{flag} {asked_for}: {exc}")
    return options


def _beside(report: str | None) -> str | None:
    """Where `--profile` keeps the trace of a report that is saved: `run.html` has `run.trace/`."""
    return f"{os.path.splitext(os.path.expanduser(report))[0]}.trace" if report else None


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(n.strip() for n in (text or "").split(",") if n.strip())


def _numbers(flag: str, text: str | None, wrong: list[str]) -> tuple[int, ...]:
    try:
        return tuple(map(int, _names(text)))
    except ValueError:
        wrong.append(f"{flag} {text}: takes whole numbers separated by commas, like 0,2")
        return ()


def _calls(text: str, wrong: list[str]) -> tuple[str, ...]:
    try:
        return tuple(cells.split_calls(text))
    except SyntaxError as exc:
        wrong.append(f"{text.strip()!r} is no call that Python can read: {exc.msg}")
        return ()


def _tail(line: str, rest: list[str]) -> int:
    """Length of the line from the first of the last `len(rest)` tokens on."""
    starts = [m.start() for m in _TOKEN.finditer(line)]
    return len(line) - starts[-len(rest)]


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def load(shell: Any) -> None:
    """Register magics, events, completion and configuration."""
    magics = JitMagics(shell)
    shell.register_magics(magics)
    magics.session = NotebookSession(shell, magics.request_of)
    magics.session.open()
    if getattr(shell, "Completer", None) is not None:
        magics.end_completion = completion.offer(magics)


def unload(shell: Any) -> None:
    """Take out everything that `load` put in."""
    manager = shell.magics_manager
    magics = manager.registry.pop("JitMagics", None)
    for kind in ("line", "cell"):
        for name in cells.MAGICS:
            manager.magics[kind].pop(name, None)
    if magics is None:
        return
    magics.session.close()
    shell.configurables[:] = [c for c in shell.configurables if c is not magics]
    shell.config.pop("JitMagics", None)
    with contextlib.suppress(ValueError, KeyError):  # the user has cleared them
        magics.end_completion()
    with contextlib.suppress(AttributeError):
        magics.parent = None
