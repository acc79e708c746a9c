"""One iteration of a Python loop as a function of what it carries, and the loops of `jax.lax` that call it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from jitmagic.fixes.change import Spot
from jitmagic.fixes.loops.heads import Counted, fresh
from jitmagic.fixes.stores.rebinding import SIGNS
from jitmagic.source import scope
from jitmagic.source.edits import CannotEdit, Text, indented
from jitmagic.source.loops import LoopBody, LoopNode, mutates
from jitmagic.source.pattern import atom, call_of

_LONGEST = 60
"""Characters of the longest body that stands in a lambda."""


@dataclass(frozen=True)
class Iteration:
    """Statements of one iteration, and the names that it hands to the next or leaves behind."""

    code: str
    carried: tuple[str, ...]
    """Names, and attributes."""
    first: str = ""
    """Assignments in front of the loop, for names that have no value there."""
    starts: tuple[str, ...] = ()
    """What the carried names begin with, where not with themselves."""


def iteration(
    spot: Spot, loop: LoopNode, code: str, own: Sequence[str] = (), reads: Collection[str] = (), counter: str = "",
    *, follows: bool = False,
) -> Iteration:  # fmt: skip
    """The iteration that the statements make; `own` are names that the loop itself binds, `reads` what is read of it
    besides, `counter` has a value in front of it; what objects keep is followed where it `follows`. Raises CannotEdit
    where it does more than compute, or a name has no value before the loop."""
    tree, body = ast.parse(code), LoopBody(spot.text, loop)
    if body.waits or not follows and mutates(tree, spot.modules.names):
        raise CannotEdit("the body does more than compute")
    needed = scope.exposed(tree, own) | scope.live_after(spot.text, loop) | set(reads)
    bound = dict.fromkeys([*scope.stores(tree), *body.entered(tree)])
    carried = tuple(n for n in bound if n in needed and n not in own) + spot.kept
    before = scope.bound_before(spot.text, loop) | {*spot.kept}
    known = {*before, counter} - ({*own} - {counter})
    first = _first_values(spot, code, {*carried} - before, known, own)
    return Iteration(code, carried, first)


def _first_values(spot: Spot, code: str, missing: set[str], known: set[str], own: Sequence[str]) -> str:
    """Assignments of the body that give values to names that have none before the loop, else zeros; none that call
    an object which the body changes."""
    found, text = "", Text(code)
    inside, changed = {*scope.stores(text.tree), *own}, {path.partition(".")[0] for path in spot.kept}
    for statement in text.own(text.tree, ast.Assign):
        bound, reads = set(scope.stores(statement)), scope.loads(statement)
        if bound and bound <= missing - known and not reads & (inside - known):
            if not reads & changed and not text.within(statement, ast.Lambda):
                found += f"{text.code(statement)}\n"
                known = known | bound
    for name in (n for n in scope.stores(text.tree) if n in missing - known):
        found += f"{name} = {_zeros(spot, name)}\n"
    return found


def _zeros(spot: Spot, name: str) -> str:
    """Zeros of the form that the only assignment to a name gives it, which the first iteration replaces; a number of
    Python's where that has the same type."""
    value = spot.assigned(name)
    forms = {(s.shape, s.dtype) for s in spot.seen(value)} if value is not None else set()
    if len(forms) != 1:
        raise CannotEdit(f"{name} has no value before the loop")
    shape, dtype = forms.pop()
    numbers = {"float": "0.0", "int": "0", "bool": "False", "uint": "0"}
    kind = dtype.rstrip("0123456789_")
    if not shape and kind in numbers:
        return numbers[kind]
    if kind not in (*numbers, "complex"):
        raise CannotEdit("what is no number has no zero")
    named = "bool_" if kind == "bool" else dtype
    return spot.write(f"jnp.zeros({shape})" if dtype == "float32" else f"jnp.zeros({shape}, jnp.{named})")


def group(parts: Sequence[str]) -> str:
    """Several values as one: a tuple, the only one itself, None where there is none."""
    return "None" if not parts else parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def function(name: str, parameters: str, code: str, result: str) -> str:
    """Source of a definition, with a blank line after it."""
    body = f"{code.rstrip()}\nreturn {result}" if code.strip() else f"return {result}"
    if code.strip() and result == "None":
        body = code.rstrip()
    return f"def {name}({parameters}):\n{indented(body)}\n\n"


def while_loop(spot: Spot, test: str, step: Iteration) -> str:
    """Statements of a `jax.lax.while_loop` over the carried names."""
    names, state, asked = ", ".join(step.carried), fresh(spot, step.code, "state", "carry"), ""
    asking = f"lambda {names}: {test}"
    if not names.isidentifier():
        asking = fresh(spot, step.code, "keep_going")
        asked = function(asking, state, f"{names} = {state}", test)
    defined, body = _stepping(spot, step, step.code)
    loop = call_of(spot.write("lax.while_loop"), asking, body, group(step.starts or step.carried))
    return f"{asked}{defined}{step.first}{names} = {loop}\n"


def fori_loop(spot: Spot, turns: Counted, step: Iteration) -> str:
    """Statements of a `jax.lax.fori_loop`; with a step other than 1 it counts iterations."""
    code, counter, low, high = step.code, turns.index, turns.start, turns.stop
    if turns.step != "1":
        counter, low, high = fresh(spot, code, "turn"), "0", turns.count
        code = f"{turns.index} = {turns.value_at(counter)}\n" * (turns.index != "_") + code
    defined, body = _stepping(spot, step, code, counter)
    loop = call_of(spot.write("lax.fori_loop"), low, high, body, group(step.starts or step.carried))
    return f"{defined}{step.first}{', '.join(step.carried)} = {loop}\n"


def _stepping(spot: Spot, step: Iteration, code: str, counter: str = "") -> tuple[str, str]:
    """The definition of one iteration, and its name; a lambda where one short line says it all."""
    if not step.carried:
        raise CannotEdit("the loop leaves nothing behind")
    names = ", ".join(step.carried)
    alone = names.isidentifier()
    state = names if alone else fresh(spot, code, "state", "carry")
    parameters = f"{counter}, {state}" if counter else state
    value = _one_line(code, state) if alone else ""
    if value and len(value) <= _LONGEST:
        return "", f"lambda {parameters}: {value}"
    name = fresh(spot, code, "body", "outer_body")
    return function(name, parameters, code if alone else f"{names} = {state}\n{code}", names), name


def _one_line(code: str, name: str) -> str:
    """The new value where the body is nothing but `name = value`."""
    text = Text(code)
    if "\n" in code.strip() or "#" in code:
        return ""
    match text.tree.body:
        case [ast.Assign([ast.Name()], value)]:
            return text.code(value)
        case [ast.AugAssign(ast.Name(), op, value)]:
            return f"{name} {SIGNS[type(op)]} {atom(text.code(value))}"
    return ""
