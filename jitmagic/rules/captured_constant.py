"""# JM201 captured-constant

## What it is

The function reads an array that is not one of its arguments: a global, an attribute, a variable of an
enclosing function. The compiled program holds it as a constant.

## Why it happens

`jax.jit` reads such a variable once, while tracing, and writes the array into the program. If the variable
is bound to another array later, the compiled function goes on with the old one and says nothing.

For data that never changes this is right, and it is reported as a note. It is a warning where the notebook
changes the variable elsewhere, or where nothing but constants goes into the program. Then pass the array as
an argument, or declare it dynamic (`--dyn w`): it is read anew at each call.

## A cell with the problem

```python
import jax
import jax.numpy as jnp

w = jnp.array([1.0, 2.0])

@jax.jit
def loss():
    return jnp.sum(w**2)

first = loss()
w = w - 1.0
assert loss() == first  # still computed from the old weights
loss()
```

## The cell mended

```python
import jax
import jax.numpy as jnp

w = jnp.array([1.0, 2.0])

@jax.jit
def loss(w):
    return jnp.sum(w**2)

first = loss(w)
w = w - 1.0
assert loss(w) != first
loss(w)
```

## When to ignore it

When the array stays what it is: a grid, a mask, a table, data loaded once.
"""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Variable
from jitmagic.report import Finding, Severity
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.captured import as_inputs, everything_is_constant, first_read, paths, quiet
from jitmagic.rules.words import agree, listed


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """At most a warning for those that change elsewhere, and a note for the others."""
    arrays = quiet(evidence, settings, "array", "object")
    alone = everything_is_constant(evidence) and any(v.type == "array" for v in arrays)
    harmful = arrays if alone else [v for v in arrays if v.rebound]
    if harmful:
        yield _finding(evidence, harmful, "warning", alone)
    if rest := [v for v in arrays if v not in harmful]:
        yield _finding(evidence, rest, "note", alone)


def _finding(evidence: Evidence, variables: list[Variable], severity: Severity, alone: bool) -> Finding:
    names, function = paths(variables), evidence.function.name
    once = f"read once, while jax traces `{function}`, and then constant"
    fixed = f"{listed(names)} {agree(names, 'is', 'are')} {once}"
    if severity == "note":
        message = f"{fixed} in the compiled program"
        help = f"nothing to do while {agree(names, 'it stays what it is', 'they stay what they are')}"
    elif alone:
        message = f"{fixed}: the compiled `{function}` has no input and gives the same result for ever"
        help = as_inputs(names)
    else:
        message = f"{fixed}, but the notebook changes {agree(names, 'it', 'them')} elsewhere"
        help = as_inputs(names)
    return RULE.finding(
        evidence, message, where=first_read(variables), culprits=names, severity=severity, help=help
    )


RULE = Rule("JM201", "captured-constant", "note", find)
