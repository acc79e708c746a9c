"""Every contact with jax's tracing."""
