"""What budgets are told by: seconds of work, so that a busy machine changes no answer."""

from __future__ import annotations

import time

_IDLE = 0.25
"""What a second counts in which this process does nothing: it waits for a device, sleeps, or has no processor."""
_STEP = 0.02
"""Seconds between two looks: some systems count processor time in steps of that length."""


class WorkClock:
    """Seconds of work of this process: a second that passes counts as much as the process had of a processor, one at
    most."""

    def __init__(self) -> None:
        self.state = 0.0, time.monotonic(), time.process_time()
        """The seconds at the last look, and both clocks then: replaced as a whole, so that threads need no lock."""

    def __call__(self) -> float:
        """The seconds so far."""
        done, wall, used = self.state
        now, used_now = time.monotonic(), time.process_time()
        if now - wall < _STEP:
            return done
        done += counted(now - wall, used_now - used)
        self.state = done, now, used_now
        return done

    def waited(self, seconds: float) -> None:
        """So long something has waited for what may never come: that counts in full."""
        done, wall, used = self.state
        self.state = done + (1 - _IDLE) * seconds, wall, used


def counted(passed: float, used: float) -> float:
    """What counts of the seconds that have passed, where so many of a processor were used."""
    return min(passed, max(used, _IDLE * passed))


clock = WorkClock()
