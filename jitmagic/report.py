"""The plain data that every check ends in.

A report holds strings, numbers and tuples only: no array, tracer, frame or function stays alive
because somebody keeps one. `to_dict` and `from_dict` are inverse to each other, and the JSON form is
the MIME payload that the front end reads.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import sys
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar

from jitmagic.kinds import ADVICE

SCHEMA = 1
IF_SET = {"written": "if set"}
"""Of fields that are left out of the JSON form where they are empty: there are thousands of lines."""

Severity = Literal["error", "warning", "note"]
Verdict = Literal["ok", "wrong", "fails", "untraced"]
Role = Literal["constant", "dynamic", "static"]
Applicability = Literal["safe", "unsafe", "display"]
Origin = Literal["user", "library", "operation", "check"]
Reason = Literal[
    "first",
    "shape",
    "dtype",
    "weak-type",
    "static",
    "structure",
    "new-function",
    "redefined",
    "device",
    "again",
]
"""Why jax compiled: the first call, what differs from the nearest earlier call, or that the function itself is new."""


@dataclass(frozen=True)
class Span:
    """A stretch of source. Lines count from 1 as the user sees the cell, the magic line included;
    columns are characters from 0, the end exclusive; `source` is the whole first line, stripped."""

    line: int
    column: int
    end_line: int
    end_column: int
    source: str
    cell: str | None = None
    """Name of the cell's code object, where the span lies in another cell than the report's own."""
    function: str = ""
    """What it lies in, where that is another function than the finding's."""
    called_from: str = ""
    """The line that called that one, in words: `line 3 of update`."""
    around: tuple[str, ...] = ()
    """Source from two lines before it to two after it, where it lies in another cell."""
    cell_name: str = ""
    """What the notebook calls that cell, or the report's own where it stands below another one: `Cell In[2]`."""


@dataclass(frozen=True)
class Fix:
    """One way to mend a finding. `verified` says that it was applied and re-run; `evidence` says how."""

    title: str
    applicability: Applicability = "display"
    verified: bool = False
    evidence: str = ""
    static_argnames: tuple[str, ...] | None = None
    static_argnums: tuple[int, ...] | None = None
    dyn: tuple[str, ...] | None = None
    cell: str | None = None
    calls: tuple[str, ...] | None = None
    tested: Literal["cell", "calls"] | None = None
    """On what it was tested: the whole cell, run again from where it began, or the function's calls alone."""
    claim: str | None = None
    """What it lets differ from the run without jit, in words."""
    magic: str | None = None
    """The whole new magic line, where that is another one."""
    diff: str | None = None
    """Unified diff of `cell` against the user's cell, for display."""


@dataclass(frozen=True)
class Finding:
    """One problem (or neutral fact) with the place, the names to blame and the ways to mend it."""

    code: str
    kind: str
    severity: Severity
    function: str
    message: str
    span: Span | None = None
    culprits: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    help: str = ""
    """What to do next, in one or two sentences, for when no fix could be proved."""
    detail: str = ""
    """For those who know JAX: the exception's own first line, or the equations of the line."""
    shows: Span | None = None
    """Where it comes to light, if that is elsewhere: the expression that reads an array which was given away."""

    @property
    def wants_fixes(self) -> bool:
        """Corrections are looked for: it is no note, or one that says what to do."""
        return self.severity != "note" or self.kind in ADVICE


@dataclass(frozen=True)
class State:
    """One variable that a function reads or writes without taking it as an argument. Sizes in bytes."""

    path: str
    role: Role
    declared: bool = False
    origin: str = "global"
    type: str = "array"
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    bytes: int | None = None
    lines: tuple[int, ...] = ()
    written: bool = False
    stale: bool = False
    value: str | None = None
    """Short text of a scalar's value; arrays are never printed."""


@dataclass(frozen=True)
class Stages:
    """Seconds of wall time that each stage of a compilation took."""

    trace_s: float | None = None
    lower_s: float | None = None
    compile_s: float | None = None
    cached: bool | None = None
    """The persistent compilation cache had the program; None where jax did not ask it."""

    def plus(self, other: Stages, sign: int = 1) -> Stages:
        """The sums; with a sign of -1 the differences."""

        def both(a: float | None, b: float | None) -> float:
            return (a or 0.0) + sign * (b or 0.0)

        return Stages(
            both(self.trace_s, other.trace_s), both(self.lower_s, other.lower_s),
            both(self.compile_s, other.compile_s), self.cached,
        )  # fmt: skip

    @property
    def total_s(self) -> float:
        """All stages together."""
        return sum(s or 0.0 for s in (self.trace_s, self.lower_s, self.compile_s))


@dataclass(frozen=True)
class Sample:
    """Seconds per call over `repeats` batches of `loops` calls, each call blocked on its result."""

    median_s: float
    mean_s: float
    std_s: float
    loops: int
    repeats: int
    best_s: float | None = None
    quartiles_s: tuple[float, float] | None = None
    batches_s: tuple[float, ...] = ()
    """Seconds per call of each batch, in order; the first 100."""


@dataclass(frozen=True)
class Timing:
    """Calls without jit and compiled, timed in turn in one process."""

    eager: Sample | None = None
    jit: Sample | None = None
    speedup: float | None = None
    break_even_calls: int | None = None
    constant_folded: bool = False
    device: str | None = None
    left_out: str | None = None
    """Why there is no timing, or only half of one."""
    digits: int = 3
    """Significant digits to show, as in `%timeit -p`."""
    unfolded: Sample | None = None
    """Where the compiler computed the answer beforehand: the compiled call with the constants dynamic."""
    unfolded_by: tuple[str, ...] = ()
    """Those constants."""
    clear: bool = True
    """The runs, taken in turn, agree on which of the two is faster."""
    before_fix: bool = False
    """`eager` is the code from before a correction of ours was applied."""


PLAIN_RUN = "the run without jit "
"""What a note begins with that tells why there was none."""

LAST_RUN = "the last run of this cell"
"""What a run is compared with where nothing else was asked for."""


@dataclass(frozen=True)
class Comparison:
    """This run's compiled call beside that of an earlier one."""

    verdict: Literal["same", "faster", "slower", "incomparable"]
    earlier: str
    """What it is compared with: `the last run of this cell`, `run.json`."""
    before_s: float | None = None
    ratio: float | None = None
    """Median now over median then."""
    noise: float | None = None
    """The relative difference that chance can make between two such runs."""
    why: str = ""
    """Why the two can't be compared."""


@dataclass(frozen=True)
class Remark:
    """Something that the numbers do not say by themselves, and that a reader of them has to know."""

    kind: Literal["folded", "dead-code", "dispatch", "host-copy", "first-call", "unblocked", "idle-device"]
    text: str
    line: int | None = None


@dataclass(frozen=True)
class Alive:
    """One array that is held at the moment of most memory."""

    name: str
    type: str
    bytes: int
    line: int | None = None


@dataclass(frozen=True)
class Peak:
    """The line at which the program as written, before any fusing, holds most memory, and what it holds then."""

    line: int | None
    bytes: int
    alive: tuple[Alive, ...] = ()
    """The largest, the largest first."""


@dataclass(frozen=True)
class Bound:
    """What this machine allows at best, by its measured rates: the roofline model (Williams et al. 2009)."""

    by: Literal["memory", "arithmetic"]
    least_s: float
    """Seconds that one call takes at least."""
    intensity: float
    """Operations per byte that moves, after the compiler fused where it says so."""
    balance: float
    """Operations that the machine does in the time of one byte."""
    flops_per_s: float
    bytes_per_s: float


@dataclass(frozen=True)
class Cost:
    """What one call costs. `None` means that the backend reports nothing."""

    flops: float | None = None
    bytes: float | None = None
    peak_bytes: int | None = None
    peak: Peak | None = None
    bound: Bound | None = None
    by_line: str = ""
    """Why the time of each line was not measured."""


@dataclass(frozen=True)
class LineCost:
    """What one source line contributes to the traced program."""

    line: int
    equations: int
    flops: float | None = None
    bytes: float | None = None
    fusions: tuple[str, ...] = ()
    """Instructions of the optimised program that its operations ended in."""
    fused_with: tuple[int, ...] = ()
    """Other lines in the same fusions, the first few."""
    fused_more: int = 0
    """How many more there are."""
    constants: tuple[str, ...] = ()
    """Constants that it reads."""
    jaxpr: str = ""
    """Its equations, the first few."""
    hlo: str = ""
    """Its instructions in the optimised program, the first few."""
    cell: str | None = field(default=None, metadata=IF_SET)
    """Name of the cell's code object, or the file, where the line lies outside of the report's cell."""
    source: str = field(default="", metadata=IF_SET)
    """The text of such a line."""


@dataclass(frozen=True)
class LineTime:
    """The part of one source line in the time of a compiled call, measured."""

    line: int
    seconds: float
    shared: bool = False
    """Some of it is a part of a fused operation's time, or of a loop's, by the work of the line in it."""
    cell: str | None = None
    """Name of the cell's code object, or the file, where the line lies outside of the function's own."""
    source: str = ""
    """The text of such a line."""


@dataclass(frozen=True)
class Collective:
    """A kind of communication that the compiler inserted, and the bytes that one device receives in all of them."""

    name: str
    count: int
    bytes: int
    in_loop: bool = False
    """Some of them stand in a loop and run once a round; they are counted once."""


@dataclass(frozen=True)
class WhatIf:
    """The function transformed: traced, compiled and costed, never run."""

    kind: Literal["vmap", "grad", "devices"]
    title: str
    """What was done, in words: `vmap over the 100 rows of x`."""
    arguments: tuple[str, ...] = ()
    size: int = 0
    """Elements of the batch, or devices."""
    works: bool = True
    message: str = ""
    """Why it does not trace or compile."""
    line: int | None = None
    stages: Stages = Stages()
    cost: Cost = Cost()
    """Of one call; of one device where there are several."""
    plain: Cost = Cost()
    """The function as it is, for comparison."""
    collectives: tuple[Collective, ...] = ()
    replicated: tuple[str, ...] = ()
    """Arguments and constants that every device holds whole, with their types."""
    replicated_bytes: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FunctionReport:
    """One function: how it went, what it closes over, what it costs."""

    name: str
    verdict: Verdict = "untraced"
    calls: int = 0
    traces: int = 0
    compiles: int = 0
    state: tuple[State, ...] = ()
    stages: Stages = Stages()
    """Of the first compilation."""
    timing: Timing = Timing()
    cost: Cost = Cost()
    lines: tuple[LineCost, ...] = ()
    line_times: tuple[LineTime, ...] = ()
    """Empty where the time of each line was not measured."""
    all_stages: Stages | None = None
    """All traces and compilations together, where there was more than one."""
    what_if: tuple[WhatIf, ...] = ()
    """The answers to `--vmap`, `--grad` and `--devices`."""
    against: Comparison | None = None
    remarks: tuple[Remark, ...] = ()
    arguments: tuple[str, ...] = ()
    """Types of the arguments of the first call: `x: float32[3]`."""
    signature: str = ""
    notes: tuple[str, ...] = ()
    """What was left out of this function's check, and why."""
    interrupted: bool = False
    """Its first call was, and no other has ended since."""

    @property
    def compared(self) -> bool:
        """No note tells why its results were not compared with those of a run without jit."""
        return not any(note.startswith(PLAIN_RUN) for note in self.notes)

    @property
    def compiling_s(self) -> float | None:
        """Seconds that all its traces and compilations took."""
        return (self.all_stages or self.stages).total_s or None


@dataclass(frozen=True)
class Compilation:
    """One program that jax traced and, mostly, compiled. Seconds; `start_s` counts from the session's start."""

    function: str
    origin: Origin = "user"
    """user: a function of the notebook; library: of an installed package; operation: an operation outside
    jit; check: a trial of ours that the user did not ask for."""
    cell: int | None = None
    """Number of the execution of the cell that ran, as in `In [7]`."""
    line: int | None = None
    start_s: float = 0.0
    trace_s: float | None = None
    lower_s: float | None = None
    compile_s: float | None = None
    reason: Reason = "first"
    argument: str = ""
    before: str = ""
    after: str = ""
    cached: bool = False
    """The persistent compilation cache had the compiled program."""

    @property
    def seconds(self) -> float:
        """Tracing, lowering and compiling together."""
        return sum(s or 0.0 for s in (self.trace_s, self.lower_s, self.compile_s))


@dataclass(frozen=True)
class Session:
    """Every trace and compilation since the extension was loaded, in order."""

    compilations: tuple[Compilation, ...] = ()
    since_cell: int | None = None
    """The cell from which on jax was listened to."""
    left_out: int = 0
    """Compilations over the limit of what is kept."""


@dataclass(frozen=True)
class Versions:
    """The versions that the report was made with."""

    jitmagic: str = ""
    jax: str = ""
    python: str = ""


KeptBy = Literal["name", "output", "traceback", "check", "elsewhere"]


@dataclass(frozen=True)
class LiveArray:
    """An array in the memory of a device."""

    path: str
    """How the notebook gets at it: `params['w']`, `Out[3]`, `h in step`; empty where it does not."""
    type: str
    bytes: int
    kept_by: KeptBy
    """The first of these that leads to it: a name, an output, the last error, a call that we keep to try fixes on."""
    devices: str = ""


@dataclass(frozen=True)
class Memory:
    """The arrays that are alive, the largest first."""

    arrays: tuple[LiveArray, ...] = ()
    used: int | None = None
    """Bytes in use on all devices, and those that there are; None where a device does not tell."""
    limit: int | None = None


@dataclass(frozen=True)
class CellText:
    """The checked cell as the user sees it, the magic line included."""

    source: str = ""
    name: str | None = None
    id: str | None = None
    magic: str = ""


@dataclass(frozen=True)
class ReportData:
    """The result of a check; `render.Report` is one that displays itself."""

    functions: tuple[FunctionReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    backend: str = ""
    versions: Versions = Versions()
    cell: CellText = CellText()
    notes: tuple[str, ...] = ()
    session: Session | None = None
    """The timeline of `%jitcheck --session`."""
    memory: Memory | None = None
    """The arrays of `%jitcheck --memory`."""
    schema: int = field(default=SCHEMA)

    @property
    def verdict(self) -> Literal["ok", "warnings", "wrong", "fails", "untraced"]:
        """`fails` with an error among the findings, `wrong` where a function compiles and its results or the state
        that it leaves are others than without jit, `warnings` with a warning, else `ok`; `untraced` where no function
        was called yet."""
        wrong = {f.name for f in self.functions if f.verdict == "wrong"}
        severities = {f.severity for f in self.findings if f.function not in wrong or f.severity != "error"}
        if "error" in severities or any(f.verdict == "fails" for f in self.functions):
            return "fails"
        if wrong:
            return "wrong"
        if "warning" in severities:
            return "warnings"
        return "ok" if any(f.verdict == "ok" for f in self.functions) else "untraced"

    @property
    def fixed_cell(self) -> str | None:
        """Source of the first corrected cell that was applied and re-run, or None."""
        cells = (x.cell for f in self.findings for x in f.fixes if x.verified and x.cell)
        return next(cells, None)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready dicts and lists, in the form of the contract."""
        return typing.cast("dict[str, Any]", _plain(self))

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Inverse of `to_dict`. Unknown keys are ignored; raises ValueError for another schema."""
        if data.get("schema") != SCHEMA:
            raise ValueError(f"a report of schema {data.get('schema')!r}; this version reads {SCHEMA}")
        return _load(cls, data)


@functools.cache
def _fields(kind: type) -> dict[str, bool]:
    """The names of the fields, and whether each is written where it is empty too."""
    every = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return {f.name: not f.metadata for f in every}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, int)):
        return value
    if names := _fields(type(value)):  # type: ignore[arg-type]
        return {n: _plain(v) for n, empty in names.items() if (v := getattr(value, n)) or empty}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has neither NaN nor infinity
    return value


T = TypeVar("T")


def _load(cls: type[T], data: dict[str, Any]) -> T:
    hints = typing.get_type_hints(cls)
    names = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    return cls(**{k: _value(hints[k], v) for k, v in data.items() if k in names})


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(h for h in typing.get_args(hint) if h is not type(None))
    if typing.get_origin(hint) is tuple:
        return tuple(_value(typing.get_args(hint)[0], v) for v in value)
    if dataclasses.is_dataclass(hint):
        return _load(typing.cast("type[Any]", hint), value)
    return value


def own_version() -> str:
    """The version of this package."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)
