"""Kinds of findings that others than the rules speak of."""

from __future__ import annotations

OWN_ERROR = "user-error"
"""The function itself raises, with and without jit."""

DEEDS = {
    OWN_ERROR: "raises an error of its own",
    "leaked-tracer": "lets a traced value escape",
    "donated-reuse": "uses a donated array again",
    "nan": "gives NaN or infinity",
    "jit-differs-from-eager": "gives other results than without jit",
    "dtype-truncation": "loses precision",
}
"""What a function does whose first error is of this kind; one of another kind can't be compiled."""

CAUSES = {
    "tracer-bool": "branches on a traced value",
    "tracer-int": "needs the value of a traced number",
    "tracer-array-conversion": "takes a traced value out of jax",
    "dynamic-shape": "makes an array whose size depends on traced values",
    "tracer-hash": "uses a traced value as a key",
    "tracer-format": "formats a traced value",
    "in-place-update": "writes into an array",
    "invalid-jax-type": "takes what is no array",
    "unhashable-static": "has a static argument without a hash",
    "unregistered-pytree": "takes an object that jax can't take apart",
    "bad-static-spec": "names arguments that do not fit",
    "carry-mismatch": "changes the form of a loop's state",
    "size-argument": "needs a size before the values are known",
}
"""Why a function can't be compiled, behind the number of the line."""
