"""What calls pass to the function, and calls that pass something else: one function object, a copy of what is given
away, a form that jax takes or that has a hash (a tuple for a list, the items of a dict, a number for an array)."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jitmagic.fixes.change import Change, Claim, Shape, Spot
from jitmagic.rules.base import root
from jitmagic.rules.words import listed
from jitmagic.source import scope, signature
from jitmagic.source.edits import Edits, Text
from jitmagic.source.modules import last_name
from jitmagic.source.pattern import atom, tuple_of

SETTINGS = frozenset(("str", "bytes", "function", "builtin_function_or_method", "type", "ufunc", "method"))
"""Types of what a program can only be compiled for."""


def arguments(spot: Spot) -> list[str]:
    """Parameters that the finding is about."""
    names = scope.parameters_of(spot.definition)
    return [n for n in dict.fromkeys(map(root, spot.names)) if n in names]


def types_of(spot: Spot, name: str) -> set[str]:
    """Names of the types that a parameter had."""
    return {s.text for s in asked(spot, f"type({name}).__name__")}


def texts_of(spot: Spot, code: str) -> list[str]:
    """The texts among what an expression is when the function begins."""
    return list(dict.fromkeys(s.text for s in asked(spot, code) if s.text))


def asked(spot: Spot, code: str) -> Sequence[Shape]:
    """What an expression is when the function begins."""
    first = signature.first_statement(spot.definition)
    return spot.probed(spot.edits().before(first, f"__seen__({code})"))


def refused_besides(spot: Spot, names: Collection[str]) -> tuple[str, ...]:
    """Other parameters that jax does not take, and that may be static: texts and functions."""
    found = []
    for name in scope.parameters_of(spot.definition):
        others = [leaf for leaf in spot.leaves(name) if leaf.kind == "other" and not leaf.static]
        if name not in names and others and all(leaf.python_type in SETTINGS for leaf in others):
            found.append(name)
    return tuple(found)


def traced_again(spot: Spot, names: Collection[str]) -> tuple[str, ...] | None:
    """What is static still where these are no longer; None where they are not static."""
    declared = spot.declared
    return tuple(n for n in declared if n not in names) if set(names) & set(declared) else None


def fewer_traces(spot: Spot, names: Collection[str]) -> Claim:
    """Where a program was made for each of these, there have to be fewer."""
    leaves = [leaf for name in names for leaf in spot.leaves(name)]
    made = bool(leaves) and all(leaf.static and leaf.hashable for leaf in leaves)
    return Claim(fewer="traces") if made else Claim()


def passed(
    spot: Spot,
    edits: Edits,
    names: Collection[str],
    write: Callable[[Edits, ast.expr, str], Mapping[str, str]],
) -> tuple[str, ...]:
    """The calls with something else for arguments: in the cell, of which these are the changes, and in the later
    cells, which are given back. `write` gives what is passed for one, code by parameter."""
    cells = [edits, *spot.cells()[1:]]
    for inside, node, name in spot.given(cells, *names):
        signature.replace_argument(inside, node, write(inside, node, name))
    return tuple(cell.result() for cell in cells[1:])


def with_argument(code: str, name: str, given: str) -> str:
    """An expression of a parameter, with what a call passes in its place."""
    edits = Edits(Text(code))
    for node in edits.text.within(edits.text.tree, ast.Name):
        if node.id == name:
            edits.replace(node, atom(given))
    return edits.result()


def made_once(spot: Spot) -> Iterator[Change]:
    """A lambda or the like that is written at each call is made once, before the first of them."""
    for name in spot.names:
        made, cells = dict[str, str](), spot.cells()
        for there, argument, _ in spot.given(cells, name):
            code = there.text.code(argument)
            if not isinstance(argument, ast.Lambda | ast.Call):
                continue
            if code not in made:
                taken = {*spot.modules.names, *made.values(), *scope.stores(spot.text.tree)}
                made[code] = name if name not in taken else spot.fresh(f"the_{name}", f"{name}_{len(made)}")
                define = f"{made[code]} = {code}"
                if there is cells[0]:
                    there.before(there.text.top(argument), define)
                else:
                    cells[0].after(spot.text.tree.body[-1], define)
            there.replace(argument, made[code])
        if made:
            yield Change.of_cells(f"make `{name}` once, before the calls", cells, claim=Claim(fewer="traces"))


def numbers_as_arrays(spot: Spot) -> Iterator[Change]:
    """A number for a jit to which all but arrays is static, passed as an array."""
    told = {x.path for x in spot.every_leaf if x.static and x.kind == "scalar" and x.path in spot.names}
    for name in sorted(told - spot.static):
        yield passed_as(spot, (name,), "jnp.asarray($x)", f"pass `{name}` as an array")


def copies(spot: Spot) -> Iterator[Change]:
    """Calls pass a copy of an argument that they give away."""
    options = spot.evidence.options
    donated = spot.evidence.function.chosen(options.donate_argnames, options.donate_argnums)
    trees = {x.argument for x in spot.every_leaf if x.path != x.argument}
    form = "jax.tree.map(jnp.copy, $x)" if trees & {*donated} else "jnp.copy($x)"
    yield passed_as(spot, donated, form, f"pass a copy for {listed(donated)}")


def passed_as(spot: Spot, names: Sequence[str], form: str, title: str) -> Change:
    """The same change of what all calls pass for these parameters."""
    cells = spot.cells()
    for there, argument, _ in spot.given(cells, *names):
        there.replace(argument, spot.write(form, there, x=argument))
    return Change.of_cells(title, cells)


# --- forms -------------------------------------------------------------------------------------------

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
    for name in names if form.again else ():
        head = spot.write(f"$$name = {form.again}", name=name, x=name)
        edits.before(signature.first_statement(spot.definition), head)

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
        kind = {"i": "integer", "u": "integer", "f": "float", "b": "bool"}.get(first.dtype[:1], "")
        sizes = kind == "integer" and len(first.shape) == 1 and first.shape[0] <= MOST
        return kind if not first.shape else "shape" if sizes else ""
    found = types_of(spot, name)
    kind = next(iter(found)) if len(found) == 1 else ""
    if kind not in FORMS or kind == "tuple" and not declared:
        return ""
    traced = [leaf for leaf in leaves if leaf.kind != "other" and (kind == "list" or leaf.kind != "scalar")]
    return "" if traced and not declared and kind in ("list", "dict") else kind


def _shorter(spot: Spot, edits: Edits, node: ast.expr) -> str:
    """`(2, 3)` for `[2, 3]` and for `np.array([2, 3])`, `(1, 3)` for `slice(1, 3)`."""
    if isinstance(node, ast.List | ast.Tuple):
        return _tupled(edits, node)
    if not isinstance(node, ast.Call) or node.keywords:
        return ""
    if last_name(node.func) in ("array", "asarray") and [type(a) for a in node.args] == [ast.List]:
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
