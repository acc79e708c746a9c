"""What a run changes outside of Python's variables: positions in files, the environment, settings of libraries.

Each has an entry of a snapshot, which puts it back where that can be done.
"""

from __future__ import annotations

import contextvars
import csv
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jitmagic.state.entries import Change, Entry, Origin
from jitmagic.state.values import MISSING, is_a

_READER = type(csv.reader([]))


def is_drained(value: Any) -> bool:
    """An object that a run takes from, and that cannot be asked where it stands."""
    return is_a(value, _READER)


def is_file(value: Any) -> bool:
    """An open file, or a buffer in memory that is used as one."""
    return is_a(value, io.IOBase) and value not in (sys.stdout, sys.stderr, sys.stdin)


class File(Entry):
    """Where a file stands, and what stands behind that point in a buffer in memory."""

    def __init__(self, file: Any, path: str, origin: Origin) -> None:
        self.file, self.path, self.origin = file, path, origin
        self.position = self._now()
        self.content = file.getvalue() if is_a(file, io.StringIO | io.BytesIO) and not file.closed else None

    @property
    def restorable(self) -> bool:
        return self.position is not None

    def _now(self) -> int | None:
        try:
            if self.file.closed or not self.file.seekable():
                return None
            return int(self.file.tell())
        except (OSError, ValueError):  # a file that is read line by line does not tell where it stands
            return None

    def changes(self) -> Iterator[Change]:
        if self._now() != self.position:
            yield self.path, self.origin, "changed", self.file, self.file

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        if only or self.position is None or self.file.closed or self._now() == self.position:
            return
        if self.content is not None:
            self.file.seek(0)
            self.file.truncate()
            self.file.write(self.content)
        self.file.seek(self.position)
        if self.content is None and self.file.writable():
            self.file.truncate()


class Context(Entry):
    """The value of a context variable, where it has one."""

    def __init__(self, variable: contextvars.ContextVar[Any], path: str, origin: Origin) -> None:
        self.variable, self.path, self.origin = variable, path, origin
        self.old = variable.get(MISSING)

    def changes(self) -> Iterator[Change]:
        now = self.variable.get(MISSING)
        if now is not self.old:
            yield self.path, self.origin, "changed", self.old, now

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        now = self.variable.get(MISSING)
        if self.old is not MISSING and now is not self.old and (not only or only(now)):
            self.variable.set(self.old)


class Process(Entry):
    """Settings of the whole process: the environment, the module path, the directory, how NumPy warns and prints."""

    path = "os.environ"

    def __init__(self) -> None:
        self.environment, self.modules = dict(os.environ), list(sys.path)
        self.directory = _directory()
        self.warns, self.prints = np.geterr(), np.get_printoptions()
        self.recursion = sys.getrecursionlimit()

    def restore(self, only: Callable[[Any], bool] | None) -> None:
        if only:
            return
        if os.environ != self.environment:
            for name in os.environ.keys() - self.environment.keys():
                del os.environ[name]
            for name, value in self.environment.items():
                if os.environ.get(name) != value:
                    os.environ[name] = value
        if sys.path != self.modules:
            sys.path[:] = self.modules
        if self.directory and _directory() != self.directory:
            os.chdir(self.directory)
        if np.geterr() != self.warns:
            np.seterr(**self.warns)
        if np.get_printoptions() != self.prints:
            np.set_printoptions(**self.prints)
        if sys.getrecursionlimit() != self.recursion:
            sys.setrecursionlimit(self.recursion)


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""
