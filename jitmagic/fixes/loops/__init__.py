"""Families about loops: lowered to `fori_loop`, `while_loop`, `scan` and `vmap`, and what those carry."""
