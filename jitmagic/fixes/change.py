"""Where a correction starts from, what it comes to, and what it promises. A family is a function from the one to the
others: it looks at the text, writes changes, and runs nothing."""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from jitmagic.evidence import Evidence
from jitmagic.source import scope
from jitmagic.source.edits import Edits, FunctionNode, Text
from jitmagic.source.modules import Modules
from jitmagic.source.pattern import Filling, Template
from jitmagic.trial.claims import Claim
from jitmagic.trial.verify import Attempt

N = TypeVar("N", bound=ast.AST)


class Tag(enum.Enum):
    """What the search and the advice have to know about a change."""

    AS_SEEN = "writes down a size as it was in the calls seen"
    CALLBACK = "hands something to the host while the program runs"
    STATIC_DATA = "makes data static"
    ENDS = "ends only if the plain function does, which has to run first"


@dataclass(frozen=True)
class Change:
    """A correction that has still to be proved."""

    title: str
    edits: Edits | None = None
    """Of the cell."""
    later: tuple[str, ...] | None = None
    """All of the later cells as they are now, where calls in them change their form."""
    calls: tuple[str, ...] | None = None
    """Of the older kind: the calls alone."""
    static: tuple[str, ...] = ()
    """Parameters that are static besides."""
    dyn: tuple[str, ...] = ()
    """Variables that are dynamic besides."""
    unstatic: tuple[str, ...] | None = None
    """What alone is static now, by name."""
    functions: tuple[str, ...] = ()
    """What the magic is to take instead (`-f`)."""
    claim: Claim = Claim()
    cost: str = ""
    """What it costs, in words."""
    sure: bool = True
    """False where the values seen do not settle that it is right for others; it is not called safe then."""
    tags: frozenset[Tag] = frozenset()
    text: str | None = None
    """Of the older kind: the whole cell anew."""


@dataclass(frozen=True)
class Shape:
    """What an expression was in a run without jit: shape, dtype, and the value of a whole number."""

    shape: tuple[int, ...]
    dtype: str
    value: int | None = None
    type: str = ""


@dataclass(frozen=True)
class Spot:
    """The stretch of a cell that a finding is about, with all that a family may ask. Lines count from 1 in the
    cell's body, columns in characters."""

    text: Text
    kind: str
    line: int
    column: int = -1
    end_line: int = 0
    end_column: int = 0
    names: tuple[str, ...] = ()
    """Culprits, and the local names of the expression."""
    function: str = ""
    """The function that is checked: `f` or `Model.step`."""
    message: str = ""
    """What jax said, for `tracing.messages` to read."""
    modules: Modules = field(default_factory=Modules)
    static: frozenset[str] = frozenset()
    defaults: frozenset[str] = frozenset()
    """Parameters that no call seen gave: Python's own values."""
    scalars: tuple[str, ...] = ()
    """Parameters that got Python numbers in every call seen."""
    numpy_arguments: frozenset[str] = frozenset()
    calls: tuple[str, ...] = ()
    """Sources of the cells that call the function."""
    from_outside: Callable[[str], str] = lambda path: path
    """The notebook's name for `self.x` of a bound method."""
    probe: Callable[[str], Sequence[Shape]] = lambda cell: ()
    """Runs a cell in which expressions are wrapped in `__seen(...)` without jit; what they were."""
    outputs: Callable[[str], Sequence[Any]] = lambda cell: ()
    """Runs a cell in which `__outputs([f, g], *operands)` stands; shapes and dtypes of what the functions return."""
    attempt: Attempt = Attempt("", "")
    """The cell with its magic line, and the cells after it."""
    evidence: Evidence | None = None

    @property
    def later(self) -> tuple[Text, ...]:
        """The cells after this one, and the calls of its magic line."""
        return tuple(map(Text, self.attempt.later))

    @property
    def declared_static(self) -> tuple[str, ...]:
        """What the user has declared static by name."""
        return self.evidence.options.static_argnames if self.evidence is not None else ()

    @property
    def declared_dyn(self) -> tuple[str, ...]:
        """What the user has declared dynamic."""
        return (self.evidence.options.dyn or ()) if self.evidence is not None else ()

    @cached_property
    def path(self) -> list[ast.AST]:
        """The nodes at the place, from the innermost outwards."""
        return self.text.at(self.line, self.column, self.end_line, self.end_column)

    @property
    def node(self) -> ast.AST:
        """The innermost node at the place. Raises LookupError where there is none."""
        if not self.path:
            raise LookupError("nothing stands at the place")
        return self.path[0]

    def here(self, *kinds: type[N]) -> N | None:
        """The innermost node of these types around the place, or at it."""
        return next((n for n in self.path if isinstance(n, kinds)), None)

    def on_line(self, *kinds: type[N]) -> list[N]:
        """Nodes of these types around the place, then others on its line or lines."""
        found = [n for n in self.path if isinstance(n, kinds)]
        return found + [
            n for n in self.text.within(self.text.tree, *kinds)
            if n.lineno <= self.line <= (n.end_lineno or 0)  # type: ignore[attr-defined]
            and (n.lineno == self.line or not hasattr(n, "body")) and n not in found  # type: ignore[attr-defined]
        ]  # fmt: skip

    @cached_property
    def innermost(self) -> FunctionNode | None:
        """The innermost function around the place."""
        return self.text.function(self.path[0]) if self.path else None

    @cached_property
    def outermost(self) -> FunctionNode | None:
        """The outermost function around the place."""
        return self.text.outermost(self.path[0]) if self.path else None

    @cached_property
    def known(self) -> frozenset[str]:
        """Names that are no traced values in the outermost function: static ones, defaults that stand."""
        own = self.outermost is not None and self.outermost.name == self.function.rpartition(".")[2]
        return self.static | self.defaults if own else self.static

    @cached_property
    def jax_names(self) -> frozenset[str]:
        """The notebook's names for jax, its modules and its functions."""
        return frozenset(k for k, v in self.modules.names.items() if v.partition(".")[0] == "jax") | {
            "jnp",
            "jax",
        }

    @cached_property
    def traced(self) -> set[str]:
        """Names in the outermost function that may be traced, by their flow through it."""
        if self.outermost is None:
            return set(self.names)
        own = scope.traced_names(self.outermost, self.known, self.jax_names)
        return own | {n for n in self.names if n.isidentifier()}

    def is_traced(self, node: ast.AST) -> bool:
        """The value of an expression may be traced."""
        return scope.traced_in(node, self.traced)

    def code(self, node: ast.AST) -> str:
        """Source of a node as written."""
        return self.text.code(node)

    def write(self, template: str, text: Text | Edits | None = None, /, **holes: Filling) -> str:
        """A template filled (`pattern.Template`), with nodes of this cell or of `text`."""
        return Template(template).fill(self.modules, text or self.text, **holes)

    def edits(self) -> Edits:
        """No changes yet."""
        return Edits(self.text)

    def fresh(self, *wanted: str) -> str:
        """A name that is free in the cell and in the notebook's modules."""
        return self.text.fresh(*wanted, taken=self.modules.names)

    def full(self, node: ast.AST) -> str:
        """`jax.numpy.where` for the function that a call calls, or a name; nothing for what is no library's."""
        return self.modules.full(node.func if isinstance(node, ast.Call) else node)

    def seen(self, node: ast.AST) -> list[Shape]:
        """What an expression was, each time that it was reached in runs without jit."""
        wrapped = Edits(self.text).replace(node, f"__seen({self.code(node)})")
        return list(self.probe(wrapped.result()))


Family = Callable[[Spot], Iterable[Change]]
