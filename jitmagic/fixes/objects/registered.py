"""Classes of the cell as pytrees: their arrays are what jax traces, their settings are static."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Mapping, Sequence

from jitmagic.fixes.change import AttributeTypes, Change, Spot
from jitmagic.fixes.objects.argument_forms import arguments, fewer_traces, refused_besides, traced_again
from jitmagic.fixes.objects.layouts import Layout, class_of, laid_out, layout_of
from jitmagic.rules.base import root
from jitmagic.rules.words import listed
from jitmagic.source.modules import dotted
from jitmagic.tracing.messages import classes_named

_TRACED = frozenset(("array", "int", "float", "complex"))
_PLAIN_BASES = frozenset(("ABC", "Generic", "Protocol", *(n for n in vars(builtins) if n[0].islower())))


def registered_classes(spot: Spot) -> Iterator[Change]:
    """The class of an object that jax does not know, and those of the objects in it, registered."""
    made = made_of(spot, [k for k in spot.classes if _is_own(spot, k) and layout_of(spot, k) is None])
    names, given = _reached(spot, made), arguments(spot)
    if not names or any(_is_lost(spot, name) for name in given):
        return
    told, claim = ", ".join(f"`{n}`" for n in names), fewer_traces(spot, given)
    static, besides = traced_again(spot, given), refused_besides(spot, given)
    more = f"; make {listed(besides)} static" if besides else ""
    more += f"; {listed(given)} is no longer static" if static is not None else ""
    for whole_numbers in (True, False):
        edits = spot.edits()
        for name in names:
            kind = class_of(spot, name)
            assert kind is not None
            laid_out(spot, edits, kind, _layout(made[name], made, whole_numbers))
        title = f"register {told} with jax: its arrays are traced, its settings are static{more}"
        yield Change(title, edits, static=besides, unstatic=static, claim=claim)


def static_fields(spot: Spot) -> Iterator[Change]:
    """The texts and functions among the fields of a class that jax knows already, declared static."""
    known = {k: layout for k in spot.classes if (layout := layout_of(spot, k)) is not None}
    made, edits, done = made_of(spot, list(known)), spot.edits(), list[str]()
    for kind, layout in known.items():
        held, traced = made.get(kind.name, {}), _TRACED | {*made, "bool"}
        fields = [c for c in layout.children if c in held and not held[c].leaves & traced]
        if fields and all(held[f].hashable for f in fields):
            laid_out(spot, edits, kind, layout.with_settings(fields))
            done += [f for f in fields if f not in done]
    if done:
        yield Change(f"declare {listed(done)} static: a setting, and each new value compiles again", edits)


def complete_layouts(spot: Spot) -> Iterator[Change]:
    """Fields that a class loses, returned when it is flattened: as settings, then as children."""
    for with_them in (Layout.with_settings, Layout.with_children):
        edits = spot.edits()
        for fact in spot.evidence.silent.lossy:
            for kind, layout in _known(spot, fact.type):
                lost = [f for f in fact.fields if f not in (*layout.children, *layout.settings)]
                laid_out(spot, edits, kind, with_them(layout, lost))
        yield Change("return every field from `tree_flatten`", edits)


def arrays_as_children(spot: Spot) -> Iterator[Change]:
    """Arrays among the settings of a class are its children."""
    edits = spot.edits()
    for fact in spot.evidence.silent.arrays_in_aux:
        for kind, layout in _known(spot, fact.type):
            laid_out(spot, edits, kind, layout.with_children((fact.field, *fact.others)))
    yield Change("make the array a child, not auxiliary data", edits)


def rebuilt_by_attributes(spot: Spot) -> Iterator[Change]:
    """`tree_unflatten` with `object.__new__`, where `__init__` asks for the value of what it is given: jax rebuilds
    the objects of placeholders."""
    owner, function = spot.here(ast.ClassDef), spot.innermost
    if owner is not None and function is not None and function.name in ("__init__", "__post_init__"):
        for kind, layout in _known(spot, owner.name):
            edits = spot.edits()
            laid_out(spot, edits, kind, layout)
            if edits:
                title = "let `tree_unflatten` rebuild the object without `__init__`, which looks at values"
                yield Change(title, edits)


def _known(spot: Spot, name: str) -> Iterator[tuple[ast.ClassDef, Layout]]:
    """The class of that name in the cell, where jax is told how to take it apart."""
    kind = class_of(spot, name)
    if kind is not None and (layout := layout_of(spot, kind)) is not None:
        yield kind, layout


def _is_lost(spot: Spot, name: str) -> bool:
    """The function writes into an object and does not give it back: that would be done to a copy."""
    function = spot.definition
    values = [n.value for n in spot.text.own(function, ast.Return)]
    returned = {dotted(e) for v in values if v for e in (v.elts if isinstance(v, ast.Tuple) else [v])}
    return name not in returned and any(root(w.path) == name for w in spot.evidence.writes)


def made_of(spot: Spot, kinds: Sequence[ast.ClassDef]) -> dict[str, dict[str, AttributeTypes]]:
    """What the attributes of the objects of these classes were."""
    edits = spot.edits()
    for kind in kinds:
        edits.before(kind, "@__made__")
    return spot.made(edits.result()) if kinds else {}


def _is_own(spot: Spot, kind: ast.ClassDef) -> bool:
    """A class that comes from none of another cell or library."""
    inner = [class_of(spot, dotted(b)) for b in kind.bases]
    return all(
        (known is not None and known is not kind and _is_own(spot, known))
        or dotted(b if not isinstance(b, ast.Subscript) else b.value).rpartition(".")[2] in _PLAIN_BASES
        for b, known in zip(kind.bases, inner, strict=True)
    )


def _reached(spot: Spot, made: Mapping[str, Mapping[str, AttributeTypes]]) -> list[str]:
    """The classes that the finding is about, with those of the objects in them, inner ones first."""
    types = [leaf.python_type for n in arguments(spot) for leaf in spot.leaves(n)]
    found: dict[str, None] = {}

    def reach(name: str, above: Collection[str] = ()) -> None:
        if name in made and name not in above:
            for held in made[name].values():
                for inner in sorted(held.leaves):
                    reach(inner, (*above, name))
            found[name] = None

    for name in dict.fromkeys((*types, *classes_named(spot.message))):
        reach(name)
    return list(found)


def _layout(fields: Mapping[str, AttributeTypes], made: Collection[str], whole_numbers: bool) -> Layout:
    """Arrays, numbers and objects of the cell are children; texts, flags, functions and None are settings."""
    traced = (_TRACED if whole_numbers else _TRACED - {"int"}) | frozenset(made)
    settings = [
        name for name, held in fields.items()
        if not held.leaves <= traced or (held.leaves == {"int"} and "tuple" in held.types)
        or (not held.leaves and held.hashable)
    ]  # fmt: skip
    return Layout(tuple(fields)).with_settings(settings)
