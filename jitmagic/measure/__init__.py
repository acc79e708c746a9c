"""What a call costs and whether its result is right: timing, cost per line, folding, jit against eager."""
