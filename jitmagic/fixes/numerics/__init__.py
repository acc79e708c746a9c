"""Families for numbers: what is not finite, does not fit into 32 bits, or has a type of Python's."""
