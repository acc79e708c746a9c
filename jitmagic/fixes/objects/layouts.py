"""What a class of the cell hands to jax as children, and what as settings: read from the class, and written into it;
what an object that is written out holds."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jitmagic.fixes.change import Spot
from jitmagic.fixes.loops.lax_calls import spelt_out
from jitmagic.source import scope
from jitmagic.source.edits import CannotEdit, Edits, FunctionNode
from jitmagic.source.modules import dotted, last_name
from jitmagic.source.pattern import tuple_of
from jitmagic.state.adapters import DECLARED_STATIC

_TREE_UTIL = "jax.tree_util"
_STATIC = ("static", "pytree_node", "metadata")
"""Keywords of a field that say whether it is static."""


@dataclass(frozen=True)
class Layout:
    """Attributes that are children, and those that are settings."""

    children: tuple[str, ...]
    settings: tuple[str, ...] = ()

    def with_settings(self, names: Sequence[str]) -> Layout:
        """These are settings."""
        kept = tuple(c for c in self.children if c not in names)
        return Layout(kept, tuple(dict.fromkeys((*self.settings, *names))))

    def with_children(self, names: Sequence[str]) -> Layout:
        """These are children."""
        kept = tuple(s for s in self.settings if s not in names)
        return Layout(tuple(dict.fromkeys((*self.children, *names))), kept)


def class_of(spot: Spot, name: str) -> ast.ClassDef | None:
    """The last class of that name in the cell."""
    found = [n for n in spot.classes if n.name == name]
    return found[-1] if found else None


def is_dataclass(spot: Spot, kind: ast.ClassDef) -> bool:
    """A dataclass of Python's own."""
    heads = map(_head, kind.decorator_list)
    return any(last_name(head) == "dataclass" and spot.full(head) not in DECLARED_STATIC for head in heads)


def layout_of(spot: Spot, kind: ast.ClassDef) -> Layout | None:
    """How jax is told to take the class apart; None where it is not."""
    flatten = _flatten(spot, kind)
    if flatten is not None:
        pair = _result(flatten)
        if not isinstance(pair, ast.Tuple) or len(pair.elts) != 2:
            raise CannotEdit("it is flattened otherwise")
        own = scope.parameters_of(flatten)[0]
        children, settings = (_attributes(spelt_out(spot, flatten, e), own) for e in pair.elts)
        return Layout(children, settings)
    if (call := _registration(spot, kind)) is not None:
        given = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}
        return Layout(tuple(given["data_fields"]), tuple(given["meta_fields"]))
    if field_of(spot, kind) is None:
        return None
    fields = declared(kind)
    static = [name for name, part in fields.items() if _is_static(part)]
    return Layout(tuple(fields)).with_settings(static)


def laid_out(spot: Spot, edits: Edits, kind: ast.ClassDef, new: Layout) -> None:
    """The class hands these attributes over: as it does already, else registered, with methods of its own or the
    fields of a dataclass. Raises CannotEdit."""
    known, call = layout_of(spot, kind), _registration(spot, kind)
    if field_of(spot, kind) is not None or (known is None and is_dataclass(spot, kind)):
        _fields_declared(spot, edits, kind, new)
        if known is None:
            edits.before(kind, spot.write(f"@{_TREE_UTIL}.register_dataclass"))
    elif call is not None and call.keywords:
        for keyword, names in zip(("data_fields", "meta_fields"), (new.children, new.settings), strict=True):
            edits.replace(next(k.value for k in call.keywords if k.arg == keyword), repr(list(names)))
    elif (pair := _pair(spot, kind)) is not None:
        _rewritten(edits, kind, new, *pair)
    else:
        if call is not None:
            _unregistered(spot, edits, call)
        if known is None or call is not None:
            edits.before(kind, spot.write(f"@{_TREE_UTIL}.register_pytree_node_class"))
        _methods_added(edits, kind, new)


def declared(kind: ast.ClassDef) -> dict[str, ast.AnnAssign]:
    """The annotated fields of a class."""
    parts = (p for p in kind.body if isinstance(p, ast.AnnAssign) and isinstance(p.target, ast.Name))
    return {p.target.id: p for p in parts if isinstance(p.target, ast.Name)}


def field_of(spot: Spot, kind: ast.ClassDef) -> tuple[str, str] | None:
    """What declares a field of such a class, and what makes it static; None where its fields do not tell jax."""
    for made in (*kind.bases, *map(_head, kind.decorator_list)):
        full = spot.full(made)
        if full == f"{_TREE_UTIL}.register_dataclass":
            return "dataclasses.field", "metadata=dict(static=True)"
        if full in DECLARED_STATIC:
            return DECLARED_STATIC[full]
    return None


def declare(
    spot: Spot, edits: Edits, part: ast.AnnAssign, function: str, keyword: str, kind: str = ""
) -> None:
    """A field declared with one more keyword, by this function where nothing declares it yet; of another type."""
    if isinstance(part.value, ast.Call) and last_name(part.value.func) == "field":
        edits.argument(part.value, keyword)
        return
    default = "default=$default, " if part.value is not None else ""
    edits.replace(part, spot.write(
        f"$$name: $$kind = $$function({default}$$keyword)", edits, name=part.target, kind=kind or part.annotation,
        function=spot.modules.spelled(function), keyword=keyword, default=part.value or part.target,
    ))  # fmt: skip


def _fields_declared(spot: Spot, edits: Edits, kind: ast.ClassDef, new: Layout) -> None:
    function, keyword = field_of(spot, kind) or ("dataclasses.field", "metadata=dict(static=True)")
    fields = declared(kind)
    if not {*new.children, *new.settings} <= set(fields):
        raise CannotEdit("it has attributes that are no fields")
    for name, part in fields.items():
        if name in new.settings and not _is_static(part):
            declare(spot, edits, part, function, keyword)
        elif name in new.children and _is_static(part) and isinstance(part.value, ast.Call):
            kept = [edits.code(k) for k in part.value.keywords if k.arg not in _STATIC]
            call = f" = {edits.code(part.value.func)}({', '.join(kept)})" if kept else ""
            edits.replace(part, f"{name}: {edits.code(part.annotation)}{call}")


def _is_static(part: ast.AnnAssign) -> bool:
    given = {(k.arg, ast.unparse(k.value)) for k in getattr(part.value, "keywords", ())}
    said = bool(given & {("static", "True"), ("pytree_node", "False")})
    return said or any(name == "metadata" and "static" in code for name, code in given)


# --- flatten and unflatten


def _flatten(spot: Spot, kind: ast.ClassDef) -> FunctionNode | ast.Lambda | None:
    """What flattens a class: a method of its own or inherited, a function or lambda that it was registered with."""
    if (own := _method(kind, "tree_flatten")) is not None:
        return own
    call = _registration(spot, kind)
    if call is not None and not call.keywords:
        given = call.args[1]
        return given if isinstance(given, ast.Lambda) else spot.text.definition(dotted(given))
    bases = (class_of(spot, dotted(b)) for b in kind.bases)
    return next((f for b in bases if b is not None and (f := _flatten(spot, b)) is not None), None)


def _registration(spot: Spot, kind: ast.ClassDef) -> ast.Call | None:
    """The call that registers a class."""
    about = (
        c for c in spot.text.within(spot.text.tree, ast.Call) if c.args and dotted(c.args[0]) == kind.name
    )
    functions = ("register_pytree_node", "register_dataclass")
    return next((c for c in about if last_name(c.func) in functions), None)


def _unregistered(spot: Spot, edits: Edits, call: ast.Call) -> None:
    """Take out the call that registers a class, and the functions that are for it alone."""
    edits.remove(spot.text.statement(call))
    for given in call.args[1:]:
        function, name = spot.text.definition(dotted(given)), dotted(given)
        uses = [n for n in spot.text.within(spot.text.tree, ast.Name) if n.id == name]
        if function is not None and len(uses) == 1:
            edits.remove(function)


def _method(kind: ast.ClassDef, name: str) -> FunctionNode | None:
    return next((m for m in kind.body if isinstance(m, FunctionNode) and m.name == name), None)


def _result(function: FunctionNode | ast.Lambda) -> ast.expr | None:
    if isinstance(function, ast.Lambda):
        return function.body
    return next((n.value for n in ast.walk(function) if isinstance(n, ast.Return)), None)


def _attributes(node: ast.expr, own: str) -> tuple[str, ...]:
    found = (n for n in ast.walk(node) if isinstance(n, ast.Attribute) and dotted(n.value) == own)
    return tuple(dict.fromkeys(n.attr for n in sorted(found, key=lambda n: (n.lineno, n.col_offset))))


def _pair(spot: Spot, kind: ast.ClassDef) -> tuple[FunctionNode, FunctionNode] | None:
    """The class's own methods that flatten and unflatten it, or the functions that it was registered with."""
    call = _registration(spot, kind)
    given = call.args[1:3] if call is not None else []
    functions = [spot.text.definition(dotted(g)) for g in given] or [
        _method(kind, "tree_flatten"), _method(kind, "tree_unflatten")
    ]  # fmt: skip
    flatten, unflatten = functions if len(functions) == 2 else (None, None)
    return (flatten, unflatten) if flatten is not None and unflatten is not None else None


def _rewritten(
    edits: Edits, kind: ast.ClassDef, new: Layout, flatten: FunctionNode, unflatten: FunctionNode
) -> None:
    *cls, settings, children = scope.parameters_of(unflatten)
    edits.statements(flatten.body[0], _flat(new, scope.parameters_of(flatten)[0]), flatten.body[-1])
    lines = _rebuilt(kind, new, cls[0] if cls else kind.name, settings, children)
    edits.statements(unflatten.body[0], "\n".join(lines), unflatten.body[-1])


def _methods_added(edits: Edits, kind: ast.ClassDef, new: Layout) -> None:
    last = kind.body[-1]
    if last.lineno == kind.lineno:
        raise CannotEdit("the class stands on one line")
    lines = ["def tree_flatten(self):", f"    {_flat(new, 'self')}", "", "@classmethod"]
    lines += ["def tree_unflatten(cls, aux, children):"]
    lines += [f"    {line}" for line in _rebuilt(kind, new, "cls", "aux", "children")]
    code = textwrap.indent("\n".join(lines), " " * last.col_offset)
    end = edits.text.plain.find("\n", edits.text.span(last)[1])
    edits.insert(end if end >= 0 else len(edits.text.plain), f"\n\n{code}")


def _flat(new: Layout, own: str) -> str:
    children, settings = (tuple_of([f"{own}.{n}" for n in names]) for names in (new.children, new.settings))
    return f"return {children}, {settings if new.settings else 'None'}"


def _rebuilt(kind: ast.ClassDef, new: Layout, cls: str, settings: str, children: str) -> list[str]:
    """`cls(*children, *aux)` where `__init__` stores its parameters as they are; else the attributes one by one."""
    if _stored_as_given(kind) == [*new.children, *new.settings]:
        return [f"return {cls}(*{children}{f', *{settings}' if new.settings else ''})"]
    parts = ((new.children, children), (new.settings, settings))
    lines = [f"{tuple_of([f'new.{n}' for n in names])[1:-1]} = {given}" for names, given in parts if names]
    return [f"new = object.__new__({cls})", *lines, "return new"]


def _stored_as_given(kind: ast.ClassDef) -> list[str]:
    """The parameters of `__init__`, where all that it does is to store each under its name."""
    init = _method(kind, "__init__")
    if init is None or init.args.vararg or init.args.kwonlyargs or init.args.kwarg:
        return []
    own, *names = scope.parameters_of(init)
    body = init.body[ast.get_docstring(init, clean=False) is not None :]
    stored = [pair for s in body for pair in _assigned(s)]
    return names if sorted(stored) == sorted((f"{own}.{n}", n) for n in names) else []


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """Places and values that a statement assigns; something that fits nothing for other statements."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        yield "", ""
        return
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    value = statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from zip(map(ast.unparse, target.elts), map(ast.unparse, value.elts), strict=False)
    else:
        yield ast.unparse(target), ast.unparse(value)


def _head(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def part_of(
    spot: Spot, node: ast.expr, path: str, spelt_out: Callable[[ast.expr], ast.expr] = lambda node: node
) -> ast.expr | None:
    """What stands at `[0]`, `['n']` or `.n` of an expression; None where that is not written there. `spelt_out` gives
    what a name stands for."""
    for step in re.findall(r"\[[^\]]*\]|\.\w+", path):
        key = step.strip("[].'\"")
        found = _held(spot, spelt_out(node), int(key) if key.isdigit() else key)
        if found is None:
            return None
        node = found
    return node


def _held(spot: Spot, node: ast.expr, key: str | int) -> ast.expr | None:
    match node:
        case ast.Tuple(elts) | ast.List(elts) if isinstance(key, int):
            return elts[key] if key < len(elts) else None
        case ast.Dict(keys, values):
            named = {getattr(k, "value", None): v for k, v in zip(keys, values, strict=True)}
            return named.get(key)
        case ast.Call(func):
            kind = class_of(spot, last_name(func))
            fields = declared(kind) if kind is not None else {}
            name = [*fields][key] if isinstance(key, int) and key < len(fields) else str(key)
            given = dict(zip(fields, node.args, strict=False)) | {k.arg: k.value for k in node.keywords}
            return given.get(name)
    return None
