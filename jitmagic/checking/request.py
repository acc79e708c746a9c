"""What a magic line asks for, and one cell that it was asked of."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jitmagic.options import JitOptions
from jitmagic.settings import CellSource, Settings
from jitmagic.source import cell as cells

if TYPE_CHECKING:
    from jitmagic.checking.checker import Checker
    from jitmagic.report import FunctionReport
    from jitmagic.trial.beginning import Beginning


@dataclass(frozen=True)
class Request:
    """What one magic line asks for."""

    kind: str
    """`jit` or `jitcheck`."""
    functions: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    options: JitOptions = JitOptions()
    dyn: str | None = None
    settings: Settings = Settings()
    off: bool = False
    quiet: bool = False
    give_back: bool = False
    store_in: str | None = None
    save: str | None = None
    compare: str | None = None
    """A saved report to compare the timings with."""
    fix: bool = False
    widget: bool = False


@dataclass
class Run:
    """One `%%jit` or `%%jitcheck` cell: what it asked for and what it defined."""

    request: Request
    source: CellSource
    targets: tuple[str, ...]
    checkers: dict[str, Checker] = field(default_factory=dict)
    earlier: dict[str, tuple[FunctionReport, str]] = field(default_factory=dict)
    """What an earlier run of the same functions gave, and what that run is called."""
    beginning: Beginning | None = None
    """The notebook as it was before the cell; None for what cannot be run again."""
    not_kept: str = ""
    """Why that was not remembered."""
    looked_at: tuple[int, ...] = ()
    """How often its functions had been called when what they leave behind was looked at."""
    later: list[str] = field(default_factory=list)
    """Sources of the cells that ran since, in order."""


def left_aside(request: Request, tree: ast.Module) -> set[str]:
    """Functions that the magic takes only where it names them, for others call them than the user."""
    return cells.not_for_jit(tree) | (cells.run_elsewhere(tree) if request.kind == "jit" else set())


def taken(request: Request, tree: ast.Module) -> tuple[str, ...]:
    """The functions of a cell that its magic takes: those that it names, else every function of the top level but
    those that others call than the user."""
    if request.functions:
        return request.functions
    usable = [d.name for d in cells.definitions(tree) if not d.is_generator and not d.is_async]
    aside = left_aside(request, tree)
    if request.kind != "jit":
        aside |= cells.beside_compiled(tree)
    functions = tuple(n for n in usable if "." not in n and n not in aside)
    if request.kind == "jit" and not cells.uses_jit(tree):
        functions += tuple(n for n in cells.made_by(tree, cells.factories(tree)) if n not in functions)
    return functions


def may_be_rerun(source: str) -> bool:
    """A later cell that can be run again with the one before it: no magic of its own."""
    return not source.lstrip().startswith(("%", "!"))
