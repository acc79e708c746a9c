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
"""What a function does whose first error is of this kind; one of another kind fails to trace."""
