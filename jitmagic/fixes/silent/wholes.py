"""A whole cell run again in names of its own, statements and all: compiled where it compiles, or as plain Python."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.fixes.silent import trial
from jitmagic.state import adapters, values

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover


def may_run(prover: Prover, cell: str) -> bool:
    """Apart from definitions and imports the cell only makes arrays and objects."""
    rest = [s for s in ast.parse(cell).body if not isinstance(s, _HARMLESS)]
    own = {s.name for s in ast.parse(cell).body if isinstance(s, (ast.FunctionDef, ast.ClassDef))}
    text = ast.unparse(ast.Module([s for s in rest if not _is_jitted(s, own)], []))
    return trial.may_run_again(text, prover)


_HARMLESS = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def _is_jitted(statement: ast.stmt, own: set[str]) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(statement, ast.Assign) and isinstance(value, ast.Call) and is_jit(value.func)


def run(prover: Prover, cell: str, sources: Sequence[str], *, jit: bool) -> list[Any]:
    """Values of the sources that are expressions, after the cell. Raises what they raise."""
    import jax

    tree = ast.parse(cell)
    if not jit:
        tree = ast.fix_missing_locations(Unjitted().visit(tree))
    namespace = dict(prover.checker.namespace)
    given: list[Any] = []
    with trial.aside(prover):
        _revive_random_states()
        exec(compile(tree, "<jitmagic fix>", "exec"), namespace)
        for source in sources:
            body = ast.parse(source).body
            if len(body) == 1 and isinstance(body[0], ast.Expr):
                given.append(
                    copied(eval(compile(ast.Expression(body[0].value), "<jitmagic fix>", "eval"), namespace))
                )
            else:
                exec(compile(source, "<jitmagic fix>", "exec"), namespace)
        jax.effects_barrier()
    return given


def _revive_random_states() -> None:
    """A framework's random state that the user's trace has left without a value starts anew."""
    for _, state in adapters.default_random_states():
        if values.is_tracer(adapters.read_value(state)):
            state.seed(0)


def copied(value: Any) -> Any:
    """Arrays as numpy arrays, those of frameworks and their variables too."""
    import jax
    import numpy as np

    def copied(leaf: Any) -> Any:
        inner = getattr(leaf, "value", leaf)
        return np.array(inner) if hasattr(inner, "__array__") or hasattr(inner, "__jax_array__") else inner

    return jax.tree.map(copied, value, is_leaf=lambda v: hasattr(v, "value"))


def is_jit(node: ast.AST) -> bool:
    """A name or attribute that compiles: `jax.jit`, `jit`, `eqx.filter_jit`."""
    return getattr(node, "attr", getattr(node, "id", "")) in ("jit", "pjit", "filter_jit")


class Unjitted(ast.NodeTransformer):
    """`jit(f)` as `f`, and functions without the decorators that compile them."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.args[0] if is_jit(node.func) and node.args else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list = [d for d in node.decorator_list if not any(map(is_jit, ast.walk(d)))]
        return node


def agree(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """The same values, one by one; dtypes may differ."""
    return len(a) == len(b) and all(trial.same(x, y) for x, y in zip(a, b, strict=True))
