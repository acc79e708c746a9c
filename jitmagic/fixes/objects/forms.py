"""Arguments in a form that jax takes, or that has a hash: a tuple for a list, the items of a dict, a number for an
array, `Partial` around a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jitmagic.evidence import Leaf
from jitmagic.fixes.change import Change, Spot
from jitmagic.fixes.inputs.call_arguments import passed_as
from jitmagic.fixes.objects.argument_forms import (
    arguments,
    passed,
    refused_besides,
    types_of,
)
from jitmagic.rules.words import listed
from jitmagic.source import signature
from jitmagic.source.edits import Edits
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import tuple_of

MOST = 8
"""Entries of an array that may be a shape."""
ANEW = "each new one compiles again"
PARTIAL = "jax.tree_util.Partial"


@dataclass(frozen=True)
class HashableForm:
    """What is passed for a value of this type, and how the function makes the value of it again."""

    words: str
    passed: str
    again: str = ""


FORMS = {
    "list": HashableForm("a tuple for {}", "tuple($x)"),
    "tuple": HashableForm("a tuple for {}", "tuple($x)"),
    "set": HashableForm("a frozenset for {}", "frozenset($x)"),
    "slice": HashableForm("the bounds of {} as a tuple", "($x.start, $x.stop, $x.step)", "slice(*$x)"),
    "dict": HashableForm("the items of {} as a tuple", "tuple($x.items())", "dict($x)"),
    "integer": HashableForm("an int for {}", "int($x)"),
    "float": HashableForm("a float for {}", "float($x)"),
    "bool": HashableForm("a bool for {}", "bool($x)"),
    "shape": HashableForm("a tuple for {}", "tuple($x.tolist())"),
}
_ITERATORS = ("generator", "list_iterator", "map", "zip", "filter", "enumerate", "islice", "tuple_iterator")


def hashable_forms(spot: Spot) -> Iterator[Change]:
    """Arguments in a form that has a hash; static where they are not yet."""
    kinds = {n: kind for n in arguments(spot) if (kind := _kind(spot, n)) and kind != "dict"}
    for kind in dict.fromkeys(kinds.values()):
        yield from _in_form(spot, [n for n in kinds if kinds[n] == kind], FORMS[kind])


def dicts_as_items(spot: Spot) -> Iterator[Change]:
    """The items of a dict as a tuple, which has a hash; static where it is not yet."""
    names = [n for n in arguments(spot) if _kind(spot, n) == "dict"]
    if names:
        yield from _in_form(spot, names, FORMS["dict"])


def containers_as_tuples(spot: Spot, name: str) -> Iterator[Change]:
    """A list, or the items of a dict, as a tuple that is static."""
    for kind in types_of(spot, name) & {"list", "dict"}:
        yield from _in_form(spot, [name], FORMS[kind])


def _in_form(spot: Spot, names: Sequence[str], form: HashableForm) -> Iterator[Change]:
    edits = spot.edits()
    function = spot.definition
    for name in names if form.again else ():
        head = spot.write(f"$$name = {form.again}", name=name, x=name)
        edits.before(signature.first_statement(function), head)

    def write(inside: Edits, node: ast.expr, name: str) -> dict[str, str]:
        return {name: _shorter(spot, inside, node) or spot.write(form.passed, inside, x=node)}

    later = passed(spot, edits, names, write)
    declared = set(names) <= set(spot.declared)
    static = () if declared else (*names, *refused_besides(spot, names))
    more = "" if declared else f", and make {'it' if len(names) == 1 else 'them'} static"
    title = f"pass {form.words.format(listed(names))}{more}: {ANEW}"
    yield Change(title, edits if edits else None, later, static=static, sure=declared and not form.again)


def _kind(spot: Spot, name: str) -> str:
    """Which form a parameter may take; nothing where it may stay, or has none."""
    leaves, declared = spot.leaves(name), name in spot.declared
    first = next((leaf for leaf in leaves if leaf.path == name), None)
    if first is not None and declared and first.kind in ("array", "numpy"):
        return _of_array(spot, name, first)
    found = types_of(spot, name)
    kind = next(iter(found)) if len(found) == 1 else ""
    if kind not in FORMS or kind == "tuple" and not declared:
        return ""
    traced = [leaf for leaf in leaves if leaf.kind != "other" and (kind == "list" or leaf.kind != "scalar")]
    return "" if traced and not declared and kind in ("list", "dict") else kind


def _of_array(spot: Spot, name: str, leaf: Leaf) -> str:
    kinds = {"i": "integer", "u": "integer", "f": "float", "b": "bool"}
    kind = kinds.get(leaf.dtype[:1], "")
    if leaf.shape:
        return "shape" if kind == "integer" and len(leaf.shape) == 1 and leaf.shape[0] <= MOST else ""
    return kind


def _shorter(spot: Spot, edits: Edits, node: ast.expr) -> str:
    """`(2, 3)` for `[2, 3]` and for `np.array([2, 3])`, `(1, 3)` for `slice(1, 3)`."""
    if isinstance(node, ast.List | ast.Tuple):
        return _tupled(edits, node)
    if not isinstance(node, ast.Call) or node.keywords:
        return ""
    if (
        last_name(node.func) in ("array", "asarray")
        and len(node.args) == 1
        and isinstance(node.args[0], ast.List)
    ):
        return _tupled(edits, node.args[0])
    if isinstance(node.func, ast.Name) and node.func.id == "slice" and len(node.args) > 1:
        return f"({', '.join(map(edits.code, node.args))})"
    return ""


def _tupled(edits: Edits, node: ast.expr) -> str:
    """An expression with every list that is written in it as a tuple."""
    if not isinstance(node, ast.List | ast.Tuple):
        return edits.code(node)
    return tuple_of([_tupled(edits, e) for e in node.elts])


def lists_of_items(spot: Spot) -> Iterator[Change]:
    """A list for an array of arrays, and for an iterator, of which the function takes all items."""
    for name in arguments(spot):
        whole = any(leaf.path == name and leaf.dtype == "object" for leaf in spot.leaves(name))
        if whole or types_of(spot, name) & {*_ITERATORS}:
            yield passed_as(spot, [name], "list($x)", f"pass a list for `{name}`")


def functions_as_partials(spot: Spot) -> Iterator[Change]:
    """Functions and texts beside arrays in lists, tuples and dicts: as `Partial`, and as a kind of text, which are no
    leaves."""
    text = spot.fresh("Text", "StaticText")
    for type_, test, form in (("function", "callable(v)", PARTIAL), ("str", "isinstance(v, str)", text)):
        for name in arguments(spot):
            if not any(leaf.python_type == type_ and leaf.path != name for leaf in spot.leaves(name)):
                continue
            title = f"pass each {type_.replace('str', 'text')} in `{name}` as `{form}`: each new one compiles again"
            change = passed_as(spot, [name], f"jax.tree.map(lambda v: {form}(v) if {test} else v, $x)", title)
            if form == text and change.edits is not None:
                head = f"@jax.tree_util.register_static\nclass {text}(str):\n    pass\n\n"
                change.edits.before(spot.text.top(spot.definition), spot.write(head))
            yield replace(change, sure=form != text)  # parts of their own read better, where there are few
