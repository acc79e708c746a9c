"""Families for the options of `jax.jit`: static and donated arguments, and which functions are compiled."""
