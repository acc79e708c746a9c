"""A class of this cell made a pytree: its arrays are what jax traces, its settings are static."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes import adopt
from jitmagic.fixes.rewrite.place import Candidate
from jitmagic.fixes.rewrites import diff, propose_from
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import Text
from jitmagic.report import Finding, Fix
from jitmagic.rules.words import listed

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

CONTAINERS = (list, tuple, dict)
_DEPTH = 5
_ITEMS = 100
PLAIN = (str, bytes, int, float, complex, bool, type(None), list, tuple, dict, set, frozenset, range)


def is_object(value: Any) -> bool:
    """An instance of a class of its own, not a number, container, array or function."""
    import types

    functions = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type)
    return not isinstance(value, (*PLAIN, *functions)) and not hasattr(value, "__array__") and not (
        type(value).__module__.startswith(("jax", "numpy", "functools"))
    )  # fmt: skip


def propose(finding: Finding, evidence: Evidence, prover: Prover, name: str, value: Any) -> Iterator[Fix]:
    """The cell with the class of the object, and of the objects in it, registered."""
    source = evidence.function.cell
    if stores(source, evidence, name):
        return  # what the function writes into a copy of the object would be lost
    instances = list(_instances(value, source))
    if isinstance(value, CONTAINERS) or type(value).__name__ in {type(v).__name__ for v in instances}:
        yield from _fixes(instances, evidence, prover)


def propose_for_results(evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The cell with the classes of the objects that the function returns registered. Raises what it raises."""
    source = evidence.function.cell
    instances = [i for r in prover.plain_results() for i in _instances(r, source)]
    yield from _fixes(list({type(i): i for i in instances}.values()), evidence, prover)


def propose_for_made(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """The cell with the class registered whose objects the function makes and hands to a loop of jax's."""
    told = re.search(r"of type '<class '([\w.]+)'>' is not a valid JAX type", finding.detail)
    kind = prover.checker.namespace.get(told[1].rpartition(".")[2]) if told else None
    if isinstance(kind, type) and prover.samples:
        made = _made(kind, prover)
        instances = [i for m in made[:1] for i in _instances(m, evidence.function.cell)]
        yield from _fixes(instances, evidence, prover)


def _made(kind: type, prover: Prover) -> list[Any]:
    """The objects of the class that a plain run makes, as far as it goes."""
    own, made = kind.__dict__.get("__init__"), list[Any]()
    if own is None:
        return made

    @functools.wraps(own)
    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        made.append(self)

    setattr(kind, "__init__", noting)  # noqa: B010
    try:
        with contextlib.suppress(Exception):
            prover.run_plain(prover.samples[-1])
    finally:
        setattr(kind, "__init__", own)  # noqa: B010
    return made


def _fixes(instances: Sequence[Any], evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    source = evidence.function.cell
    if not instances or not all(map(adopt.fields, instances)):
        return
    sources = trial.history(prover)
    title = (
        f"register {', '.join(f'`{n}`' for n in dict.fromkeys(type(v).__name__ for v in instances))} with jax"
    )
    tried: list[str] = []
    for whole_numbers_static in (False, True):
        cell = _all_registered(source, instances, whole_numbers_static)
        if cell is None or cell in tried:
            continue
        tried.append(cell)
        words = proved(prover, cell, sources)
        if words:
            yield Fix(
                title=f"{title}: its arrays are traced, its settings are static",
                applicability="safe", verified=True, evidence=words, cell=cell, diff=diff(source, cell),
            )  # fmt: skip
            return
    from jitmagic.fixes.objects.parts import refused

    for cell in tried:  # what the function does with the object has to be rewritten besides
        more = refused(evidence, prover)
        told = f"{title}; make {listed(more)} static" if more else title
        found = list(propose_from(Candidate(told, cell, effects=True, static=more), evidence, prover))
        if found:
            yield from found
            return


def registered(source: str, value: Any) -> Iterator[str]:
    """The cell with the classes of the object registered: with whole numbers traced, then with them static."""
    instances = list(_instances(value, source))
    if type(value) in map(type, instances) and all(map(adopt.fields, instances)):
        cells = (_all_registered(source, instances, static) for static in (False, True))
        yield from dict.fromkeys(c for c in cells if c is not None)


def _all_registered(source: str, instances: Sequence[Any], whole_numbers_static: bool) -> str | None:
    cell: str | None = source
    for instance in {type(i): i for i in instances}.values():
        cell = _registered(cell, instance, whole_numbers_static) if cell else None
    return cell


def stores(source: str, evidence: Evidence, name: str) -> bool:
    """The function writes into the object and does not give it back."""
    function = Text(source).function(evidence.function.name)
    nodes = list(_own_nodes(function, name)) if function is not None else []
    written = any(w.path.startswith((f"{name}.", f"{name}[")) for w in evidence.writes) or any(
        isinstance(n, ast.Attribute)
        and isinstance(n.ctx, ast.Store)
        and ast.unparse(n).startswith(f"{name}.")
        for n in nodes
    )
    values = [n.value for n in nodes if isinstance(n, ast.Return)]
    parts = [e for v in values for e in (v.elts if isinstance(v, ast.Tuple) else [v])]
    returned = {e.id for e in parts if isinstance(e, ast.Name)}
    return written and name not in returned


def _own_nodes(function: ast.AST, name: str) -> Iterator[ast.AST]:
    """The nodes of a function without inner functions in which the name is another variable."""
    yield function
    for node in ast.iter_child_nodes(function):
        inner = isinstance(node, ast.FunctionDef | ast.Lambda)
        binds = (n for n in ast.walk(node) if isinstance(n, ast.arg | ast.Name)) if inner else ()
        if not any(getattr(n, "arg", None) == name or isinstance(getattr(n, "ctx", None), ast.Store)
                   and getattr(n, "id", "") == name for n in binds):  # fmt: skip
            yield from _own_nodes(node, name)


def proved(prover: Prover, cell: str, sources: Sequence[str]) -> str | None:
    """How the cell was proved, or None."""
    with contextlib.suppress(Exception):
        kinds = {n.name for n in ast.walk(ast.parse(cell)) if isinstance(n, ast.ClassDef)}
        twice = [*sources, *sources]  # what is lost of the object's state shows at the second call
        got = trial.play(prover, cell, twice)
        wanted = trial.original(prover, twice, jit=False)
        if got.results and trial.same(*(adopt.taken_apart(x.results, kinds) for x in (wanted, got))):
            number = len(got.results) // 2 or 1
            return f"traced; equal to the run without jit on {number} call{'s' * (number > 1)}"
    return None


def _instances(value: Any, source: str, depth: int = 0) -> Iterator[Any]:
    """The object and the objects in its fields whose classes the cell defines and jax does not know, inner first."""
    import jax

    classes = {n.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef)}
    if depth > _DEPTH:
        return
    if isinstance(value, CONTAINERS):
        items = list(value.values() if isinstance(value, dict) else value)[:_ITEMS]
        found = [i for item in items for i in _instances(item, source, depth + 1)]
        yield from {type(i): i for i in found}.values()
        return
    if not is_object(value):
        return
    for item in adopt.fields(value).values():
        yield from _instances(item, source, depth + 1)
    known = jax.tree_util.treedef_is_leaf(jax.tree.structure(value)) is False
    own = all(
        k.__name__ in classes or k.__module__ in ("builtins", "abc", "typing") for k in type(value).__mro__
    )
    if own and not known:
        yield value


# --- which fields are data


def is_data(value: Any, whole_numbers_static: bool) -> bool:
    """Arrays and numbers are traced; text, flags, functions and None are settings."""
    import jax
    import numpy as np

    if isinstance(value, (bool, str, bytes)) or value is None or callable(value) and not is_object(value):
        return False
    if isinstance(value, int) or (
        isinstance(value, tuple) and value and all(isinstance(v, int) for v in value)
    ):
        return not whole_numbers_static and isinstance(value, int)
    if is_object(value) and not hasattr(value, "dtype"):
        return bool(adopt.fields(value))
    leaves = jax.tree.leaves(value)
    return all(
        isinstance(v, (int, float, complex, np.ndarray, np.generic, jax.Array)) or is_object(v)
        for v in leaves
    )


def _registered(source: str, value: Any, whole_numbers_static: bool) -> str | None:
    text = Text(source)
    kind = type(value).__name__
    node = next((n for n in ast.walk(text.tree) if isinstance(n, ast.ClassDef) and n.name == kind), None)
    if node is None:
        return None
    fields = adopt.fields(value)
    data = [n for n, v in fields.items() if is_data(v, whole_numbers_static)]
    meta = [n for n in fields if n not in data]
    if not all(_hashable(fields[n]) for n in meta):
        return None
    if dataclasses.is_dataclass(value):
        return _as_dataclass(text, node, meta)
    return _as_node(text, node, data, meta)


def _hashable(value: Any) -> bool:
    try:
        return hash(value) is not None
    except TypeError:
        return False


def _decorated(text: Text, node: ast.ClassDef, decorator: str) -> None:
    first = node.decorator_list[0] if node.decorator_list else None
    at = text.starts[(first.lineno if first else node.lineno) - 1]
    indent = " " * node.col_offset
    text.changes.append((at, at, f"{indent}@{decorator}\n"))


def _as_dataclass(text: Text, node: ast.ClassDef, meta: Sequence[str]) -> str | None:
    """`@jax.tree_util.register_dataclass` above `@dataclass`; settings as `field(metadata=dict(static=True))`."""
    declared = {ast.unparse(n.target): n for n in node.body if isinstance(n, ast.AnnAssign)}
    if not set(meta) <= set(declared):
        return None
    imports = {
        a.asname or a.name for n in ast.walk(text.tree) if isinstance(n, ast.ImportFrom) for a in n.names
    }
    called = "dataclasses.field" if "dataclasses." in ast.unparse(node.decorator_list[-1]) else "field"
    for name in meta:
        declare(text, declared[name], called, "metadata=dict(static=True)")
    _decorated(text, node, "jax.tree_util.register_dataclass")
    if meta and called == "field" and "field" not in imports:
        _import_field(text)
    return text.result()


def declare(text: Text, part: ast.AnnAssign, function: str, static: str) -> None:
    """A field declared with one more keyword; `function` declares it where nothing did."""
    if isinstance(part.value, ast.Call) and ast.unparse(part.value.func).endswith("field"):
        end = text.span(part.value)[1] - 1
        text.changes.append((end, end, f"{', ' if part.value.args or part.value.keywords else ''}{static}"))
        return
    default = f"default={text.code(part.value)}, " if part.value is not None else ""
    declared_as = f"{text.code(part.target)}: {text.code(part.annotation)}"
    text.replace(part, f"{declared_as} = {function}({default}{static})")


def _import_field(text: Text) -> None:
    for n in ast.walk(text.tree):
        if isinstance(n, ast.ImportFrom) and n.module == "dataclasses":
            end = text.span(n)[1]
            text.changes.append((end, end, ", field"))
            return
    text.changes.append((0, 0, "from dataclasses import field\n\n"))


def _as_node(text: Text, node: ast.ClassDef, data: Sequence[str], meta: Sequence[str]) -> str | None:
    """`tree_flatten` and `tree_unflatten` with every field, or the registration that such a class lacks."""
    if any(getattr(m, "name", "") == "tree_flatten" for m in node.body):
        _decorated(text, node, "jax.tree_util.register_pytree_node_class")
        return text.result()
    _decorated(text, node, "jax.tree_util.register_pytree_node_class")
    return with_methods(text, node, data, meta)


def with_methods(text: Text, node: ast.ClassDef, data: Sequence[str], meta: Sequence[str]) -> str:
    """The class with a `tree_flatten` and `tree_unflatten` of these fields at its end."""
    last = node.body[-1]
    at = text.starts[min(last.end_lineno or 0, len(text.starts) - 1)] if (
        (last.end_lineno or 0) < len(text.starts)
    ) else len(text.source)  # fmt: skip
    indent = " " * node.body[0].col_offset
    lines = ["", "def tree_flatten(self):", f"    return {_tuple(data)}, {_tuple(meta) if meta else 'None'}", "",
             "@classmethod", "def tree_unflatten(cls, aux, children):"]  # fmt: skip
    lines += [f"    {x}" for x in _rebuilt(node, data, meta)]
    block = "".join(f"{indent}{x}\n" if x else "\n" for x in lines)
    start = "" if text.source[:at].endswith("\n") else "\n"
    text.changes.append((at, at, start + block))
    return text.result()


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(f'self.{n}' for n in names)}{',' if len(names) == 1 else ''})"


def _rebuilt(node: ast.ClassDef, data: Sequence[str], meta: Sequence[str]) -> list[str]:
    """`cls(*children)` where `__init__` stores its parameters as they are; else the attributes one by one."""
    init = next((m for m in node.body if getattr(m, "name", "") == "__init__"), None)
    if isinstance(init, ast.FunctionDef):
        own = init.args.args[0].arg
        plain = [f"{own}.{a.arg} = {a.arg}" for a in init.args.args[1:]]
        body = [ast.unparse(s) for s in init.body if not isinstance(s, ast.Expr)]
        order = [a.arg for a in init.args.args[1:]]
        if sorted(body) == sorted(plain) and order == [*data, *meta]:
            return [f"return cls(*children{', *aux' if meta else ''})"]
    lines = ["new = object.__new__(cls)"]
    for names, given in ((data, "children"), (meta, "aux")):
        if names:
            targets = ", ".join(f"new.{n}" for n in names)
            lines.append(f"{targets if len(names) > 1 else f'({targets},)'} = {given}")
    return [*lines, "return new"]
