"""Families about objects: arguments and results of types that jax does not take apart, or finds no hash of."""
