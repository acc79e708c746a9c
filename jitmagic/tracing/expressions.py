"""What the syntax says about an expression: what asked for a value, who was called, which names are in it."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jitmagic import raw
from jitmagic.evidence import Op
from jitmagic.raw import is_a
from jitmagic.source.modules import dotted
from jitmagic.source.tree import Source, walk
from jitmagic.tracing import compat
from jitmagic.tracing.sites import Site
from jitmagic.units import array_type

_LIKE_COND = ("cond", "switch")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def construct_of(site: Site, op: Op) -> str:
    """The syntax that asked, one of the words that `Problem.construct` lists."""
    node, source = site.node, site.source
    if node is None:
        return "other"
    if op == "bool" and not site.called:
        asked = _tester(source, node)
        if asked:
            return asked
    return _own_construct(source, node, op)


def _tester(source: Source, node: ast.AST) -> str:
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        return "compare"
    parent, negated = source.parent(node), False
    while isinstance(parent, ast.NamedExpr) or (
        isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    ):
        negated = negated or isinstance(parent, ast.UnaryOp)
        node, parent = parent, source.parent(parent)
    if isinstance(parent, ast.IfExp) and node is not parent.test:
        return _tester(source, parent)
    if isinstance(parent, ast.BoolOp):
        return "and" if isinstance(parent.op, ast.And) else "or"
    asks: tuple[tuple[type, str], ...] = (
        (ast.If, "if"), (ast.While, "while"), (ast.IfExp, "ifexp"), (ast.Assert, "assert"),
        (ast.comprehension, "comprehension"), (ast.match_case, "guard"),
    )  # fmt: skip
    for kind, word in asks:
        if isinstance(parent, kind) and node in _tests(parent):
            return word
    return "not" if negated else ""


def _tests(parent: Any) -> list[object]:
    if isinstance(parent, ast.comprehension):
        return list(parent.ifs)
    test = parent.guard if isinstance(parent, ast.match_case) else parent.test
    return [test]


def _own_construct(source: Source, node: ast.AST, op: Op) -> str:
    parent = source.parent(node)
    if isinstance(node, ast.Call):
        return "range" if callee_of(node) == "range" else "call"
    if isinstance(node, ast.Subscript):
        if isinstance(parent, ast.AugAssign) and node is parent.target:
            return "augassign"
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            return "assign"
        return "slice" if op == "slice" or _has_slice(node.slice) else "subscript"
    if isinstance(node, ast.Compare):
        return "in" if isinstance(node.ops[0], (ast.In, ast.NotIn)) else "compare"
    if isinstance(parent, ast.match_case) or isinstance(node, (ast.pattern, ast.Match)):
        return "match"
    if isinstance(parent, ast.pattern):
        return "match"
    if isinstance(parent, (ast.For, ast.AsyncFor)) and node is parent.iter:
        return "for"
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return "def"
    if isinstance(parent, (ast.FunctionDef, ast.ClassDef)) and node in parent.decorator_list:
        return "decorator"
    words: tuple[tuple[Any, str], ...] = (
        ((ast.JoinedStr, ast.FormattedValue), "fstring"),
        (_COMPREHENSIONS, "comprehension"),
        (ast.AugAssign, "augassign"),
        (ast.Assign, "assign"),
    )
    return next((word for kinds, word in words if isinstance(node, kinds)), "other")


def _has_slice(index: ast.AST) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(isinstance(p, ast.Slice) for p in parts)


def callee_of(node: ast.AST | None) -> str:
    """Dotted name of the function a call node calls, as written; '' where it is no plain name.

    A method of an expression gives the method alone: `.item`.
    """
    if not isinstance(node, ast.Call):
        return ""
    if name := dotted(node.func):
        return name
    return f".{node.func.attr}" if isinstance(node.func, ast.Attribute) else ""


def called_object(node: ast.AST | None, namespace: Mapping[str, object]) -> Any:
    """The object a call node calls, where plain look-ups find it, else None."""
    name = callee_of(node)
    return None if not name or name.startswith(".") else look_up(name, namespace)


def _attribute(value: object, name: str) -> object:
    """An attribute by look-up that runs no code of the user's, except through modules."""
    if isinstance(value, types.ModuleType):
        return getattr(value, name, None)
    try:
        found = vars(value).get(name)
    except TypeError:
        found = None
    if found is None and not compat.is_tracer(value):
        found = next((vars(k)[name] for k in type(value).__mro__ if name in vars(k)), None)
        if isinstance(value, tuple) and found is not None and name in getattr(value, "_fields", ()):
            return getattr(value, name)
    return found


# --- the names to blame -------------------------------------------------------------------------------


def names_in(
    site: Site, op: Op, namespace: Mapping[str, object], leaves: Iterable[str] = ()
) -> tuple[str, ...]:
    """Value names of the offending expression, the best to blame first.

    `namespace` is what the frame sees (locals over globals): names of modules, functions and classes are
    left out, and where some names hold a traced value, so are those that hold none.
    """
    if site.node is None:
        return ()
    names = list(dict.fromkeys(n for part in _parts(site, op, namespace) for n in _values(part, namespace)))
    traced = [n for n in names if holds_tracer(look_up(n, namespace))]
    if op == "setitem":
        # The buffer is to blame first, traced or not.
        return tuple(dict.fromkeys(names[:1] + (traced or names[1:])))
    chosen = traced or names
    if op in ("index", "shape", "concrete", "int"):
        chosen = sorted(chosen, key=lambda n: not _is_scalar(look_up(n, namespace)))
    roots = {leaf.split("[")[0].split(".")[0] for leaf in leaves}
    if op in ("shape", "concrete") and any(_is_scalar(look_up(n, namespace)) for n in traced):
        # Beside traced numbers, an array is what the size is for.
        chosen = [n for n in chosen if n in roots or _is_scalar(look_up(n, namespace))]
    if op in ("shape", "concrete", "boolean-mask") and roots:
        chosen = sorted(chosen, key=lambda n: n not in roots)
    return tuple(chosen)


def _parts(site: Site, op: Op, namespace: Mapping[str, object]) -> list[ast.AST]:
    """The pieces of the expression, most to blame first."""
    node: Any = site.node
    parent = site.source.parent(node)
    subject = _subject(site.source, node)
    if subject is not None:
        return [subject]
    if isinstance(node, ast.Subscript):
        if not isinstance(node.ctx, ast.Load) or isinstance(parent, ast.AugAssign):
            value = [parent.value] if isinstance(parent, (ast.Assign, ast.AugAssign)) else []
            return [node.value, node.slice, *value]
        return [node.slice, node.value]
    if isinstance(node, ast.Call):
        arguments = [*node.args, *(k.value for k in node.keywords)]
        if op == "carry" and callee_of(node).split(".")[-1] in _LIKE_COND:
            arguments = arguments[1:] + arguments[:1]
        if op in ("item", "tolist"):
            arguments = []
        if op == "unhashable":
            arguments = _static_of(node, namespace) or arguments
        # `x.at[:n].set(v)`: the index is to blame before anything else.
        indices = [n.slice for n in walk(node.func) if isinstance(n, ast.Subscript)]
        return [*(indices if op in ("slice", "boolean-mask", "index") else ()), *arguments, node.func]
    if isinstance(node, ast.JoinedStr):
        fields = [v for v in node.values if isinstance(v, ast.FormattedValue)]
        with_spec = [v for v in fields if v.format_spec is not None]
        return [v.value for v in (with_spec or fields)]
    return [node]


def _static_of(call: ast.Call, namespace: Mapping[str, object]) -> list[ast.expr]:
    """The arguments of a call that the compiled function called takes as static."""
    options = compat.jit_options(called_object(call, namespace))
    numbers, names = options.get("static_argnums", ()), options.get("static_argnames", ())
    given = [a for i, a in enumerate(call.args) if i in numbers]
    return given + [k.value for k in call.keywords if k.arg in names]


def _subject(source: Source, node: ast.AST) -> ast.AST | None:
    """What a `match` looks at, where `node` is one of its patterns."""
    if not isinstance(node, ast.pattern) and not isinstance(source.parent(node), ast.pattern):
        return None
    up: ast.AST | None = node
    while up is not None and not isinstance(up, ast.Match):
        up = source.parent(up)
    return up.subject if up is not None else None


def _values(
    node: ast.AST, namespace: Mapping[str, object], bound: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Names and dotted paths of values in an expression, as written, in order."""
    if isinstance(node, ast.Lambda):
        bound = bound | {a.arg for a in walk(node.args) if isinstance(a, ast.arg)}
        node = node.body
    if isinstance(node, ast.Name):
        if node.id not in bound and not _is_code(namespace.get(node.id)):
            yield node.id
        return
    if isinstance(node, ast.Attribute):
        yield from _attribute_path(node, namespace, bound)
        return
    for child in ast.iter_child_nodes(node):
        yield from _values(child, namespace, bound)


def _attribute_path(
    node: ast.Attribute, namespace: Mapping[str, object], bound: frozenset[str]
) -> Iterator[str]:
    root, *rest = dotted(node).split(".")
    if not root:
        yield from _values(node.value, namespace, bound)
        return
    value = namespace.get(root)
    if root in bound or isinstance(value, types.ModuleType):
        return
    path = root
    for name in rest:
        inner = None if _is_array(value) else _attribute(value, name)
        if inner is None or _is_code(inner) or isinstance(inner, property):
            break
        path, value = f"{path}.{name}", inner
    if not _is_code(value):
        yield path


def _is_array(value: object) -> bool:
    return compat.is_tracer(value) or (hasattr(type(value), "shape") and hasattr(type(value), "dtype"))


def _is_code(value: object) -> bool:
    """Modules, functions and classes: never to blame for a traced value."""
    return isinstance(value, (types.ModuleType, type)) or (
        callable(value) and not _is_array(value) and not hasattr(value, "__dataclass_fields__")
        and (hasattr(value, "__name__") or inspect.getattr_static(value, "func", None))
    )  # fmt: skip


def forms_in(site: Site, namespace: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """The arrays that an expression names, entries of dicts too (`p["w"]`), each with its type."""
    nodes = walk(site.node) if site.node is not None else []
    bound = {n.arg for n in nodes if isinstance(n, ast.arg)}
    found: dict[str, str] = {}
    for node in sorted((n for n in nodes if isinstance(n, ast.expr)), key=lambda n: (n.lineno, n.col_offset)):
        value: Any = look_up(dotted(node), namespace)
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as key)):
                held = namespace.get(name)
                value = held.get(key) if type(held) is dict else None
            case ast.Name(id=name) if name in bound:
                value = None
        if _is_array(value):
            found[ast.unparse(node)] = array_type(str(value.dtype), value.shape)
    return tuple(found.items())


def _is_scalar(value: object) -> bool:
    if isinstance(value, (int, float, complex)):
        return True
    # a random key has no shape either, and is no size
    return getattr(value, "shape", None) == () and "key<" not in str(getattr(value, "dtype", ""))


def look_up(path: str, namespace: Mapping[str, object]) -> Any:
    """The value of a name or dotted path, by plain look-ups; None where there is none."""
    root, *rest = path.split(".")
    value = namespace.get(root)
    for name in rest:
        value = _attribute(value, name)
    return value


def holds_tracer(value: object, depth: int = 3) -> bool:
    """Whether a value is a tracer or a container or object that holds one, to a small depth."""
    if compat.is_tracer(value):
        return True
    atoms = (str, bytes, int, float, complex, type, types.ModuleType, types.FunctionType)
    if depth == 0 or value is None or is_a(value, atoms):
        return False
    if is_a(value, dict):
        held = list(dict.values(value))[:200]
    elif is_a(value, raw.CONTAINERS):
        held = raw.inside(value)[:200]
    else:
        held = [*(raw.own_dict(value) or {}).values()][:50]
    return any(holds_tracer(item, depth - 1) for item in held)
