"""Where a correction starts from, what it comes to, and what it promises. A family is a function from the one to the
others: it looks at the text, writes changes, and runs nothing."""

from __future__ import annotations

import ast
import enum
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from jitmagic.evidence import Evidence, Function, Leaf, Write
from jitmagic.source import passing, scope, signature
from jitmagic.source.edits import Edits, FunctionNode, Text
from jitmagic.source.modules import Modules
from jitmagic.source.pattern import Filling, Template
from jitmagic.trial.claims import Claim
from jitmagic.trial.verify import Attempt

N = TypeVar("N", bound=ast.AST)
NOTHING = Evidence(Function("", "", "", 0))
"""Of a function of which nothing is known."""


class Tag(enum.Enum):
    """What the search and the advice have to know about a change."""

    AS_SEEN = "writes down a size as it was in the calls seen"
    CALLBACK = "hands something to the host while the program runs"
    VARIABLE = "puts a framework's variable where an array or a number was"
    GUESS = "rests on a name: its proof alone shows that it is right, and without one it is not offered"
    UNTRIED = "asks something that may wait, or change something outside: it is not run"


@dataclass(frozen=True)
class Change:
    """A correction that has still to be proved."""

    title: str
    edits: Edits | None = None
    """Of the cell."""
    later: tuple[str, ...] | None = None
    """All of the later cells as they are now, where calls in them change their form."""
    static: tuple[str, ...] = ()
    """Parameters that are static besides; `args[1]` for one that has no name."""
    dyn: tuple[str, ...] = ()
    """Variables that are dynamic besides."""
    unstatic: tuple[str, ...] | None = None
    """What alone is static now, by name."""
    passed: tuple[tuple[str, str], ...] = ()
    """Parameters that are new, each with the expression that a call passes for it, in the function's own names."""
    donated: tuple[str, ...] | None = None
    """What alone is donated now, by name."""
    functions: tuple[str, ...] = ()
    """What the magic is to take instead (`-f`)."""
    claim: Claim = Claim()
    cost: str = ""
    """What it costs, in words."""
    sure: bool = True
    """False where the values seen do not settle that it is right for others; it is not called safe then."""
    tags: frozenset[Tag] = frozenset()

    @classmethod
    def of_cells(cls, title: str, cells: Sequence[Edits], **rest: Any) -> Change:
        """Changes of the cell, which is the first, and of the later ones."""
        return cls(title, cells[0], tuple(cell.result() for cell in cells[1:]), **rest)


@dataclass(frozen=True)
class Shape:
    """What an expression was in a run without jit: shape, dtype, and the value of a whole number."""

    shape: tuple[int, ...]
    dtype: str
    value: int | None = None
    type: str = ""
    text: str = ""
    """Of a text."""


@dataclass(frozen=True)
class AttributeTypes:
    """What an attribute of objects was, as far as it was seen: types of the leaves (`array`, `float`, `function`,
    `Point`), of itself, and whether it has a hash."""

    leaves: frozenset[str]
    types: frozenset[str]
    hashable: bool


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
    declared_static: tuple[str, ...] = ()
    """What is static, by name, in order."""
    defaults: frozenset[str] = frozenset()
    """Parameters that no call seen gave: Python's own values."""
    scalars: tuple[str, ...] = ()
    """Parameters that got Python numbers in every call seen."""
    numpy_arguments: frozenset[str] = frozenset()
    from_outside: Callable[[str], str] = lambda path: path
    """The notebook's name for `self.x` of a bound method."""
    probe: Callable[[str], Sequence[Shape]] = lambda cell: ()
    """Runs a cell in which expressions are wrapped in `__seen__(...)` without jit; what they were."""
    outputs: Callable[[str], Sequence[Any]] = lambda cell: ()
    """Runs a cell in which `__outputs__([f, g], *operands)` stands; shapes and dtypes of what the functions return."""
    made: Callable[[str], dict[str, dict[str, AttributeTypes]]] = lambda cell: {}
    """Runs a cell in which classes are decorated with `__made__` without jit; what the attributes of their objects
    were, by class."""
    kept: tuple[str, ...] = ()
    """Attributes that the loop at the place hands on, beside names."""
    attempt: Attempt = Attempt("", "")
    """The cell with its magic line, and the cells after it."""
    evidence: Evidence = NOTHING
    asked: dict[str, list[Shape]] = field(default_factory=dict, repr=False, compare=False)
    """What was probed already, by cell."""

    @property
    def sets_process(self) -> bool:
        """The line changes a setting of the process: some hold for a thread alone, and all are read before."""
        settings = (e for e in self.evidence.silent.effects if e.what == "setting")
        return any(not set(e.names).isdisjoint(self.names) for e in settings)

    @property
    def later(self) -> tuple[str, ...]:
        """Sources of the calls of the magic line, and of the cells after this one."""
        return self.attempt.later

    @property
    def writes(self) -> list[Write]:
        """What the finding says is written outside of the function."""
        return [w for w in self.evidence.writes if w.path in self.names]

    @property
    def static(self) -> frozenset[str]:
        """What is static, by name."""
        return frozenset(self.declared_static)

    @property
    def declared(self) -> tuple[str, ...]:
        """What the user has declared static, by name or by number."""
        options = self.evidence.options
        return self.evidence.function.chosen(options.static_argnames, options.static_argnums)

    @property
    def declared_dyn(self) -> tuple[str, ...]:
        """What the user has declared dynamic."""
        return self.evidence.options.dyn or ()

    @cached_property
    def every_leaf(self) -> list[Leaf]:
        """The leaves of all arguments, of all calls seen."""
        return [leaf for call in self.evidence.calls for leaf in call.leaves]

    def leaves(self, argument: str) -> list[Leaf]:
        """The leaves of an argument, of all calls seen."""
        return [leaf for leaf in self.every_leaf if leaf.argument == argument]

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
    def definition(self) -> FunctionNode:
        """The function that is checked. Raises LookupError where the cell does not define it."""
        found = self.text.definition(self.function)
        if found is None:
            raise LookupError("the function is not of this cell")
        return found

    @property
    def classes(self) -> list[ast.ClassDef]:
        """Every class that the cell defines."""
        return self.text.within(self.text.tree, ast.ClassDef)

    @cached_property
    def innermost(self) -> FunctionNode | None:
        """The innermost function around the place."""
        return self.text.function(self.path[0]) if self.path else None

    @cached_property
    def outermost(self) -> FunctionNode | None:
        """The outermost function around the place."""
        return self.text.outermost(self.path[0]) if self.path else None

    def assigned(self, name: str) -> ast.expr | None:
        """What the outermost function assigns to a name, where it does so once."""
        return scope.assigned(self.outermost, name) if self.outermost is not None else None

    @cached_property
    def known(self) -> frozenset[str]:
        """Names that are no traced values in the outermost function: static ones, defaults that stand."""
        own = self.outermost is not None and self.outermost.name == self.function.rpartition(".")[2]
        return self.static | self.defaults if own else self.static

    @cached_property
    def jax_names(self) -> frozenset[str]:
        """The notebook's names for jax, its modules and its functions."""
        own = (k for k, v in self.modules.names.items() if v.partition(".")[0] == "jax")
        return frozenset(("jnp", "jax", *own))

    @cached_property
    def traced(self) -> set[str]:
        """Names in the outermost function that may be traced, by their flow through it."""
        if self.outermost is None:
            return set(self.names)
        own = scope.traced_names(self.outermost, self.known, self.jax_names)
        return own | {n for n in self.names if n.isidentifier() and n not in self.modules}

    def is_traced(self, node: ast.AST) -> bool:
        """The value of an expression may be traced."""
        return scope.traced_in(node, self.traced)

    def may_be_array(self, node: ast.AST) -> bool:
        """The value of an expression may be traced, by what it reads, or because a function of jax makes it."""
        return self.is_traced(node) or self.calls_jax(node)

    def calls_jax(self, node: ast.AST) -> bool:
        """A function of jax is called in an expression."""
        return any(self.modules.called(n).startswith("jax.") for n in ast.walk(node))

    def code(self, node: ast.AST) -> str:
        """Source of a node as written."""
        return self.text.code(node)

    def write(self, template: str, text: Text | Edits | None = None, /, **holes: Filling) -> str:
        """A template filled (`pattern.Template`), with nodes of this cell or of `text`."""
        return Template(template).fill(self.modules, self.text if text is None else text, **holes)

    def edits(self) -> Edits:
        """No changes yet."""
        return Edits(self.text)

    def cells(self) -> list[Edits]:
        """No changes yet, of the cell and of each later one."""
        return [Edits(self.text), *(Edits(Text(source)) for source in self.later)]

    def given(self, cells: Iterable[Edits], *names: str) -> Iterator[tuple[Edits, ast.expr, str]]:
        """What the calls of the function in these cells pass for parameters of it, with their names."""
        function = passing.definition_of(self.text, self.function)
        for cell in cells:
            for call, name in itertools.product(cell.text.calls(self.function), names):
                node = signature.argument_of(call, function, name)
                if node is not None:
                    yield cell, node, name

    def fresh(self, *wanted: str) -> str:
        """A name that is free in the cell and in the notebook's modules."""
        return self.text.fresh(*wanted, taken=self.modules.names)

    def full(self, node: ast.AST) -> str:
        """`jax.numpy.where` for the function that a call calls, or a name; nothing for what is no library's."""
        return self.modules.full(node.func if isinstance(node, ast.Call) else node)

    def seen(self, node: ast.AST) -> list[Shape]:
        """What an expression was, each time that it was reached in runs without jit."""
        return self.probed(Edits(self.text).replace(node, f"__seen__({self.code(node)})"))

    def probed(self, edits: Edits) -> list[Shape]:
        """What went through `__seen__(...)` in runs of a changed cell without jit; each is asked once."""
        cell = edits.result()
        if cell not in self.asked:
            self.asked[cell] = list(self.probe(cell))
        return self.asked[cell]


Family = Callable[[Spot], Iterable[Change]]
