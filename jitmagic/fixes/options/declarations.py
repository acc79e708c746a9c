"""Static and donated arguments as a cell's own `jax.jit`, or the magic line, declares them: what was meant, and how it
is written."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jitmagic.fixes.change import Change, Spot
from jitmagic.rules.words import listed
from jitmagic.source.cell import uses_jit
from jitmagic.source.edits import Edits, FunctionNode, Text
from jitmagic.source.modules import Modules, last_name
from jitmagic.source.pattern import Template
from jitmagic.source.tree import Function, nodes_of

FIELDS = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
Spec = dict[str, list[Any]]
"""What each of these fields lists."""


@dataclass(frozen=True)
class Parameters:
    """Names of a function's parameters: those that have a position, and those that only have a name."""

    plain: tuple[str, ...]
    keyword: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.plain, *self.keyword)

    def chosen(self, spec: Spec, kind: str) -> list[str]:
        """The parameters that a spec makes `static` or takes by `donate`."""
        numbered = (self.plain[n] for n in spec[f"{kind}_argnums"] if -len(self.plain) <= n < len(self.plain))
        return list(dict.fromkeys((*numbered, *spec[f"{kind}_argnames"])))


@dataclass(frozen=True)
class Declaration:
    """Where a function of the cell is compiled: a decorator, or a call of `jit` around it."""

    node: ast.expr
    function: Function
    names: frozenset[str]
    """What the compiled function is called by, where it has a name."""
    bound: bool = False
    """What is compiled is a method of an object, `jax.jit(model.step)`: its first parameter is given already."""

    @cached_property
    def parameters(self) -> Parameters:
        return parameters_of(self.function, bound=self.bound)

    @property
    def keywords(self) -> list[ast.keyword]:
        return self.node.keywords if isinstance(self.node, ast.Call) else []

    @cached_property
    def given(self) -> Spec:
        """What is declared; what is computed counts as nothing."""
        values = {k.arg: _literal(k.value) for k in self.keywords}
        return {field: values.get(field, []) for field in FIELDS}


def _literal(node: ast.expr) -> list[Any]:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = ()
    return list(value) if isinstance(value, (tuple, list, set)) else [] if value is None else [value]


def parameters_of(function: Function, *, bound: bool = False) -> Parameters:
    """The parameters of a function, of a bound method without the first."""
    a = function.args
    plain = [x.arg for x in (*a.posonlyargs, *a.args)]
    return Parameters(tuple(plain[bound:]), tuple(x.arg for x in a.kwonlyargs))


def declarations(text: Text) -> Iterator[Declaration]:
    """Where functions of the cell are compiled."""
    for node in nodes_of(text.tree):
        if isinstance(node, FunctionNode):
            for decorator in (d for d in node.decorator_list if uses_jit(d)):
                yield Declaration(decorator, node, frozenset((node.name,)))
        elif isinstance(node, ast.Call) and node.args and uses_jit(node.func):
            function = _definition(text, node.args[0])
            around = text.parents[node]
            decorates = isinstance(around, FunctionNode) and node in around.decorator_list
            if function is not None and not decorates:
                bound = _is_bound(text, node.args[0], function)
                yield Declaration(node, function, _bound_to(text, node), bound)


def declaration_of(text: Text, name: str) -> Declaration:
    """Where the cell compiles the function of this name. Raises LookupError where it does not."""
    last = name.rpartition(".")[2]
    found = [
        d for d in declarations(text)
        if last in d.names or isinstance(d.function, ast.Lambda) or d.function.name == last
    ]  # fmt: skip
    if not found:
        raise LookupError(f"the cell does not compile {name}")
    return found[0]


def _definition(text: Text, node: ast.expr) -> Function | None:
    """The function that is compiled, where the cell has it."""
    while isinstance(node, ast.Call) and node.args:  # `jax.grad(loss)` takes what `loss` takes
        node = node.args[0]
    if isinstance(node, ast.Lambda):
        return node
    found = [n for n in nodes_of(text.tree) if isinstance(n, FunctionNode) and n.name == last_name(node)]
    return found[-1] if found else None


def _is_bound(text: Text, compiled: ast.expr, function: Function) -> bool:
    owner = text.parents.get(function)
    method = isinstance(owner, ast.ClassDef) and isinstance(compiled, ast.Attribute)
    return method and ast.unparse(compiled.value) != owner.name  # type: ignore[attr-defined, union-attr]


def _bound_to(text: Text, call: ast.Call) -> frozenset[str]:
    statement = text.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) and statement.value is call else []
    return frozenset(map(last_name, targets)) - {""}


# --- what was meant -----------------------------------------------------------------------------------


def mended_declarations(spot: Spot) -> Iterator[Change]:
    """A declaration of the cell's own `jit` that names what the function does not have, as it may have been meant."""
    for d in declarations(spot.text):
        empty_last = sorted(corrections(d.given, d.parameters), key=lambda s: not any(s.values()))
        for spec in others(d.given, empty_last) if any(d.given.values()) else ():
            yield Change(title(d.parameters, d.given, spec), written(spot.text, spot.modules, d, spec))


def others(given: Spec, specs: Iterable[Spec]) -> Iterator[Spec]:
    """Each spec that is not what is declared, once."""
    tried = [given]
    for spec in specs:
        if spec not in tried:
            tried.append(spec)
            yield spec


def mended_options(spot: Spot) -> Iterator[Change]:
    """Static and donated arguments of the magic line that the function does not have, as they may have been meant."""
    function = spot.text.definition(spot.function)
    if function is None or any(d.function is function for d in declarations(spot.text)):
        return
    given = {field: list(getattr(spot.evidence.options, field)) for field in FIELDS}
    parameters = parameters_of(function)
    sets = ([], *([name] for name in parameters.all))
    alone: list[Spec] = [{**given, "static_argnums": [], "static_argnames": [*names]} for names in sets]
    for spec in others(given, [*corrections(given, parameters), *alone[1:], alone[0]]):
        static, donated = (tuple(parameters.chosen(spec, kind)) for kind in ("static", "donate"))
        yield Change(title(parameters, given, spec), unstatic=static, donated=donated)


def kept_arguments(spot: Spot) -> Iterator[Change]:
    """The donated argument that the finding names is kept."""
    yield from _declared_anew(spot, _kept)


def given_away(spot: Spot) -> Iterator[Change]:
    """The arguments that the finding names are donated."""
    yield from _declared_anew(spot, _given_away)


def _declared_anew(
    spot: Spot, changed: Callable[[Spec, Parameters, Sequence[str]], Spec]
) -> Iterator[Change]:
    """In the cell's own `jit` or on the magic line, for the arguments that the finding names."""
    found = next((d for d in declarations(spot.text) if spot.function in d.names), None)
    if found is not None:
        spec = changed(found.given, found.parameters, spot.names)
        heading = title(found.parameters, found.given, spec)
        yield Change(heading, written(spot.text, spot.modules, found, spec))
    elif (function := spot.text.definition(spot.function)) is not None:
        given = {field: list(getattr(spot.evidence.options, field)) for field in FIELDS}
        parameters = parameters_of(function)
        spec = changed(given, parameters, spot.names)
        yield Change(title(parameters, given, spec), donated=tuple(parameters.chosen(spec, "donate")))


def _given_away(given: Spec, parameters: Parameters, names: Sequence[str]) -> Spec:
    numbers = [i for i, name in enumerate(parameters.plain) if name in names]
    by_name = [name for name in parameters.keyword if name in names]
    return {**given, "donate_argnums": numbers, "donate_argnames": by_name}


def _kept(given: Spec, parameters: Parameters, names: Sequence[str]) -> Spec:
    numbers = [n for n in given["donate_argnums"] if parameters.plain[n] not in names]
    by_name = [n for n in given["donate_argnames"] if n not in names]
    return {**given, "donate_argnums": numbers, "donate_argnames": by_name}


def corrections(given: Spec, parameters: Parameters) -> Iterator[Spec]:
    """What a wrong declaration may have meant; each is valid for the parameters."""
    yield _valid(given, parameters, guess=True)
    wrong = [n for n in given["static_argnames"] if n not in parameters.all]
    for name in [n for n in parameters.all[::-1] if wrong and n not in (*given["static_argnames"], "self")]:
        named = [name if n in wrong else n for n in given["static_argnames"]]
        yield _valid({**given, "static_argnames": named}, parameters, guess=False)
    yield _valid(given, parameters, guess=False)


def _valid(given: Spec, parameters: Parameters, *, guess: bool) -> Spec:
    """Each argument as it is, a wrong one as the nearest that there is (`guess`) or left out."""
    spec: Spec = {field: [] for field in FIELDS}
    for kind in ("static", "donate"):
        for number in given[f"{kind}_argnums"]:
            _put_number(spec, kind, int(number), parameters, guess=guess)
        for word in given[f"{kind}_argnames"]:
            for part in re.split(r"[,\s]+", str(word)):
                spec[f"{kind}_argnames"] += _nearest(part, parameters.all, guess=guess)
    # an argument is one or the other: what is static has no memory to give away
    static = parameters.chosen(spec, "static")
    spec["donate_argnums"] = [n for n in spec["donate_argnums"] if parameters.plain[n] not in static]
    spec["donate_argnames"] = [n for n in spec["donate_argnames"] if n not in static]
    return {field: list(dict.fromkeys(values)) for field, values in spec.items()}


def _put_number(spec: Spec, kind: str, number: int, parameters: Parameters, *, guess: bool) -> None:
    count = len(parameters.plain)
    before = number - guess
    if -count <= number < count:
        spec[f"{kind}_argnums"].append(number)
    elif count <= number < len(parameters.all):
        spec[f"{kind}_argnames"].append(parameters.all[number])
    elif guess and count and count <= before < len(parameters.all):
        spec[f"{kind}_argnames"].append(parameters.all[before])
    elif guess and count and number > 0:
        spec[f"{kind}_argnums"].append(count - 1)


def _nearest(word: str, names: Sequence[str], *, guess: bool) -> list[str]:
    return [word] if word in names else difflib.get_close_matches(word, names, 1, 0.5) if guess else []


# --- how it is written --------------------------------------------------------------------------------


def title(parameters: Parameters, given: Spec, spec: Spec) -> str:
    """What a correction does: ``declare `n` static``."""
    words = {"static": "static", "donate": "donated"}
    changed = [k for k in words if any(spec[f] != given[f] for f in FIELDS if f.startswith(k))]
    told = (f"{listed(parameters.chosen(spec, kind)) or 'nothing'} {words[kind]}" for kind in changed)
    return f"declare {', '.join(told)}"


def written(text: Text, modules: Modules, declaration: Declaration, spec: Spec) -> Edits:
    """The declaration with this spec, each field in the form that it had; without the fields that have nothing left."""
    edits, node = Edits(text), declaration.node
    changed = {field: values for field, values in spec.items() if values != declaration.given[field]}
    had = {k.arg: k.value for k in declaration.keywords}
    if not isinstance(node, ast.Call):
        made = ", ".join(f"{field}={shown(values)}" for field, values in changed.items())
        new = Template("functools.partial($jit, $$made)").fill(modules, text, jit=node, made=made)
        return edits.replace(node, new) if changed else edits
    if all(values and field in had for field, values in changed.items()):
        for field, values in changed.items():
            edits.replace(had[field], _in_the_form_of(text.code(had[field]), values))
        return edits
    given = [text.code(k) for k in (*node.args, *node.keywords) if getattr(k, "arg", None) not in changed]
    for field, values in changed.items():
        if values:
            form = text.code(had[field]) if field in had else "-"
            given.append(f"{field}={_in_the_form_of(form, values)}")
    if len(given) == len(node.args) == 1 and not uses_jit(node.func):  # partial(jax.jit)
        return edits.replace(node, given[0])
    return edits.replace(node, f"{text.code(node.func)}({', '.join(given)})")


def _in_the_form_of(old: str, values: Sequence[Any]) -> str:
    """The values as a tuple, list or single value, quoted as what stood there."""
    made = shown(values, bare=old[:1] not in "([{")
    if old.startswith("["):
        made = f"[{made[1:-1].rstrip(',')}]"
    return made.replace('"', "'") if "'" in old else made


def shown(values: Sequence[Any], *, bare: bool = True) -> str:
    """A value by itself, several as a tuple."""
    return repr(values[0] if bare and len(values) == 1 else tuple(values)).replace("'", '"')
