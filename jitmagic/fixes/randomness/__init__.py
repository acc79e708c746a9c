"""Corrections for random numbers: keys that are used twice, keys and draws that are no arguments."""
