"""What the text of an exception says: the kind of question that failed and the arguments it names.

jax's exceptions carry no fields, so their texts are read; each pattern was seen on jax 0.10.2 or 0.12.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from jitmagic.evidence import BranchOutputs, Carry, Op, Problem, Refusal, RefusedResult, Structure, Told

_BY_TYPE: dict[str, Op] = {
    "TracerBoolConversionError": "bool",
    "TracerIntegerConversionError": "index",
    "TracerArrayConversionError": "array",
    "NonConcreteBooleanIndexError": "boolean-mask",
    "UnexpectedTracerError": "leak",
    "TraceContextError": "leak",
}

_BY_TEXT: tuple[tuple[str, Op], ...] = (
    (r"^Non-hashable static arguments", "unhashable"),
    (r"in-place item assignment|does not support item (assignment|deletion)", "setitem"),
    (r"[Ss]lice (indices|entries) must (have|be) static", "slice"),
    (r"Shapes must be 1D sequences|expected a sequence of integers or a single integer, got '?\w*Tracer",
     "shape"),
    (r"unhashable type: '\w*Tracer'", "hash"),
    (r"unsupported format string passed to \w*Tracer|%[\w.]* format: .*not \w*Tracer", "format"),
    (r"(Array|buffer) has been deleted|previously donated|deleted or donated|[Dd]onat\w+ .*(twice|invalid)",
     "donated"),
    (r"equality of metadata fields|metadata field.*(array|hashable)", "aux-data"),
    (r"only accepts \d+ positional arg|does not take these args|static_arg\w+ and donate_arg\w+ cannot",
     "static-spec"),
    (r"[Jj]itted function has (invalid )?(static_|donate_)?arg|(static|donate)_arg(nums|names)\b.*(out of"
     r"|range|dupl|must be|expected|unknown|invalid|not)", "static-spec"),
    (r"[Bb]ody.* carry (input|output)|body_fun (output|carry)|must have (identical|equal) types"
     r"|carry input and carry|branch(es)? (outputs )?must have|body output must be a pair"
     r"|cond_fun must return|while_loop.*(body|cond)_fun"
     r"|loop carry|carry (component|part)|have equal output types", "carry"),
    (r"sorting pytree dictionary keys", "invalid-type"),
    (r"interpreting argument to .* as an abstract array|Cannot interpret value of type|not a valid JAX type"
     r"|not a valid JAX (array )?type\b.*(jit|returned)", "invalid-type"),
    (r"parameters to jaxpr equations must have __hash__.*Tracer", "concrete"),
    (r"attribute is not available on traced|method is not available on traced", "concrete"),
    (r"can't multiply sequence by non-int of type '\w*Tracer|for \*: '(list|str|tuple|bytes)' and '\w*Tracer"
     r"|for \*: '\w*Tracer' and '(list|str|tuple|bytes)'", "index"),
    (r"'?\w*Tracer'? object cannot be interpreted as an integer|SeedSequence expects int.*Tracer", "int"),
    (r"parsing an argument to a jitted computation", "other"),
)  # fmt: skip

_MASKED = r"jnp\.(nonzero|unique|compress|bincount|repeat|delete|setdiff1d|union1d|flatnonzero|argwhere" \
          r"|where)|(setdiff1d|union1d|intersect1d)\(\)|make jnp\.unique"  # fmt: skip
_SIZED = r"jnp\.(arange|linspace|logspace|geomspace|indices|\w+_indices|eye|tri|pad|hanning|hamming" \
         r"|blackman|bartlett|kaiser|split|tile|vander|ravel_multi_index)|num_segments|num_classes" \
         r"|histogram_bin|`length`" \
         r"|random\.(choice|permutation|orthogonal|ball)\b|dimensions argument|in jax\.numpy\.\w*split" \
         r"|'?num'? argument"  # fmt: skip
_SIZED_CALLEES = frozenset(
    "tile split top_k iota approx_max_k array_split zeros ones full empty choice eye identity tri "
    "broadcast_to repeat".split()
)

_WRITTEN = re.compile(r"\w*Tracer[(<]~?\w+\[")
"""A placeholder as text: in a key, an attribute or a file name that was made of it."""

_ARGUMENTS = re.compile(r"depends on the values? of the arguments? (.+?)\.(?:\s|$)", re.S)
_TRACED = re.compile(r"while tracing the function (\S+)(?: at (.+?):(\d+))? for (\w+)")
_AT_PATH = re.compile(r"(?:passed to the function at path|argument path is) (\S+?)\.?(?:\s|$)")
_CARRY = re.compile(r"(?:input carry|carry input|loop carry)(?: component| part)? (?:at path )?"
                    r"([\w.\[\]'\"]+) (?:has|is|with)")  # fmt: skip
_COMPONENT = re.compile(
    r"(?:body_fun|scan body|while_loop|fori_loop).*?input.*?component ([\w.\[\]'\"]+) has", re.S
)


def concretization_op(text: str) -> Op:
    """The op of a ConcretizationTypeError, or of the context text that jax gives with such a question."""
    for word in ("float", "int", "complex"):
        if f"problem arose with the `{word}` function" in text:
            return word  # type: ignore[return-value]
    if "item() method" in text:
        return "item"
    if "tolist() method" in text:
        return "tolist"
    if re.search(_MASKED, text):
        # A scalar `repeats` is a size; an array of them makes the shape depend on data.
        return "shape" if "jnp.repeat" in text and re.search(r"shape \w+\[\]", text) else "boolean-mask"
    if re.search(_SIZED, text):
        return "shape"
    return "concrete"


def op_of(exception: BaseException, callee: str = "") -> Op:
    """What stopped the trace, from an exception's type and text; `user` where it is none of jax's."""
    text = str(exception)
    names = [kind.__name__ for kind in type(exception).__mro__]
    last = callee.rsplit(".", 1)[-1]
    if "TracerBoolConversionError" in names and last in ("compress", "extract"):
        return "boolean-mask"
    if "TracerBoolConversionError" in names and last in _SIZED_CALLEES:
        return "shape"
    for name in names:
        if name in _BY_TYPE:
            return _BY_TYPE[name]
    if "ConcretizationTypeError" in names:
        return concretization_op(text)
    if isinstance(exception, (KeyError, AttributeError, OSError)) and _WRITTEN.search(text):
        return "format"
    for pattern, op in _BY_TEXT:
        if re.search(pattern, text, re.S if op == "concrete" else 0):
            if op == "concrete" and last in _SIZED_CALLEES:
                return "shape"
            return op
    return "user"


_REFUSALS: tuple[tuple[str, Refusal], ...] = (
    (r"vmap got inconsistent sizes|vmap was requested to map its argument", "mapping"),
    (r"inputs \(input dtype that is a sub-dtype of", "gradient of integers"),
    (r"Gradient only defined for scalar-output functions.*Output was \(", "gradient of several results"),
    (r"of type '<class 'tuple'>' is not a valid JAX type", "gradient of several results"),
    (r"Gradient only defined for scalar-output functions", "gradient of many numbers"),
    (r"Pred must be a scalar", "array as predicate"),
    (r"Index type must be an integer", "index that is no integer"),
    (r"requires ndarray or scalar arguments, got <class", "tree for an array"),
)


_APART = re.compile(r"argument (\S+) of \S+ with shape \S+ and with device ids \[(\d+)\] on platform (\w+)")


def refusal(text: str) -> Refusal | None:
    """What one of jax's functions says that it does not take."""
    return next((what for pattern, what in _REFUSALS if re.search(pattern, text, re.S)), None)


def arguments_named(text: str) -> tuple[str, ...]:
    """Argument leaves that a message blames: `x`, `cfg['deep']`."""
    found: dict[str, None] = {}
    for match in _ARGUMENTS.finditer(text):
        for name in re.split(r", and |,? and |, ", match.group(1)):
            if name.strip():
                found[name.strip()] = None
    return tuple(found)


_NEEDS_A_VALUE = frozenset(
    "bool int float complex index array item tolist hash format boolean-mask slice shape concrete".split()
)


def needs_a_value(exception: BaseException) -> bool:
    """A traced value was asked for what only a value can tell: a branch, a shape, a number of Python's."""
    return op_of(exception) in _NEEDS_A_VALUE


def numbers_after(prefix: str, exception: BaseException) -> list[int]:
    """The numbers in the names of this form that a message holds: 3 for `_dyn3`."""
    return sorted({int(n) for n in re.findall(rf"\b{prefix}(\d+)\b", str(exception))})


def classes_named(text: str) -> tuple[str, ...]:
    """Names of the classes that a message speaks of: `Point` of `<class '__main__.Point'>`."""
    return tuple(dict.fromkeys(c.rpartition(".")[2] for c in re.findall(r"<class '([\w.<>]+)'>", text)))


TracedFunction = tuple[str, str, int, str]
"""Name, file, line and transformation."""


def traced_function(text: str) -> TracedFunction | None:
    """The function a message says was traced, or None."""
    match = _TRACED.search(text)
    if match is None:
        return None
    return match.group(1), match.group(2) or "", int(match.group(3) or 0), match.group(4)


def binding_leaves(text: str) -> tuple[str, ...]:
    """Arguments that a message about binding names: the path of a bad value, unknown static names."""
    found = [m.group(1).rstrip(".") for m in _AT_PATH.finditer(text)]
    match = re.search(r"(?:invalid argnames|Argument names) \{([^}]*)\}", text)
    if match:
        found += re.findall(r"'([^']+)'", match.group(1))
    return tuple(dict.fromkeys(found))


def refused_type(text: str) -> str:
    """The full name of the class of a value that is no argument for a compiled function."""
    found = re.search(r"(?:problematic value is|to hash an object) of type <class '([^']+)'>", text)
    return found[1] if found else ""


def function_called(text: str) -> str:
    """The function whose argument a message is about."""
    found = re.search(r"argument to <function (\S+) at ", text)
    return found[1] if found else ""


def is_of_devices(error: BaseException) -> bool:
    """Arrays of one program are bound to different devices."""
    return "incompatible devices" in str(error)


def is_of_shadows(error: BaseException) -> bool:
    """It speaks of a value as the recording run holds it, which no trace would."""
    return "Shadow" in str(error)


def suggests_a_name(text: str) -> bool:
    """It says already which name was probably meant."""
    return "Did you mean" in text


def is_of_keys(text: str) -> bool:
    """jax could not sort the keys of a dict."""
    return "sorting pytree dictionary keys" in text


COUNTED = "loop_carry"
"""The state of the loop that `fori_loop` is made of: a count and, where it may vary, a bound, then its own."""


_SHOWN = re.compile(r"Tracer[<(]|Traced<")


def shows_tracer(text: str) -> bool:
    """A traced value is spelled in it: `JitTracer(float32[])`."""
    return _SHOWN.search(text) is not None


def carry_names(text: str) -> tuple[str, ...]:
    """Names of the carry components that a mismatch message gives, as the body spells them."""
    found = [m.group(1) for pattern in (_CARRY, _COMPONENT) for m in pattern.finditer(text)]
    names = dict.fromkeys(re.split(r"[.\[]", name)[0] for name in found)
    return tuple(name for name in names if name != COUNTED)


_CREATED = re.compile(r"created on line (.+?):(\d+)(?::\d+)? \((.+?)\)")
_LEAKED_FROM = re.compile(r"when the value leaked was \S+ at (.+?):(\d+) traced for")


def leaked_value(text: str) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
    """(file, line) where a leaked value was made, and of the function then traced, from jax's message."""
    created, traced = _CREATED.search(text), _LEAKED_FROM.search(text)
    return (
        (created.group(1).strip(), int(created.group(2))) if created else None,
        (traced.group(1).strip(), int(traced.group(2))) if traced else None,
    )


def is_of_writing(error: BaseException) -> bool:
    """It says that an array may only be read."""
    return bool(re.search(r"read-?only|not writ(e)?able", str(error), re.IGNORECASE))


def is_index_by_list(text: str) -> bool:
    """`x[[i, j]]`, which jax does not take."""
    return "non-tuple sequence" in text


def has_no_at(text: str) -> bool:
    """`x.at[...]` of an array of NumPy."""
    return "has no attribute 'at'" in text


@dataclass(frozen=True)
class RaisedInCallback:
    """What a callback raised while the compiled program ran."""

    exception: str
    message: str
    frames: tuple[tuple[str, int, str], ...]
    """File, line and function, the innermost last."""


_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+), in (.+)$', re.M)


def raised_in_callback(error: BaseException) -> RaisedInCallback | None:
    """Of an error of the device's that hands on, as text, what a callback of the user's has raised."""
    text = str(error)
    frames = list(_FRAME.finditer(text)) if "error calling callback: Traceback" in text else []
    if not frames:
        return None
    name, _, words = text[frames[-1].end() :].strip().partition(":")
    return RaisedInCallback(
        name.strip(), words.strip(), tuple((m[1], int(m[2]), m[3].strip()) for m in frames)
    )


def is_interrupt(error: BaseException) -> bool:
    """An interrupt that came while a callback ran."""
    raised = raised_in_callback(error)
    return raised is not None and raised.exception == "KeyboardInterrupt"


def first_paragraph(exception: BaseException) -> str:
    """The message up to its first blank line or jax's advice, one line, at most 500 characters; what a colon
    announces belongs to it."""
    first, *rest = str(exception).split("\n\n")
    text = (f"{first} {rest[0]}" if first.rstrip().endswith(":") and rest else first).split("\nSee https://")[
        0
    ]
    return re.sub(r"\s+", " ", text).strip()[:500]


def is_of_jax(error: BaseException) -> bool:
    """The exception says that jax, not the user's arithmetic, could not go on."""
    tracing = ("Tracer", "Concretization", "NonConcrete", "UnexpectedTracer")
    text = str(error)
    refused = op_of(error) in ("carry", "invalid-type", "static-spec", "unhashable", *_NEEDS_A_VALUE)
    refused = refused or refuses_stores(error) or "ArrayImpl" in text and "unhashable type" in text
    overflow = "An overflow was encountered while parsing an argument" in text
    return refused or overflow or refusal(text) is not None or type(error).__name__.startswith(tracing)


_EXHAUSTED = re.compile(r"RESOURCE_EXHAUSTED|[Oo]ut of memory (?:allocating|while trying to allocate)")


def is_out_of_memory(error: BaseException) -> bool:
    """The device, or XLA on the host, had no memory left."""
    return _EXHAUSTED.search(str(error)) is not None and type(error).__name__.endswith("RuntimeError")


def is_too_deep(error: BaseException) -> bool:
    """Python's limit of recursion, of jax's compiled code too, for which it is an error of another kind."""
    return isinstance(error, RecursionError) or isinstance(
        error.__cause__ or error.__context__, RecursionError
    )


def bytes_asked(error: BaseException) -> int | None:
    """How much could not be had, where the text says it."""
    found = re.search(r"allocat\w+ ([\d.]+) ?([KMGT]?)(?:i?B|bytes)?\b", str(error))
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " ")) if found else None


def refuses_stores(error: BaseException) -> bool:
    """jax has refused to store into an array."""
    return "JAX arrays are immutable" in str(error)


_DTYPES = {"f": "float", "bf": "bfloat", "i": "int", "u": "uint", "c": "complex"}
_BOOLEANS = ("b", "bool", "pred")
_MISMATCH = re.compile(
    r"[Tt]he input carry(?: component)? ?(\S*?) has type (\w+)\[([\d,]*)\](?:\{[^}]*\})? "
    r"but the corresponding output carry component has type (\w+)\[([\d,]*)\]"
)


@dataclass(frozen=True)
class CarryMismatch:
    """A part of a loop's state that its body gives back as something else."""

    path: str
    """Where in the state it is: `[0]['x']`."""
    dtype: str
    """What it begins with: `int32`."""
    new_dtype: str
    shape: tuple[int, ...] | None
    """What the body gives, None where that is as it was."""


def carry_mismatches(text: str) -> list[CarryMismatch]:
    """Each part of a loop's state whose type changes, from jax's message."""
    return [
        CarryMismatch(
            re.sub(rf"^{COUNTED}\[\d+\]", "", m[1]), _full_dtype(m[2]), _full_dtype(m[4]),
            tuple(int(n) for n in m[5].split(",") if n) if m[3] != m[5] else None,
        )
        for m in _MISMATCH.finditer(" ".join(text.split()))
    ]  # fmt: skip


def _full_dtype(short: str) -> str:
    kind, bits = short.rstrip("0123456789"), short.lstrip("abcdefghijklmnopqrstuvwxyz")
    return "bool_" if short in _BOOLEANS else f"{_DTYPES[kind]}{bits}" if kind in _DTYPES and bits else short


def loop_complaint(text: str) -> Literal["pair", "condition", "structure", ""]:
    """What is wrong with the functions of a loop: the body of a scan gives no pair, a condition no single boolean,
    the state comes out with another structure."""
    if "must be a pair" in text:
        return "pair"
    if "must return a boolean scalar" in text:
        return "condition"
    return "structure" if "pytree structure" in text else ""


# -- what rules look at

_RETURNED = re.compile(
    r"function (\S+) at .*?:(\d+) traced for \w+ returned a value of type <class '([^']+)'>"
    r"(?: at output component (\S+?))?, which"
)
_BRANCHES = re.compile(
    r"output of (.+?)(?: at path (\S+))? has type (\S+) but .* output of (.+?) has type ([^,\s]+\[[\d,]*\])"
)
_STRUCTURES = re.compile(
    r"is a (?:<class '([\w.]+)'>|(tuple|list) of length (\d+)) but .*? is a "
    r"(?:<class '([\w.]+)'>|(tuple|list) of length (\d+))", re.S,
)  # fmt: skip
_MEANT = re.compile(r"has no attribute '(\w+)'.*Did you mean: '(\w+)'|^name '(\w+)'.*Did you mean: '(\w+)'")
_LOOPS = ("scan", "while_loop", "fori_loop", "cond", "switch")
_INTERNAL = ("Tracer", "jaxpr", "aval", "ShapedArray")


def with_facts(problem: Problem) -> Problem:
    """The problem with what its message says in fields."""
    return replace(problem, told=told(problem.message))


def told(text: str) -> Told:
    """What a message says of what rules ask for."""
    own_class = re.search(r"of type '?<class '__main__\.(\w+)'>'? is not a valid JAX type", text)
    positional = re.search(r"only accepts (\d+) positional", text)
    meant = _MEANT.search(text)
    plain = re.sub(r"\w*Tracer\(([^()]*)\)", r"\1", text)
    return Told(
        random_state=re.search(r"\b(Random|Rng)[A-Z]?\w*", text) is not None,
        other_trace="from different trace level" in text,
        tuple_refused="of type '<class 'tuple'>' is not a valid JAX type" in text,
        own_class=own_class[1] if own_class else "",
        unordered_keys=is_of_keys(text),
        is_returned="return" in text,
        returned=_refused_result(text),
        twice="twice" in text,
        positional=int(positional[1]) if positional else None,
        asks_memory=_of_memory(text),
        missing=re.search(r"Tracer'? (object )?has no attribute|Tracer'? object is not", text) is not None,
        meant=(meant[1] or meant[3], meant[2] or meant[4]) if meant else None,
        refusal=refusal(text),
        apart=tuple(
            (path, f"{platform.lower()}:{device}") for path, device, platform in _APART.findall(text)
        ),
        in_words="" if any(word in plain for word in _INTERNAL) else plain,
        carry=_carry(text),
    )


def _of_memory(text: str) -> bool:
    asked = r"attribute is not available on traced|The (?!__)\w+\(\) method was called on traced"
    return re.search(asked, text) is not None


def _refused_result(text: str) -> RefusedResult | None:
    found = _RETURNED.search(text)
    return RefusedResult(found[1], int(found[2]), found[3], found[4] or "") if found else None


def _carry(text: str) -> Carry:
    predicate = re.search(r"ShapedArray\((\S+?)\)", text)
    types = re.search(r"has type (\S+) but .* has type ([^,\s]+\[[\d,]*\])", text)
    keys = re.search(r"symmetric difference of key sets: \{([^}]*)\}", text)
    differ = _BRANCHES.search(text)
    return Carry(
        complaint=loop_complaint(text),
        predicate=predicate[1] if predicate else "",
        types=(types[1], types[2]) if types else None,
        structures=_structures(text),
        keys=keys[1] if keys else "",
        branches=BranchOutputs(differ[1], differ[3], differ[4], differ[5], differ[2] or "")
        if differ
        else None,
        functions=tuple(name for name in _LOOPS if name in text),
    )


def _structures(text: str) -> tuple[Structure, Structure] | None:
    found = _STRUCTURES.search(text)
    if found is None:
        return None

    def part(name: str | None, sequence: str | None, length: str | None) -> Structure:
        return Structure(name or sequence or "", int(length) if length else None)

    return part(found[1], found[2], found[3]), part(found[4], found[5], found[6])
