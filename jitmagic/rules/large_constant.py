"""# JM204 large-constant

## What it is

The compiled program holds a large array (1 MB or more) as a constant, because the function reads it without
taking it as an argument.

## Why it happens

The array is copied into the program. Compiling gets slow and takes memory for each compiled version, and
XLA may try to compute with the array while compiling: a function without arguments can be folded into its
result, which also makes its timing meaningless.

Pass the array as an argument: it is then neither copied nor compiled in. `--dyn data` does the same without
a change of the code. The limit is `%config JitMagics.large_constant`.

## A cell with the problem

```python
import jax
import jax.numpy as jnp

data = jnp.ones((1000, 500))

def column_means():
    return jnp.mean(data, axis=0)

program = jax.make_jaxpr(column_means)()
assert sum(c.nbytes for c in program.consts) >= 2_000_000
jax.jit(column_means)()
```

## The cell mended

```python
import jax
import jax.numpy as jnp

data = jnp.ones((1000, 500))

@jax.jit
def column_means(data):
    return jnp.mean(data, axis=0)

program = jax.make_jaxpr(column_means)(data)
assert sum(c.nbytes for c in program.consts) == 0
column_means(data)
```

## When to ignore it

When the function is compiled once, compiles fast enough, and memory is plentiful.
"""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.captured import as_inputs, constants, first_read, is_large, paths
from jitmagic.rules.words import agree, listed
from jitmagic.units import size


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for all large constants, the largest first."""
    large = [v for v in constants(evidence, "array") if is_large(v, settings) and not v.stale]
    large.sort(key=lambda v: -(v.bytes or 0))
    if not large:
        return
    names = paths(large)
    total = sum(v.bytes or 0 for v in large)
    yield RULE.finding(
        evidence,
        f"{listed(names)} ({size(total)}) {agree(names, 'is', 'are')} copied into the compiled program of "
        f"`{evidence.function.name}`, which makes compiling slow and takes memory for each version",
        where=first_read(large),
        culprits=names,
        help=as_inputs(names),
    )


RULE = Rule("JM204", "large-constant", "warning", find)
