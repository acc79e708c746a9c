"""Classes that lose fields or hold arrays where settings belong: `tree_flatten` with every field in its place."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import FunctionNode, Text, the
from jitmagic.report import Finding, Fix

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

Split = tuple[list[str], list[str]]
"""Attributes that are children, and those that are settings."""


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """For lossy-pytree and array-in-aux-data."""
    silent = evidence.silent
    if silent is None:
        return
    if finding.kind == "lossy-pytree":
        facts = [(x.type, x.fields) for x in silent.lossy]
        kinds = [kind for kind, _ in facts]
        candidates = [c for kind, lost in facts for c in _complete(evidence.function.cell, kind, lost)]
        title = "return every field from `tree_flatten`"
    else:
        pairs = [(x.type, x.field) for x in silent.arrays_in_aux]
        kinds = [kind for kind, _ in pairs]
        candidates = [c for kind, name in pairs for c in _as_child(evidence.function.cell, kind, name)]
        title = "make the array a child, not auxiliary data"
    for cell in candidates:
        if words := _proved(prover, cell, kinds):
            yield Fix(title=title, applicability="safe", verified=True, evidence=words, cell=cell)
            return


def _proved(prover: Prover, cell: str, kinds: Sequence[str]) -> str | None:
    sources = trial.history(prover)
    with contextlib.suppress(Exception):
        got = trial.play(prover, cell, sources).results
        wanted = trial.original(prover, sources, jit=False).results
        if got and trial.same(_opened(wanted, kinds), _opened(got, kinds)):
            return f"traced; equal to the run without jit on {len(got)} call{'s' * (len(got) > 1)}"
    return None


def _opened(results: Sequence[Any], kinds: Sequence[str]) -> Any:
    """Objects of these classes as their attributes: what is an array in them differs between the two cells."""
    import jax

    def is_one(value: Any) -> bool:
        return type(value).__name__ in kinds

    return jax.tree.map(lambda v: dict(vars(v)) if is_one(v) else v, list(results), is_leaf=is_one)


def _class(text: Text, name: str) -> ast.ClassDef:
    return the(n for n in ast.walk(text.tree) if isinstance(n, ast.ClassDef) and n.name == name)


def _method(node: ast.ClassDef, name: str) -> FunctionNode:
    return the(m for m in node.body if isinstance(m, FunctionNode) and m.name == name)


def _parts(
    text: Text, node: ast.ClassDef
) -> tuple[ast.Return, ast.expr, ast.expr, FunctionNode, list[str], list[str]]:
    """Return of tree_flatten, its children and aux, tree_unflatten, attributes of children and of aux."""
    flatten = _method(node, "tree_flatten")
    returned = the(n for n in ast.walk(flatten) if isinstance(n, ast.Return))
    if not isinstance(returned.value, ast.Tuple) or len(returned.value.elts) != 2:
        raise ValueError("tree_flatten returns no pair")
    children, aux = (_resolved(flatten, e) for e in returned.value.elts)
    own = flatten.args.args[0].arg
    return (
        returned,
        children,
        aux,
        _method(node, "tree_unflatten"),
        _attributes(children, own),
        _attributes(aux, own),
    )


def parts_of(text: Text, node: ast.ClassDef) -> tuple[list[str], list[str]]:
    """Attributes that `tree_flatten` gives as children, and as settings. Raises where it does so otherwise."""
    return _parts(text, node)[4:]


def _resolved(function: FunctionNode | ast.Lambda, node: ast.expr) -> ast.expr:
    """A local name stands for what it was assigned."""
    if isinstance(node, ast.Name):
        for s in ast.walk(function):
            if isinstance(s, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == node.id for t in s.targets
            ):
                return s.value
    return node


def _attributes(node: ast.expr, own: str) -> list[str]:
    found = [
        n
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == own
    ]
    return list(dict.fromkeys(n.attr for n in sorted(found, key=lambda n: (n.lineno, n.col_offset))))


def _complete(source: str, kind: str, lost: Sequence[str]) -> Iterator[str]:
    """The lost fields as auxiliary data, then as children."""
    for as_children in (False, True):
        with contextlib.suppress(SyntaxError, ValueError, LookupError):
            text = Text(source)
            node = _class(text, kind)
            children, aux = parts_of(text, node)
            missing = [f for f in lost if f not in children and f not in aux] or list(lost)
            yield rewritten(
                text, node,
                [*children, *missing] if as_children else children,
                aux if as_children else [*aux, *missing],
            )  # fmt: skip
    with contextlib.suppress(SyntaxError, ValueError, LookupError):
        yield from _overridden(source, kind, lost)
    with contextlib.suppress(SyntaxError, ValueError, LookupError):
        yield from _registered(source, kind, functools.partial(_with_lost, lost))


def _with_lost(lost: Sequence[str], children: list[str], aux: list[str]) -> list[Split]:
    missing = [f for f in lost if f not in children and f not in aux]
    return [(children, [*aux, *missing]), ([*children, *missing], aux)]


def _overridden(source: str, kind: str, lost: Sequence[str]) -> Iterator[str]:
    """A class that inherits `tree_flatten`, with methods of its own for its own fields besides."""
    from jitmagic.fixes.objects import register

    node = _class(Text(source), kind)
    if any(getattr(m, "name", "") == "tree_flatten" for m in node.body):
        return
    bases = [_class(Text(source), ast.unparse(b)) for b in node.bases]
    children, aux = parts_of(Text(source), bases[0])
    missing = [f for f in lost if f not in children and f not in aux]
    for data, settings in ((children, [*aux, *missing]), ([*children, *missing], aux)):
        text = Text(source)
        yield register.with_methods(text, _class(text, kind), data, settings)


def _tuple(own: str, names: Sequence[str]) -> str:
    return f"({', '.join(f'{own}.{n}' for n in names)}{',' if len(names) == 1 else ''})"


def rewritten(text: Text, node: ast.ClassDef, children: Sequence[str], aux: Sequence[str]) -> str:
    """tree_flatten and tree_unflatten for these fields; built by the class's call where its parameters allow."""
    flatten, unflatten = _method(node, "tree_flatten"), _method(node, "tree_unflatten")
    own = flatten.args.args[0].arg
    _body(text, flatten, [f"return {_tuple(own, children)}, {_tuple(own, aux) if aux else 'None'}"])
    arguments = [a.arg for a in unflatten.args.args][-2:]
    settings, parts = arguments
    built = _by_call(node, children, aux, parts, settings)
    if built is None:
        return _without_init(text, node, children, aux)
    cls = unflatten.args.args[0].arg if len(unflatten.args.args) == 3 else node.name
    _body(text, unflatten, [re.sub(r"\bcls\b", cls, x) for x in built])
    return text.result()


def without_init(source: str, kind: str) -> str:
    """`tree_unflatten` of this class with an object that `__init__` has not seen: what jax puts in are placeholders.

    Raises where the class is not of the usual form."""
    text = Text(source)
    node = _class(text, kind)
    return _without_init(text, node, *parts_of(text, node))


def _without_init(text: Text, node: ast.ClassDef, children: Sequence[str], aux: Sequence[str]) -> str:
    unflatten = _method(node, "tree_unflatten")
    settings, parts = [a.arg for a in unflatten.args.args][-2:]
    cls = unflatten.args.args[0].arg if len(unflatten.args.args) == 3 else node.name
    lines = [f"obj = object.__new__({cls})", *_given_back(children, parts), *_given_back(aux, settings)]
    _body(text, unflatten, [*lines, "return obj"])
    return text.result()


def _body(text: Text, function: FunctionNode, lines: Sequence[str]) -> None:
    first, last = function.body[0], function.body[-1]
    start, end = text.span(first)[0], text.span(last)[1]
    indent = " " * first.col_offset
    text.changes.append((start, end, f"\n{indent}".join(lines)))


def _by_call(
    node: ast.ClassDef, children: Sequence[str], aux: Sequence[str], parts: str, settings: str
) -> list[str] | None:
    """`cls(*children, *aux)` where the parameters of `__init__` are these fields in this order."""
    try:
        init = _method(node, "__init__")
    except LookupError:
        return None
    parameters = [a.arg for a in init.args.args[1:]]
    stored = {ast.unparse(t): ast.unparse(v) for t, v in _assigned(init)}
    plain = all(stored.get(f"{init.args.args[0].arg}.{n}") == n for n in (*children, *aux))
    if plain and parameters == [*children, *aux]:
        return [f"return cls(*{parts}, *{settings})" if aux else f"return cls(*{parts})"]
    return None


def _assigned(init: FunctionNode) -> Iterator[tuple[ast.expr, ast.expr]]:
    for statement in init.body:
        if isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                yield from zip(target.elts, value.elts, strict=False)
            else:
                yield target, value


def _registered(
    source: str, kind: str, chosen: Callable[[list[str], list[str]], Sequence[Split]]
) -> Iterator[str]:
    """`register_pytree_node(C, lambda c: ((c.a,), None), lambda aux, ch: C(*ch))`, and the same with functions of
    the cell, for what is chosen of the children and settings that there are."""
    text = Text(source)
    call = the(
        n for n in ast.walk(text.tree)
        if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("register_pytree_node")
        and len(n.args) == 3 and ast.unparse(n.args[0]) == kind
    )  # fmt: skip
    flatten, unflatten = (_function(text, f) for f in call.args[1:])
    pair = flatten.body if isinstance(flatten, ast.Lambda) else _returned(flatten)
    if not isinstance(pair, ast.Tuple):
        return
    own = flatten.args.args[0].arg
    children, aux = (_attributes(_resolved(flatten, e), own) for e in pair.elts)
    node = _class(text, kind)
    for data, settings in chosen(children, aux):
        new = Text(source)
        if not isinstance(flatten, ast.Lambda) and not isinstance(unflatten, ast.Lambda):
            yield _rewritten_functions(new, node, flatten, unflatten, data, settings)
            continue
        built = _by_call(node, data, settings, "children", "aux")
        if built is not None:
            made = built[0].removeprefix("return ").replace("cls", kind)
            new.replace(call.args[2], f"lambda aux, children: {made}")
        else:
            name = new.fresh(f"unflatten_{kind.lower()}", "unflatten")
            lines = [f"def {name}(aux, children):", f"    obj = object.__new__({kind})"]
            lines += [f"    {x}" for x in _given_back(data, "children") + _given_back(settings, "aux")]
            new.before(text.statement(call), [*lines, "    return obj", "", ""])
            new.replace(call.args[2], name)
        given = _tuple(own, settings) if settings else "None"
        new.replace(call.args[1], f"lambda {own}: ({_tuple(own, data)}, {given})")
        yield new.result()


def _function(text: Text, node: ast.expr) -> FunctionNode | ast.Lambda:
    """A lambda, or the function of that name in the cell."""
    if isinstance(node, ast.Lambda):
        return node
    return the(n for n in ast.walk(text.tree) if isinstance(n, FunctionNode) and n.name == ast.unparse(node))


def _returned(function: FunctionNode) -> ast.expr | None:
    return the(n for n in ast.walk(function) if isinstance(n, ast.Return)).value


def _rewritten_functions(
    text: Text, node: ast.ClassDef, flatten: FunctionNode, unflatten: FunctionNode, children: Sequence[str],
    aux: Sequence[str],
) -> str:  # fmt: skip
    """The functions with which a class was registered, for these fields."""
    own, (settings, parts) = flatten.args.args[0].arg, (a.arg for a in unflatten.args.args)
    _body(text, flatten, [f"return {_tuple(own, children)}, {_tuple(own, aux) if aux else 'None'}"])
    built = _by_call(node, children, aux, parts, settings)
    lines = [f"obj = object.__new__({node.name})", *_given_back(children, parts), *_given_back(aux, settings)]
    _body(text, unflatten, [x.replace("cls", node.name) for x in built or [*lines, "return obj"]])
    return text.result()


def _given_back(names: Sequence[str], given: str) -> list[str]:
    """The statement that puts attributes back into `obj`."""
    return [f"{', '.join(f'obj.{n}' for n in names)}{',' * (len(names) == 1)} = {given}"] if names else []


def _as_child(source: str, kind: str, field: str) -> Iterator[str]:
    """The field moved from auxiliary data to the children, or no longer static."""
    with contextlib.suppress(SyntaxError, ValueError, LookupError):
        text = Text(source)
        node = _class(text, kind)
        part = the(n for n in node.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == field)
        if isinstance(part.value, ast.Call):
            kept = [
                text.code(k)
                for k in part.value.keywords
                if k.arg not in ("static", "pytree_node", "metadata")
            ]
            declared = f"{field}: {text.code(part.annotation)}"
            text.replace(
                part, f"{declared} = {text.code(part.value.func)}({', '.join(kept)})" if kept else declared
            )
            yield text.result()
    with contextlib.suppress(SyntaxError, ValueError, LookupError):
        text = Text(source)
        node = _class(text, kind)
        children, aux = parts_of(text, node)
        yield rewritten(text, node, [*children, field], [n for n in aux if n != field])
    with contextlib.suppress(SyntaxError, ValueError, LookupError):
        yield from _registered(
            source, kind, lambda data, aux: [([*data, field], [n for n in aux if n != field])]
        )
    with contextlib.suppress(SyntaxError, ValueError, LookupError):
        yield from _data_field(source, kind, field)


def _data_field(source: str, kind: str, field: str) -> Iterator[str]:
    """`register_dataclass(C, data_fields=[...], meta_fields=[...])` with the field among the data."""
    text = Text(source)
    for call in (n for n in ast.walk(text.tree) if isinstance(n, ast.Call)):
        given = {k.arg: k.value for k in call.keywords}
        data, meta = given.get("data_fields"), given.get("meta_fields")
        if isinstance(data, ast.List | ast.Tuple) and isinstance(meta, ast.List | ast.Tuple):
            names = [ast.literal_eval(e) for e in data.elts]
            rest = [n for n in (ast.literal_eval(e) for e in meta.elts) if n != field]
            text.replace(data, repr([*names, field])).replace(meta, repr(rest))
            yield text.result()
            return
