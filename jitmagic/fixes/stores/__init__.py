"""Arrays, dicts and lists that a function changes in place: bound anew, and given back to who sees the change."""
