"""Sizes and lengths that a compiled program has to know: static ones, windows, masks, padding."""
