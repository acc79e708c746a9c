"""The facts a rule may look at: what was seen, frozen, with no opinion about it.

Everything here is plain data (no array, tracer or frame), so evidence can be kept as long as a notebook
lives. Rules turn it into findings; nothing else may.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Literal

Op = Literal[
    "bool", "int", "float", "complex", "index", "array", "item", "tolist", "hash", "format", "setitem",
    "boolean-mask", "slice", "shape", "concrete", "leak", "invalid-type", "unhashable", "static-spec",
    "donated", "carry", "aux-data", "user", "other",
]  # fmt: skip
"""What a traced value was asked for, or what else stopped the trace.

bool … index: the Python conversion; array: `np.asarray` and numpy functions; setitem: `x[i] = v`;
boolean-mask: an index whose result has a data-dependent shape (also `nonzero`, `unique`, `repeat`);
slice: a traced slice bound; shape: a traced size; concrete: another jax function that needs a concrete
value; leak: a tracer of an ended trace; invalid-type: an argument that is no JAX type; carry: loop carry
or branch outputs of differing types; user: an exception of the function's own."""


@dataclass(frozen=True)
class Where:
    """A place in source. `line` counts from 1 in `file`; columns are characters; `source` is the whole
    first line, stripped; `text` the exact expression; `function` the qualified name of the code it is in."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    source: str
    text: str = ""
    function: str = ""


@dataclass(frozen=True)
class RefusedResult:
    """What a traced function returned that jax cannot return."""

    function: str
    line: int
    """Of the function, in its file."""
    type: str
    """Full name of the value's class."""
    component: str = ""
    """Its path in the result: `['name']`, `[1]`."""


@dataclass(frozen=True)
class BranchOutputs:
    """Outputs of two branches that do not fit together."""

    first: str
    """As jax calls the branch: `true_fun`, `branch 0`."""
    first_type: str
    second: str
    second_type: str
    path: str = ""


@dataclass(frozen=True)
class Structure:
    """A part of a loop's state: its class, and the length of a tuple or list."""

    type: str
    length: int | None = None


@dataclass(frozen=True)
class Carry:
    """What is wrong with the functions of a loop or branch."""

    complaint: Literal["pair", "condition", "structure", ""] = ""
    """pair: the body of a scan returns no pair; condition: it returns no single boolean."""
    predicate: str = ""
    """The type that the condition returns instead."""
    types: tuple[str, str] | None = None
    """What goes in, and what comes out."""
    structures: tuple[Structure, Structure] | None = None
    keys: str = ""
    """Keys that only one of the two dicts has."""
    branches: BranchOutputs | None = None
    functions: tuple[str, ...] = ()
    """Names of jax's loops and branches that the text holds: `scan`, `cond`."""


Refusal = Literal[
    "mapping", "gradient of integers", "gradient of several results", "gradient of many numbers",
    "array as predicate", "index that is no integer", "tree for an array",
]  # fmt: skip
"""What one of jax's functions does not take, with jit and without."""


@dataclass(frozen=True)
class Told:
    """What the words of an exception say, read once (`tracing/messages.py`)."""

    random_state: bool = False
    """A framework's random state is what cannot be changed in this trace."""
    other_trace: bool = False
    """Something of another trace would be changed."""
    tuple_refused: bool = False
    """A tuple is where one of jax's functions takes a number."""
    own_class: str = ""
    """A class of the notebook whose object is no type of jax's."""
    unordered_keys: bool = False
    """jax could not sort the keys of a dict."""
    is_returned: bool = False
    """It speaks of what a function returns."""
    returned: RefusedResult | None = None
    twice: bool = False
    """One array was donated in two places of a call."""
    positional: int | None = None
    """How many arguments by position the function takes."""
    asks_memory: bool = False
    """What is asked for has only an array in memory: `x.sharding`, `x.devices()`."""
    missing: bool = False
    """A traced value lacks an attribute, or is no object of the type that is needed."""
    meant: tuple[str, str] | None = None
    """A name that does not exist, and the one that was probably meant."""
    refusal: Refusal | None = None
    apart: tuple[tuple[str, str], ...] = ()
    """Arguments that lie on different devices, each with its own: `('x', 'gpu:0')`."""
    in_words: str = ""
    """The text without the placeholders around values; empty where it speaks of jax's internals."""
    carry: Carry = Carry()


@dataclass(frozen=True)
class Problem:
    """One place where the trace stops, or would stop were the earlier ones mended."""

    op: Op
    where: Where | None
    leaves: tuple[str, ...] = ()
    """Argument leaves and state paths it depends on: `x`, `cfg['deep']`, `args[1]`, `self.w`."""
    locals: tuple[str, ...] = ()
    """Names in the offending expression as written there, innermost first."""
    construct: str = "other"
    """The syntax that asked: if, while, ifexp, and, or, not, assert, compare, in, range, call, subscript,
    slice, fstring, augassign, assign, comprehension, for, match, def, decorator, other."""
    callee: str = ""
    """Dotted name of the function called with the value there, as the user wrote it: `np.cos`, `float`."""
    exception: str = ""
    message: str = ""
    """First paragraph of the exception's text."""
    recorded: bool = False
    """Seen by the recording run, not by jax's own trace."""
    count: int = 1
    value: str = ""
    """Short text of the concrete value that the recording run saw."""
    forms: tuple[tuple[str, str], ...] = ()
    """The arrays in an expression that failed by itself, each with its type: `('h', 'f32[4,3]')`."""
    inside: Where | None = None
    """For a carry: the line of the loop's body that changes the type."""
    told: Told = Told()
    """What the exception says."""
    called_from: Where | None = None
    """Where the function that it is in was called, by another one of the user's."""


@dataclass(frozen=True)
class Leaf:
    """One leaf of a call's arguments."""

    path: str
    argument: str
    """Name of the parameter it belongs to."""
    kind: Literal["array", "numpy", "scalar", "other"]
    python_type: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    weak_type: bool = False
    value: str = ""
    """`repr` of a Python scalar or of a short static value; empty for arrays."""
    static: bool = False
    hashable: bool = True
    settles: bool = False
    """An object with nothing in it that could change: settings, by which it compares, or nothing at all."""
    code: int | None = None
    """Of a Python function: the same number for functions that do the same, as far as their code tells."""

    @property
    def loses_its_units(self) -> bool:
        """A Python float so large that 32 bits round part of its units away, such as a time since 1970."""
        number = float(self.value) if self.kind == "scalar" and self.python_type == "float" else 0.0
        return 2**20 < abs(number) < 2**100 and struct.unpack("f", struct.pack("f", number))[0] != number


@dataclass(frozen=True)
class Call:
    """One call of the user's."""

    leaves: tuple[Leaf, ...]
    outcome: Literal["ok", "failed"] = "ok"
    traced: bool = False
    """This call made jax trace anew."""
    source: str = ""
    """Text of the expression that made the call, where it could be seen."""
    cell: str | None = None


@dataclass(frozen=True)
class Variable:
    """A closed-over value that the function reads."""

    path: str
    origin: Literal["global", "closure", "attribute", "default", "argument", "helper"]
    type: Literal["array", "scalar", "object", "rng", "function"]
    role: Literal["constant", "dynamic", "static"] = "constant"
    declared: bool = False
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    bytes: int | None = None
    value: str | None = None
    reads: tuple[Where, ...] = ()
    written: bool = False
    stale: bool = False
    rebound: bool = False
    """The notebook's own code (any cell) binds or changes it outside the function."""
    in_jaxpr: bool = True
    """It is a constant of the traced program (scalars: it was read)."""
    before: str = ""
    after: str = ""
    """Short text of the value when compiled and now, where it changed."""
    framework: str = ""
    """The framework whose variable it is."""
    written_at: Where | None = None
    """Of one that is written: the statement that probably does it."""

    @property
    def changed_at(self) -> Where | None:
        """Where it is written, else first read."""
        return self.written_at or next(iter(self.reads), None)


@dataclass(frozen=True)
class Write:
    """A change of something outside the function that its trace made."""

    path: str
    origin: Literal["global", "closure", "attribute", "item", "argument"]
    action: Literal["bound", "changed", "added", "removed"]
    tracer: bool
    where: Where | None = None
    before: str = ""
    after: str = ""
    settled: bool = False
    """A further run changes nothing there: a memo that is filled, an attribute that is made at first use."""


@dataclass(frozen=True)
class Loss:
    """A place that the cell leaves otherwise with the compiled function than without jit."""

    place: str
    """As the function names it: `self.losses`."""
    path: str
    """As the notebook does: `trainer.losses`."""
    compiled: str
    plain: str


@dataclass(frozen=True)
class Difference:
    """The compiled call's result beside that of the plain one."""

    leaf: str
    reason: Literal["values", "shape", "dtype", "structure", "type", "NaN", "raises", "order"]
    """raises: the plain call raises `eager`, and the compiled one goes on. order: of the keys of a dict."""
    worst: float = 0.0
    allowed: float = 0.0
    eager: str = ""
    jit: str = ""
    compiler: bool = False
    """Op by op on the device the traced program gives the plain result: the compiler is at fault."""
    where: Where | None = None
    """The first line at which the compiled program parts from its own operations, where the compiler is at fault, or
    at which whole numbers wrap around."""
    wraps: bool = False
    """Whole numbers leave their range at `where`."""
    remedy: str = ""
    """The option `name=value` of the compiler with which it gives the plain result, where one was tried."""


@dataclass(frozen=True)
class Function:
    """The function itself, as text."""

    name: str
    file: str
    source: str
    """Source of the definition with its decorators, dedented; empty where there is none."""
    line: int
    """Line of the `def` (not of the decorator) in `file`."""
    where: Where | None = None
    """The `def` line."""
    parameters: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    cell: str = ""
    """Body of the cell that defines it, without the magic line."""
    own_names: tuple[str, ...] = ()
    """Names of Python's own functions (`input`, `print`) by which it reads something of the notebook's."""

    def chosen(self, names: tuple[str, ...], numbers: tuple[int, ...]) -> tuple[str, ...]:
        """Parameters given by name and by number, each once."""
        count = len(self.parameters)
        return tuple(dict.fromkeys((*names, *(self.parameters[n] for n in numbers if -count <= n < count))))


@dataclass(frozen=True)
class Options:
    """The options of `jax.jit` that the user declared, and the dynamic variables."""

    static_argnames: tuple[str, ...] = ()
    static_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    dyn: tuple[str, ...] | None = None


@dataclass(frozen=True)
class KeyReuse:
    """One random key from which two draws were made (or one draw in a loop, at each turn)."""

    where: Where
    names: tuple[str, ...] = ()
    """The key as written at the second draw, then the argument leaf it is."""
    earlier: str = ""
    """Source of the line of the first draw; empty where a loop repeats one draw."""


@dataclass(frozen=True)
class HiddenRandom:
    """Random numbers that are part of the program.

    host: numpy's or Python's generator; generator: an object with a state of its own; fixed: a key made from
    a constant seed; captured: a key from outside that is no argument."""

    origin: Literal["host", "generator", "fixed", "captured"]
    names: tuple[str, ...]
    where: Where
    text: str = ""


@dataclass(frozen=True)
class SideEffect:
    """A question to the world outside that is asked while jax traces, or what is done to it then."""

    what: Literal[
        "clock",
        "wait",
        "environment",
        "file",
        "iterator",
        "input",
        "process",
        "queue",
        "id",
        "setting",
        "asked setting",
        "outside",
    ]
    names: tuple[str, ...]
    where: Where
    asked: str = ""


@dataclass(frozen=True)
class Printed:
    """A call that prints or logs; `values` are the names whose values it shows. `bar`: a progress bar."""

    where: Where
    text: str
    values: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    logs: bool = False
    bar: bool = False


@dataclass(frozen=True)
class Unrolled:
    """A Python loop whose body is in the traced program once for each turn."""

    where: Where
    names: tuple[str, ...]
    turns: int
    equations: int
    """Equations that its body made, all turns together."""
    own_turns: int = 0
    """The turns of the loop itself, of which `turns` counts each with those of the loops in it; 0 where all that it
    makes is made in those."""


@dataclass(frozen=True)
class LossyPytree:
    """An argument that comes out of flatten and unflatten with other attributes than it went in."""

    argument: str
    type: str
    fields: tuple[str, ...]
    where: Where | None = None
    error: str = ""
    """Why it cannot be put together again, where `tree_unflatten` fails."""
    dropped: bool = False
    """`tree_flatten` returns the fields, and `tree_unflatten` does not put them back."""


@dataclass(frozen=True)
class ArrayInAux:
    """An array in what `tree_flatten` returns as auxiliary data, or in a static field."""

    argument: str
    type: str
    field: str
    where: Where | None = None
    others: tuple[str, ...] = ()
    """Further fields that hold arrays there."""


@dataclass(frozen=True)
class TypeTest:
    """A test whose outcome differs between a value and the tracer that stands for it."""

    name: str
    where: Where
    swallows: bool = False
    """It is a `try` whose handler takes jax's own errors for an answer; `where` is the handler."""
    asked: str = ""
    """Of such a `try`, the line that asks a traced value."""
    met: bool = False
    """The trace was seen to go on in the handler."""


@dataclass(frozen=True)
class Truncation:
    """Numbers of 64 bits that do not survive in 32: an argument, an array from outside, or a dtype asked for."""

    names: tuple[str, ...]
    where: Where | None
    before: str
    after: str
    origin: Literal["argument", "constant", "dtype"] = "argument"


@dataclass(frozen=True)
class NotFinite:
    """The first operation that made NaN or infinity from finite numbers."""

    operation: str
    where: Where | None
    names: tuple[str, ...] = ()
    gradient: bool = False
    infinite: bool = False
    derived: bool = False
    """The program differentiates there: it may be the derivative that is not finite."""


@dataclass(frozen=True)
class OutOfBounds:
    """An index outside of its array, in a call that was made."""

    where: Where
    names: tuple[str, ...]
    index: int
    axis: int
    size: int
    window: int = 1
    """How many elements are taken from the index on."""
    writes: bool = False
    lands: int | None = None
    """The index to which jax moves it; None where it drops the write, or fills in NaN."""
    is_alone: bool = False
    """There is no other index than this."""


@dataclass(frozen=True)
class UnusableDonation:
    """A donated input whose memory no result takes."""

    path: str
    type: str
    bytes: int
    why: str


@dataclass(frozen=True)
class MissingDonation:
    """Arguments that a loop binds anew to results of their types, and that are not donated."""

    names: tuple[str, ...]
    bytes: int
    call: str
    """The statement of the loop."""
    inputs: tuple[int, ...] = ()
    """Their numbers among the inputs of the program."""
    before: int | None = None
    """What a call holds at most, as the compiler reports it, and"""
    after: int | None = None
    """with these arguments donated; None where it was not asked."""
    free: int | None = None
    """Bytes of the device that nothing takes."""


@dataclass(frozen=True)
class Dropped:
    """A call that is a statement by itself, whose results are thrown away: the program holds nothing of it."""

    where: Where
    names: tuple[str, ...]
    by_jax: bool
    """What is called is jax's, and has no effect but its result."""
    array: str = ""
    """The array of `array.at[index].set(...)`."""


@dataclass(frozen=True)
class Wait:
    """A place in a loop at which the host waited for the device, measured while a cell ran."""

    where: Where
    names: tuple[str, ...]
    times: int
    seconds: float
    """All of these times together."""
    idle_s: float
    """How long the device had nothing to do after that, at most: what the host did until it waited again, of each time
    no more than it waited. So much can be saved."""
    cell_s: float
    """Of the whole cell."""


@dataclass(frozen=True)
class HeldArray:
    """An array that takes memory, by its name or the notebook's path to it."""

    name: str
    bytes: int
    type: str = ""
    line: int | None = None


@dataclass(frozen=True)
class Remedy:
    """What would take less memory, in words, with the peak that the compiler reports for it."""

    words: str
    bytes: int


@dataclass(frozen=True)
class Exhausted:
    """A call that did not fit into memory."""

    asked: int | None
    """Bytes that could not be had, where the error says it."""
    free: int | None
    line: int | None
    """Where the program as written holds most."""
    held: tuple[HeldArray, ...]
    """What it holds there, the largest first."""
    others: tuple[HeldArray, ...]
    """What the notebook holds besides."""
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True)
class Silent:
    """What goes wrong without an error, as far as one traced call shows it."""

    program: bool = False
    """A traced program was looked at; else the source alone."""
    keys: tuple[KeyReuse, ...] = ()
    random: tuple[HiddenRandom, ...] = ()
    effects: tuple[SideEffect, ...] = ()
    prints: tuple[Printed, ...] = ()
    unrolled: tuple[Unrolled, ...] = ()
    lossy: tuple[LossyPytree, ...] = ()
    arrays_in_aux: tuple[ArrayInAux, ...] = ()
    tests: tuple[TypeTest, ...] = ()
    not_finite: tuple[NotFinite, ...] = ()
    out_of_bounds: tuple[OutOfBounds, ...] = ()
    donations: tuple[UnusableDonation, ...] = ()
    not_donated: tuple[MissingDonation, ...] = ()
    truncated: tuple[Truncation, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    refs: tuple[str, ...] = ()
    """Arguments into which the function stores what the caller sees: mutable arrays of jax's, objects of
    frameworks."""


@dataclass(frozen=True)
class Evidence:
    """All that is known about one function after the calls seen so far."""

    function: Function
    options: Options = Options()
    calls: tuple[Call, ...] = ()
    problems: tuple[Problem, ...] = ()
    variables: tuple[Variable, ...] = ()
    writes: tuple[Write, ...] = ()
    differences: tuple[Difference, ...] = ()
    lost: tuple[Loss, ...] = ()
    traces: int = 0
    compiles: int = 0
    equations: int | None = None
    """Equations of the traced program, inner ones included; None where it was not traced."""
    dynamic_inputs: int | None = None
    """Leaves the traced program takes as inputs, dynamic variables included."""
    printed: str = ""
    """What the first trace printed."""
    static_verified: tuple[str, ...] | None = None
    """Smallest set of leaves that, made static, lets the function trace; None where there is none."""
    silent: Silent = Silent()
    jitted_by_user: bool = False
    """The user's own `jax.jit` compiles it, which knows no variables of frameworks."""
    framework: str = ""
    """The framework whose own `jit` compiles it: `equinox`, `flax` or `brainstate`."""
    waits: tuple[Wait, ...] = ()
    """In cells that call it."""
    exhausted: Exhausted | None = None
    notes: tuple[str, ...] = field(default=())
    compared: bool = False
    """A compiled call's result was held against that of a run without jit."""


def root(path: str) -> str:
    """The name that a path starts from: `cfg` of `cfg['n']`, `self` of `self.w`."""
    for i, character in enumerate(path):
        if character in ".[(":
            return path[:i]
    return path
