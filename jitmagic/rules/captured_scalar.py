"""# JM202 captured-scalar

## What it is

The function reads a Python number (or string, or flag) that is not one of its arguments, such as a global
step size. Its value is written into the compiled program.

## Why it happens

`jax.jit` runs the Python code once. `step_size * g` becomes `0.1 * g` in the program, and a later
`step_size = 0.01` changes nothing.

For settings that never change this is right, and it is reported as a note. It is a warning where the
notebook changes the variable elsewhere. Then pass it as an argument, or declare it dynamic (`--dyn
step_size`).

## A cell with the problem

```python
import jax
import jax.numpy as jnp

step_size = 0.1

@jax.jit
def descend(w):
    return w - step_size * w

first = descend(jnp.float32(1.0))
step_size = 0.01
assert descend(jnp.float32(1.0)) == first  # still the old step size
descend(jnp.float32(1.0))
```

## The cell mended

```python
import jax
import jax.numpy as jnp

@jax.jit
def descend(w, step_size):
    return w - step_size * w

first = descend(jnp.float32(1.0), 0.1)
assert descend(jnp.float32(1.0), 0.01) != first
descend(jnp.float32(1.0), 0.01)
```

## When to ignore it

When the number is a setting of the notebook that stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence, Variable
from jitmagic.report import Finding, Severity
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.captured import as_inputs, first_read, paths, quiet
from jitmagic.rules.words import agree


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """At most a warning for those that change elsewhere, and a note for the others."""
    scalars = quiet(evidence, settings, "scalar")
    if harmful := [v for v in scalars if v.rebound]:
        yield _finding(evidence, harmful, "warning")
    if rest := [v for v in scalars if not v.rebound]:
        yield _finding(evidence, rest, "note")


def _finding(evidence: Evidence, variables: list[Variable], severity: Severity) -> Finding:
    names = paths(variables)
    values = ", ".join(f"`{v.path} = {v.value}`" if v.value else f"`{v.path}`" for v in variables[:6])
    message = f"the value of {values} is written into the compiled `{evidence.function.name}`"
    help = "nothing to do while it is a setting that stays what it is"
    if severity == "warning":
        message += f", but the notebook changes {agree(names, 'it', 'them')} elsewhere"
        help = as_inputs(names)
    return RULE.finding(
        evidence, message, where=first_read(variables), culprits=names, severity=severity, help=help
    )


RULE = Rule("JM202", "captured-scalar", "note", find)
