"""What goes wrong without an error: evidence from the traced program, the source, the arguments, the events."""
