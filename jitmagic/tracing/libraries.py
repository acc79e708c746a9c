"""The libraries around jax by the names of their packages."""

from __future__ import annotations

LIBRARIES = frozenset(
    """flax optax equinox haiku chex jaxtyping einops brainpy brainstate brainunit brainevent numpyro distrax diffrax
    jaxopt optimistix lineax blackjax""".split()
)
"""Whose functions make values, or change state that is put back."""
RESULTS_ALONE = frozenset(("jax", "optax", "equinox"))
"""Whose functions have no effect but their result."""
