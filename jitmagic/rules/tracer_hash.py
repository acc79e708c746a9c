"""# JM105 tracer-hash

## What it is

A traced value is used as a key: in a dict or set, as the argument of a function under
`functools.lru_cache`, or as a static argument of another compiled function.

## Why it happens

Looking up a key needs the value. While `jax.jit` traces there is none, so traced values cannot be hashed. A
cache around a function of arrays would also be wrong if it worked: it would keep placeholders of one trace
and hand them out in the next.

Leave the cache out (a compiled function needs none: it is traced once), keep keys to shapes and static
values, or write a table as an array and index it.

## A cell that fails

```python
import functools
import jax
import jax.numpy as jnp

@functools.lru_cache
def coefficient(alpha):
    return jnp.exp(-alpha) / (1.0 + alpha)

@jax.jit
def apply_filter(x, alpha):
    return coefficient(alpha) * x

apply_filter(jnp.arange(3.0), 0.5)
```

## The cell mended

```python
import jax
import jax.numpy as jnp

def coefficient(alpha):
    return jnp.exp(-alpha) / (1.0 + alpha)

@jax.jit
def apply_filter(x, alpha):
    return coefficient(alpha) * x

apply_filter(jnp.arange(3.0), 0.5)
```

## When to ignore it

Never: the function cannot be compiled like this.
"""

from __future__ import annotations

from collections.abc import Iterator

from jitmagic.evidence import Evidence
from jitmagic.report import Finding
from jitmagic.rules import value_asked
from jitmagic.rules.base import Rule, Thresholds
from jitmagic.rules.classify import of_kind
from jitmagic.rules.words import expression, quoted


def find(evidence: Evidence, settings: Thresholds) -> Iterator[Finding]:
    """One finding for each place that uses a traced value as a key."""
    for problem in of_kind(evidence, RULE.kind):
        text = expression(problem)
        if problem.construct in ("subscript", "in"):
            head = f"{quoted(text)} looks up a key and needs its value"
            rewrite = "write the table as an array and index that, or choose with `jax.lax.switch`"
        elif problem.callee or problem.construct == "call":
            head = f"{quoted(problem.callee or text)} keeps results by the values of its arguments"
            head += " and needs them"
            rewrite = "leave the cache out: what is compiled is traced once and needs none"
        else:
            head = f"{quoted(text) if text else 'this'} uses a value as a key and needs it"
            rewrite = "use shapes or static values as keys"
        yield value_asked.finding(RULE, evidence, problem, head, rewrite)


RULE = Rule("JM105", "tracer-hash", "error", find)
