"""The definitions of a corrected cell, run in a copy of the notebook's names, and the function among them."""

from __future__ import annotations

import ast
import itertools
import linecache
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jitmagic.checking.watched import Watched
from jitmagic.fixes import adopt, remake
from jitmagic.fixes.rewrite.cells import Cell
from jitmagic.fixes.rewrite.names import stores
from jitmagic.trial import quiet

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover
    from jitmagic.options import JitOptions

_numbers = itertools.count(1)
TRANSFORMS = frozenset("vmap grad value_and_grad jacobian jacfwd jacrev hessian checkpoint remat custom_jvp "
                       "custom_vjp".split())  # fmt: skip
RULES = frozenset("defvjp defjvp defjvps def_vmap".split())
"""Methods that give a function of jax's its rules."""


@dataclass(frozen=True)
class Defined:
    """The notebook's names as they are after the definitions of a corrected cell, in a copy."""

    namespace: dict[str, Any]
    file: str
    """What the cell counts as."""
    classes: adopt.Classes
    """The new class for each old one."""

    def function(self, name: str) -> Any:
        """The plain function behind `f` or `Model.step`; a method is one of the new class. Raises KeyError."""
        return adopt.method(find(self.namespace, name), self.classes)


def prepare(cell: str, notebook: dict[str, Any], more: dict[str, Any] | None = None) -> Defined:
    """Run the definitions of a corrected cell among copies of the notebook's names, and `more`.

    Instances of its classes are copies that belong to the new ones, and functions that it makes of others are made
    again.
    """
    namespace = {**notebook, **(more or {})}
    file = define(cell, namespace)
    classes = adopt.classes(namespace, notebook)
    adopt.namespace(namespace, classes)
    remake.again(ast.parse(Cell(cell).module.code), file, namespace, classes)
    return Defined(namespace, file, classes)


def define(cell: str, namespace: dict[str, Any]) -> str:
    """Run the definitions of a cell in `namespace` and return the name of the file they count as."""
    source = Cell(cell).module.code
    tree = ast.parse(source)
    found = [s for s in tree.body if _defines(s)]
    own = {n for s in found for n in stores(s)}
    tree.body = [s for s in tree.body if s in found or _tells_of(s, own)]
    file = f"<jitmagic fix {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    with quiet.held_back():
        exec(compile(tree, file, "exec"), namespace)
    return file


def _defines(node: ast.stmt) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return True
    if not isinstance(node, ast.Assign):
        return False
    value = node.value
    if isinstance(value, ast.Call) and len(value.args) == 1 and _is_jit(value.func):
        value = value.args[0]
    return isinstance(value, ast.Lambda) or _transforms(value) or _lists_functions(value)


def _tells_of(node: ast.stmt, own: Collection[str]) -> bool:
    """`f.defvjp(forward, back)` and `register_pytree_node(Point, ...)` for what the cell itself defines; what the
    notebook defined has it already."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    called, given = node.value.func, node.value.args
    name, subject = getattr(called, "attr", getattr(called, "id", "")), given[0] if given else None
    if name in RULES:
        subject = getattr(called, "value", None)
    elif not name.startswith("register_"):
        return False
    return getattr(subject, "id", "") in own


def _lists_functions(node: ast.expr) -> bool:
    """`[jnp.sin, lambda v: -v]`, a table of functions: to make it again does nothing else."""
    if not isinstance(node, ast.List | ast.Tuple | ast.Dict):
        return False
    parts = [*node.keys, *node.values] if isinstance(node, ast.Dict) else node.elts
    plain = (ast.Lambda, ast.Name, ast.Attribute, ast.Constant)
    return any(isinstance(p, ast.Lambda) for p in parts) and all(isinstance(p, plain) for p in parts)


def _transforms(node: ast.expr) -> bool:
    """`vmap(grad(f))`: a function made of others, which have to be the corrected ones."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    if getattr(node.func, "attr", getattr(node.func, "id", "")) not in TRANSFORMS:
        return False
    rest = [*node.args[1:], *(k.value for k in node.keywords)]
    plain = all(not isinstance(n, ast.Call) for r in rest for n in ast.walk(r))
    return plain and (isinstance(node.args[0], ast.Name | ast.Lambda) or _transforms(node.args[0]))


def _is_jit(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "jit"


def as_made(namespace: dict[str, Any], name: str) -> Any:
    """`f` or `Model.step` as the cell made it, compiled where the cell compiles it. Raises KeyError."""
    head, _, method = name.partition(".")
    found = namespace[head]
    if method:
        found = vars(found)[method]
    return found._checker.fn if isinstance(found, Watched) else found


def find(namespace: dict[str, Any], name: str) -> Any:
    """The plain function behind `f` or `Model.step`. Raises KeyError."""
    from jitmagic.checking.watched import unwrap_jitted

    return unwrap_jitted(as_made(namespace, name))[0]


def with_state(
    prover: Prover,
    fn: Callable[..., Any],
    options: JitOptions,
    namespace: dict[str, Any],
    more: Sequence[str] = (),
) -> Callable[..., Any] | None:
    """The function compiled with its dynamic variables, where the user's has any: declared, or a framework's, or
    `more` that a correction makes dynamic."""
    from jitmagic.state.compiled import StatefulMethod, compile_function, holds_variables

    checker = prover.checker
    dyn = ",".join(filter(None, (checker.dyn, *more))) or None
    if not checker.settings.compile and not dyn and checker.framework != "brainstate":
        return None
    args = prover.samples[0].args if prover.samples else ()
    if not dyn and checker.stateful(args) is None:
        return None
    as_in_jax = not dyn and not holds_variables(args[:1])
    made = compile_function(fn, dyn, options, namespace, as_in_jax=as_in_jax)
    if isinstance(made, StatefulMethod):
        return lambda receiver, *args, **kwargs: made.of(receiver)(*args, **kwargs)
    return made
