"""Static and donated arguments as a cell's own `jax.jit` declares them: what was meant, and how it is written."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jitmagic.fixes.silent.text import FunctionNode, Text
from jitmagic.fixes.silent.wholes import is_jit

STATIC = ("static_argnums", "static_argnames")
FIELDS = (*STATIC, "donate_argnums", "donate_argnames")
Spec = dict[str, list[Any]]
"""What each of these fields lists."""
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


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
    """A call of `jit` that declares arguments: in a decorator, or around a function of the cell."""

    call: ast.Call
    function: Function
    names: frozenset[str]
    """What the compiled function is called by, where it has a name."""
    bound: bool = False
    """What is compiled is a method of an object, `jax.jit(model.step)`: its first parameter is given already."""

    @cached_property
    def parameters(self) -> Parameters:
        a = self.function.args
        plain = [x.arg for x in (*a.posonlyargs, *a.args)]
        return Parameters(tuple(plain[self.bound :]), tuple(x.arg for x in a.kwonlyargs))

    @cached_property
    def given(self) -> Spec:
        """What is declared; what is computed counts as nothing."""
        values = {k.arg: _literal(k.value) for k in self.call.keywords}
        return {field: values.get(field, []) for field in FIELDS}


def _literal(node: ast.expr) -> list[Any]:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return []
    if value is None:
        return []
    return list(value) if isinstance(value, (tuple, list, set)) else [value]


def declarations(text: Text) -> Iterator[Declaration]:
    """The declarations of a cell whose function stands there too."""
    for call in (n for n in ast.walk(text.tree) if isinstance(n, ast.Call)):
        if not any(k.arg in FIELDS for k in call.keywords):
            continue
        around = text.parents[call]
        if isinstance(around, FunctionNode) and call in around.decorator_list:
            yield Declaration(call, around, frozenset((around.name,)))
        elif is_jit(call.func) and call.args:
            function = _definition(text, call.args[0])
            if function is not None:
                yield Declaration(
                    call, function, _bound_to(text, call), _is_bound(text, call.args[0], function)
                )


def _definition(text: Text, node: ast.expr) -> Function | None:
    """The function that is compiled, where the cell has it."""
    while isinstance(node, ast.Call) and node.args:  # `jax.grad(loss)` takes what `loss` takes
        node = node.args[0]
    if isinstance(node, ast.Lambda):
        return node
    name = getattr(node, "attr", getattr(node, "id", ""))
    found = [n for n in ast.walk(text.tree) if isinstance(n, FunctionNode) and n.name == name]
    return found[-1] if found else None


def _is_bound(text: Text, compiled: ast.expr, function: Function) -> bool:
    owner = text.parents.get(function)
    if not isinstance(owner, ast.ClassDef) or not isinstance(compiled, ast.Attribute):
        return False
    return ast.unparse(compiled.value) != owner.name


def _bound_to(text: Text, call: ast.Call) -> frozenset[str]:
    statement = text.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) and statement.value is call else []
    return frozenset(getattr(t, "attr", getattr(t, "id", "")) for t in targets) - {""}


# --- what was meant -----------------------------------------------------------------------------------


def candidates(declaration: Declaration, *, fits: bool) -> Iterator[Spec]:
    """Specs to try in place of a declaration, the likeliest first; `fits`: the function has what it names."""
    given, parameters = declaration.given, declaration.parameters
    tried = [given]
    for spec in neighbours(given, parameters) if fits else corrections(given, parameters):
        if spec not in tried:
            tried.append(spec)
            yield spec


def corrections(given: Spec, parameters: Parameters) -> Iterator[Spec]:
    """What a wrong declaration may have meant; each is valid for the parameters."""
    yield _valid(given, parameters, guess=True)
    if any(n not in range(-len(parameters.plain), len(parameters.plain)) for n in _numbers(given)):
        yield _valid(_moved(given, -1), parameters, guess=False)  # all were counted from 1
    yield _valid(given, parameters, guess=False)
    yield _valid(_without_donated(given, parameters), parameters, guess=False)
    wrong = [n for n in given["static_argnames"] if n not in parameters.all]
    for name in _others(given, parameters) if wrong else ():
        named = [name if n in wrong else n for n in given["static_argnames"]]
        yield _valid({**given, "static_argnames": named}, parameters, guess=False)


def neighbours(given: Spec, parameters: Parameters) -> Iterator[Spec]:
    """Other arguments static than those declared: the next ones, the ones before, one by name."""
    if given["static_argnums"]:
        for step in (1, -1):
            yield {**given, "static_argnums": [n + step for n in given["static_argnums"]]}
    if given["static_argnames"]:
        for name in _others(given, parameters):
            yield {**given, "static_argnames": [name]}


def _without_donated(given: Spec, parameters: Parameters) -> Spec:
    """What is declared donated too is not static: an array."""
    donated, plain = parameters.chosen(given, "donate"), parameters.plain
    return {
        **given,
        "static_argnums": [n for n in given["static_argnums"] if n >= len(plain) or plain[n] not in donated],
        "static_argnames": [n for n in given["static_argnames"] if n not in donated],
    }


def _others(given: Spec, parameters: Parameters) -> list[str]:
    return [n for n in reversed(parameters.all) if n not in (*given["static_argnames"], "self")]


def _numbers(given: Spec) -> list[int]:
    return [*given["static_argnums"], *given["donate_argnums"]]


def _moved(given: Spec, step: int) -> Spec:
    """All numbers but 0 and those that count from the end, moved."""
    return {k: [v + step if isinstance(v, int) and v > 0 else v for v in vs] for k, vs in given.items()}


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


def title(declaration: Declaration, spec: Spec) -> str:
    """What a correction does: ``declare `n` static``."""
    changed = {k for k in ("static", "donate") for f in FIELDS
               if f.startswith(k) and spec[f] != declaration.given[f]}  # fmt: skip
    words = {"static": "static", "donate": "donated"}
    told = (
        f"{' and '.join(f'`{n}`' for n in declaration.parameters.chosen(spec, kind)) or 'nothing'} {word}"
        for kind, word in words.items()
        if kind in changed
    )
    return f"declare {', '.join(told)}"


def written(cell: str, declaration: Declaration, spec: Spec) -> str:
    """The cell with this spec, each field in the form that it had; without the fields that have nothing left."""
    text, call = Text(cell), declaration.call
    changed = {field: values for field, values in spec.items() if values != declaration.given[field]}
    had = {k.arg: k.value for k in call.keywords}
    if all(values and field in had for field, values in changed.items()):
        for field, values in changed.items():
            text.replace(had[field], _in_the_form_of(text.code(had[field]), values))
        return text.result()
    given = [*map(text.code, call.args)]
    for keyword in call.keywords:
        if keyword.arg not in changed:
            given.append(text.code(keyword))
        elif values := changed[keyword.arg]:
            given.append(f"{keyword.arg}={_in_the_form_of(text.code(keyword.value), values)}")
    given += [f"{field}={shown(values)}" for field, values in changed.items() if values and field not in had]
    if len(given) == len(call.args) == 1 and not is_jit(call.func):  # partial(jax.jit)
        return text.replace(call, given[0]).result()
    return text.replace(call, f"{text.code(call.func)}({', '.join(given)})").result()


def _in_the_form_of(old: str, values: Sequence[Any]) -> str:
    """The values as a tuple, list or single value, quoted as what stood there."""
    made = shown(values, bare=old[:1] not in "([{")
    if old.startswith("["):
        made = f"[{made[1:-1].rstrip(',')}]"
    return made.replace('"', "'") if "'" in old else made


def shown(values: Sequence[Any], *, bare: bool = True) -> str:
    """A value by itself, several as a tuple."""
    return repr(values[0] if bare and len(values) == 1 else tuple(values)).replace("'", '"')
