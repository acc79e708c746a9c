"""What a function uses of an object, as arguments of its own: `f(loader)` as `f(next(iter(loader)))`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jitmagic.fixes.change import Change, Shape, Spot
from jitmagic.fixes.objects import argument_forms
from jitmagic.rules.words import listed
from jitmagic.source import scope, signature
from jitmagic.source.edits import Edits, FunctionNode
from jitmagic.source.modules import last_name

MOST = 12
"""Values that may become parameters."""
_TAKES = frozenset("next iter len list tuple float int bool sorted str".split())
_ARRAYS = ("asarray", "array")
_NUMBERS = frozenset(("int", "float", "complex", "bool"))
_SURELY = frozenset(("str", "function", "bool"))


@dataclass(frozen=True)
class Part:
    """One expression of the object alone, the parameter that it becomes, and the types of its values."""

    code: str
    name: str
    types: frozenset[str]


def parts_of_objects(spot: Spot) -> Iterator[Change]:
    """The function takes what it uses of an object, and the calls pass that; what it hands on as a whole, it makes
    again of its values. Else the items of a dict as a tuple."""
    for name in argument_forms.arguments(spot):
        yield from _in_parts(spot, name)
    yield from argument_forms.dicts_as_items(spot)


def numbers_in_containers(spot: Spot) -> Iterator[Change]:
    """Numbers in a dict or list that the function needs as Python's own: static, each by itself or all of them."""
    if spot.evidence.static_verified:
        return
    for name in argument_forms.arguments(spot):
        if any(x.kind == "scalar" and x.path != name and x.path in spot.names for x in spot.leaves(name)):
            yield from _in_parts(spot, name, counted=True)
            yield from argument_forms.containers_as_tuples(spot, name)


def _in_parts(spot: Spot, name: str, *, counted: bool = False) -> Iterator[Change]:
    function, again = spot.definition, ""
    if isinstance(spot.text.parents[function], ast.ClassDef) and scope.parameters_of(function)[0] == name:
        return
    gathered = [a.arg for a in (function.args.vararg, function.args.kwarg) if a is not None]
    if name in (*scope.defaults_of(function), *gathered):  # not every call gives it
        return
    parts = _parts(spot, function, name)
    if not parts:
        parts, again = _all_parts(spot, name)
    for static in _static(parts, counted=counted) if parts else ():
        edits = spot.edits()
        if again:
            edits.before(signature.first_statement(function), f"{name} = {again}")
        else:
            _replaced(edits, function, parts)
        yield _passed(spot, edits, name, parts, static)


def _all_parts(spot: Spot, name: str) -> tuple[list[Part], str]:
    """All that an object or dict holds, and how it is made of that; nothing where it holds something else besides."""
    kind = next(iter(argument_forms.types_of(spot, name)), "")
    keys = argument_forms.texts_of(spot, f"list({name} if isinstance({name}, dict) else vars({name}))")
    if not 0 < len(keys) <= MOST or any(not k.isidentifier() or k.startswith("_") for k in keys):
        return [], ""
    taken, parts = list(spot.modules.names), list[Part]()
    for key in keys:
        code = f'{name}["{key}"]' if kind == "dict" else f"{name}.{key}"
        types = _types(argument_forms.asked(spot, code))
        if types is None:
            return [], ""
        parts.append(Part(code, spot.text.fresh(key, f"{name}_{key}", taken=taken), types))
        taken.append(parts[-1].name)
    pairs = list(zip(keys, (p.name for p in parts), strict=True))
    if kind == "dict":
        return parts, "{" + ", ".join(f'"{k}": {v}' for k, v in pairs) + "}"
    (module,) = argument_forms.texts_of(spot, f"type({name}).__module__")
    maker = kind if module == "__main__" else spot.modules.spelled(f"{module}.{kind}")
    return parts, f"{maker}({', '.join(f'{k}={v}' for k, v in pairs)})"


def _passed(spot: Spot, edits: Edits, name: str, parts: Sequence[Part], static: Sequence[str]) -> Change:
    function = spot.definition
    parameter = next(a for a in ast.walk(function.args) if isinstance(a, ast.arg) and a.arg == name)
    edits.replace(parameter, ", ".join(p.name for p in parts))

    def write(inside: Edits, node: ast.expr, _: str) -> dict[str, str]:
        return {p.name: _given(inside, node, p, name) for p in parts}

    later = argument_forms.passed(spot, edits, [name], write)
    besides, used = argument_forms.refused_besides(spot, [name]), ", ".join(f"`{p.code}`" for p in parts)
    title = f"pass {used} in place of `{name}`"
    cost = f"each new {listed(static)} compiles again" if static else ""
    return Change(
        title, edits, later, static=(*static, *besides), unstatic=argument_forms.traced_again(spot, [name]),
        claim=argument_forms.fewer_traces(spot, [name]), cost=cost,
        sure=False,
    )  # fmt: skip


def _static(parts: Sequence[Part], *, counted: bool = False) -> list[tuple[str, ...]]:
    """Texts, flags and functions are static; where that is not enough (`counted`: it is not), whole numbers; all
    numbers at last."""
    kinds = (_SURELY, _SURELY | {"int"}, _SURELY | _NUMBERS)[counted:]
    return list(dict.fromkeys(tuple(p.name for p in parts if p.types & kind) for kind in kinds))


def _types(shapes: Sequence[Shape]) -> frozenset[str] | None:
    """Types of texts, functions, numbers and arrays; None where there is something else, or nothing."""
    own = ("numpy", "jax", "jaxlib")
    found = frozenset("array" if s.type in own and s.dtype != "function" else s.dtype for s in shapes)
    return found if found and found <= {"array"} | _SURELY | _NUMBERS else None


# --- what the function uses


def _parts(spot: Spot, function: FunctionNode, name: str) -> list[Part]:
    """Every use of the parameter as an expression that is an array or a setting; none where one is not."""
    uses = [n for n in spot.text.within(function, ast.Name) if n.id == name]
    if not uses or any(not isinstance(n.ctx, ast.Load) for n in uses):
        return []
    found: dict[str, Part] = {}
    taken = list(spot.modules.names)
    for use in uses:
        node, types = _whole(spot, use, name)
        if node is None:
            return []
        code = spot.code(node)
        if code not in found:
            wanted, alone = _wanted(spot, node), spot.text.bound_to(node)
            fresh = alone or spot.text.fresh(wanted, f"{name}_{wanted}", taken=taken)
            taken.append(fresh)
            found[code] = Part(code, fresh, types)
    return list(found.values())


def _whole(spot: Spot, use: ast.Name, name: str) -> tuple[ast.expr | None, frozenset[str]]:
    """The smallest expression around a use that is an array, a number, text or a function."""
    node: ast.expr = use
    while True:
        parent = spot.text.parents[node]
        if not isinstance(parent, ast.expr) or not _of_object_alone(parent, node, name):
            return None, frozenset()
        node = parent
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Store | ast.Del):
            return None, frozenset()
        called = spot.text.parents[node]
        if isinstance(called, ast.Call) and called.func is node and _is_method(spot, node, name):
            continue  # its result is wanted, not itself
        if (types := _types(spot.seen(node))) is not None:
            return node, types


def _is_method(spot: Spot, node: ast.expr, name: str) -> bool:
    """What is called is of the object's class, not a function that the object holds."""
    if not isinstance(node, ast.Attribute):
        return False
    asked = f"list(getattr({name}, '__dict__', ()))"
    held = argument_forms.texts_of(spot, asked) if isinstance(node.value, ast.Name) else []
    return node.attr not in held


def _of_object_alone(parent: ast.expr, node: ast.AST, name: str) -> bool:
    if isinstance(parent, ast.Attribute):
        return True
    if isinstance(parent, ast.Subscript):
        return parent.value is node and not scope.loads(parent.slice)
    if not isinstance(parent, ast.Call):
        return False
    others = [a for a in (*parent.args, *(k.value for k in parent.keywords)) if a is not node]
    if any(scope.loads(a) - {name} for a in others):
        return False
    called = last_name(parent.func)
    return parent.func is node or called in (_TAKES if isinstance(parent.func, ast.Name) else _ARRAYS)


def _wanted(spot: Spot, node: ast.expr) -> str:
    """A parameter's name for an expression."""
    key = node.slice.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else ""
    last = [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)]
    name = str(key or next(iter(last), "value"))
    return name if name.isidentifier() else "value"


def _replaced(edits: Edits, function: FunctionNode, parts: Sequence[Part]) -> None:
    """The function with the parameters in the place of the expressions."""
    names = {p.code: p.name for p in parts}
    for node in edits.text.within(function, ast.expr):
        code = edits.text.code(node)
        if code in names and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            if edits.text.bound_to(node) == names[code]:
                edits.remove(edits.text.statement(node))
            else:
                edits.replace(node, names[code])


def _given(edits: Edits, node: ast.expr, part: Part, name: str) -> str:
    """What a call passes for a part: of a dict that is written there, the value itself."""
    wanted = ast.parse(part.code, mode="eval").body
    entries: dict[str, ast.expr] = {}
    if isinstance(node, ast.Dict):
        entries = {ast.unparse(k): v for k, v in zip(node.keys, node.values, strict=True) if k is not None}
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dict" and not node.args:
        entries = {repr(k.arg): k.value for k in node.keywords if k.arg}
    if isinstance(wanted, ast.Subscript) and ast.unparse(wanted.value) == name:
        if (found := entries.get(ast.unparse(wanted.slice))) is not None:
            return edits.code(found)
    return argument_forms.with_argument(part.code, name, edits.code(node))
