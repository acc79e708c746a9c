"""Where a rewrite starts from, and what it comes to."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from jitmagic.fixes.change import Shape
from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.cells import Cell

USUAL = {"jax.numpy": "jnp", "jax": "jax", "jax.lax": "jax.lax", "numpy": "np", "math": "math"}
IMPORTS = {
    "jnp": "import jax.numpy as jnp", "jax": "import jax", "np": "import numpy as np", "math": "import math",
}  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """A corrected cell that has still to be proved. `cell` is its body, without the magic line."""

    title: str
    cell: str
    applicability: Literal["safe", "unsafe"] = "safe"
    cost: str = ""
    calls: tuple[str, ...] | None = None
    static: tuple[str, ...] = ()
    """Parameters that have to be made static besides."""
    dyn: tuple[str, ...] = ()
    """Variables that have to be dynamic besides."""
    effects: bool = False
    """It keeps a write to the outside: the proof asks for the same writes."""
    raises: bool = False
    """A check moves into the compiled program: it is tried on values that fail it."""
    ends: bool = False
    """It ends only if the plain function does, which has to run before it is tried."""
    covers: bool = False
    """The result may hold more than that of the plain run, or be of a wider type: its values have to be there."""
    changes_result: bool = False
    """The fix is that the result changes: it is proved that jit and the plain run agree on the new one."""


@dataclass(frozen=True)
class Place:
    """The stretch of a cell that cannot be traced. Lines count from 1 in the cell's body."""

    text: str
    kind: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    names: tuple[str, ...] = ()
    """Culprits, and the local names of the expression."""
    function: str = ""
    message: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    """What the notebook's names stand for: `np` for `numpy`, `expit` for `scipy.special.expit`."""
    static: frozenset[str] = frozenset()
    calls: tuple[str, ...] = ()
    probe: Callable[[str], Sequence[Shape]] = lambda cell: ()
    """Runs a cell in which expressions are wrapped in `__seen(...)` without jit; what they were."""
    outputs: Callable[[str], Sequence[Any]] = lambda cell: ()
    """Runs a cell in which `__outputs([f, g], *operands)` stands; shapes and dtypes of what the functions return."""
    numpy_arguments: frozenset[str] = frozenset()
    defaults: frozenset[str] = frozenset()
    """Parameters that no call seen gave: Python's own values."""
    from_outside: Callable[[str], str] = lambda path: path
    """The notebook's name for `self.x` of a bound method."""
    scalars: tuple[str, ...] = ()
    """Parameters that got Python numbers in every call seen."""

    @cached_property
    def cell(self) -> Cell:
        return Cell(self.text)

    @cached_property
    def path(self) -> list[Any]:
        """Nodes from the innermost at the place outwards."""
        line = self.text.splitlines()[self.line - 1]
        if not self.end_column:
            return self.cell.path(self.line, len(line) - len(line.lstrip()), self.line, len(line.rstrip()))
        return self.cell.path(self.line, self.column, self.end_line or self.line, self.end_column)

    def on_line(self, *types: type) -> list[Any]:
        """Nodes of these types on the path outwards (up to the statement), then others on the line."""
        found = [n for n in self.path if isinstance(n, types)]
        for node, p in self.cell.positions.items():
            if isinstance(node, types) and p.start.line <= self.line <= p.end.line and node not in found:
                if p.start.line == self.line or self._headed(node):
                    found.append(node)
        return found

    def _headed(self, node: Any) -> bool:
        return not hasattr(node, "body")

    @cached_property
    def innermost(self) -> Any:
        """The innermost `def` around the place, or None."""
        return self.cell.function(self.path[0]) if self.path else None

    @cached_property
    def outermost(self) -> Any:
        """The outermost `def` around the place, or None."""
        import libcst as cst

        return next((n for n in reversed(self.path) if isinstance(n, cst.FunctionDef)), None)

    @cached_property
    def traced(self) -> set[str]:
        """Names in the outermost function that may be traced, by their flow through it."""
        if self.outermost is None:
            return set(self.names)
        return names.traced_names(self.cell.code(self.outermost), self.known) | {
            n for n in self.names if n.isidentifier()
        }

    @cached_property
    def known(self) -> frozenset[str]:
        """Names that are no traced values in the outermost function: static ones, defaults that stand."""
        own = self.outermost is not None and self.outermost.name.value == self.function.rpartition(".")[2]
        return self.static | self.defaults if own else self.static

    @cached_property
    def taken(self) -> set[str]:
        """Names of the cell and of the notebook's modules, not free for new things."""
        return names.all_names(ast.parse(self.cell.module.code)) | set(self.modules)

    def alias(self, module: str) -> str:
        """How this notebook calls a module: `jnp` for `jax.numpy`."""
        bound = [k for k, v in self.modules.items() if v == module]
        usual = USUAL.get(module, module)
        if usual in bound or not bound:
            if module == "jax.lax" and "jax" not in self.modules and "lax" in bound:
                return "lax"
            return usual
        return min(bound, key=len)

    @property
    def jnp(self) -> str:
        return self.alias("jax.numpy")

    @property
    def jax(self) -> str:
        return self.alias("jax")

    @property
    def lax(self) -> str:
        """`lax` where the notebook itself says so."""
        uses = any(f"{self.jax}.lax" in line for line in self.text.splitlines())
        if not uses and self.modules.get("lax") == "jax.lax":
            return "lax"
        return f"{self.jax}.lax"

    def with_imports(self, cell: str) -> str:
        """The cell with the imports that it needs and the notebook lacks."""
        tree = names.parse(cell) if "%" not in cell else None
        try:
            tree = tree or ast.parse(Cell(cell).module.code)
        except Exception:
            return cell
        read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        bound = {b for s in getattr(tree, "body", ()) for b in names.stores(s)}
        lines = [IMPORTS[n] for n in IMPORTS if n in read and n not in bound and n not in self.modules]
        return "\n".join(lines) + "\n\n" + cell if lines else cell
