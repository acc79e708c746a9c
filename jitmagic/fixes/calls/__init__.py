"""Calls of functions that jax does not take, or takes in another form."""
