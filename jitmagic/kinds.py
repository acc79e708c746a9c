"""Kinds of findings that others than the rules speak of."""

from __future__ import annotations

OWN_ERROR = "user-error"
"""The function itself raises, with and without jit."""

OTHER_RESULTS = "jit-differs-from-eager"
"""Results that the plain function does not give."""

RANDOM = "hidden-rng"
"""Random numbers that are drawn once."""

RAISED = frozenset({OWN_ERROR, "dtype-truncation"})
"""Kinds whose exception, where there is one, says what is wrong."""

CAPTURED = frozenset({"captured-constant", "captured-scalar"})
"""What a program holds as constants."""

ADVICE = frozenset({"device-wait", "missing-donation"})
"""Notes whose corrections are looked for: nothing is wrong, and the cell could cost less."""

STALE = "stale-constant"
"""A constant that has changed since: the cause says more than the values that come of it."""

DEEDS = {
    OWN_ERROR: "raises an error of its own",
    "leaked-tracer": "lets a traced value escape",
    "donated-reuse": "uses a donated array again",
    "out-of-memory": "does not fit into memory",
    "nan": "gives NaN or infinity",
    OTHER_RESULTS: "gives other results than without jit",
    "dtype-truncation": "loses precision",
}
"""What a function does whose first error is of this kind, in front of the number of the line; one of another kind can't
be compiled."""

CAUSES = {
    "tracer-bool": "branches on a traced value",
    "tracer-int": "needs the value of a traced number",
    "tracer-array-conversion": "takes a traced value out of jax",
    "dynamic-shape": "makes an array whose size depends on traced values",
    "tracer-hash": "uses a traced value as a key",
    "tracer-format": "formats a traced value",
    "in-place-update": "writes into an array",
    "invalid-jax-type": "takes {name}, which is no array of numbers",
    "unhashable-static": "has a static argument without a hash",
    "unregistered-pytree": "takes an object that jax can't take apart",
    "bad-static-spec": "names arguments that do not fit",
    "carry-mismatch": "changes the form of a loop's state",
    "size-argument": "needs a size before the values are known",
    "leaked-tracer": "leaves a traced value in {name}",
    "donated-reuse": "uses {name} again, which was donated",
    STALE: "goes on with an old {name}",
    "large-constant": "copies {name} into the program",
    "captured-constant": "holds {name} as it was",
    "captured-scalar": "holds {name} as it was",
    "state-write": "changes {name} as a side effect",
    OTHER_RESULTS: "takes an error of jax for an answer",
    "lossy-pytree": "loses a part of {name}",
    "array-in-aux-data": "keeps an array where jax compares settings",
    "hidden-rng": "draws the same numbers at every call",
    "frozen-side-effect": "runs once, while jax traces",
    "trace-time-print": "prints only while jax traces",
    "key-reuse": "uses a random key twice",
    "recompile-static": "compiles again for each new {name}",
    "recompile-shape": "compiles again for each new shape",
    "recompile-weak-type": "compiles again for a Python number",
    "recompile-new-function": "makes a new compiled function each time",
    "unrolled-loop": "is written out iteration by iteration",
    "device-wait": "waits for the device in each iteration",
    "nan": "gives NaN or infinity",
    "dtype-truncation": "loses precision",
    "out-of-bounds": "takes an index out of bounds",
    "unusable-donation": "donates {name}, whose memory can't be used",
    "out-of-memory": "holds more than there is",
    "missing-donation": "could donate {name}",
    "unused-result": "throws a result away",
}
"""What is the matter, behind the number of the line; `{name}` is the first culprit."""
