"""A key as an argument of every function between a draw and the top of the notebook, where each call gets another."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.randomness.own_keys import KeyUse, is_repeated, share
from jitmagic.source import scope, signature
from jitmagic.source.edits import CannotEdit, Edits, FunctionNode, Text
from jitmagic.source.modules import last_name

NAMES = ("key", "rng_key", "prng_key")
_WRAPPERS = frozenset(
    f"jax.{name}"
    for name in "jit vmap grad value_and_grad jacfwd jacrev jacobian hessian checkpoint remat".split()
)
_PARTIAL = "functools.partial"


@dataclass
class KeyArgument:
    """A parameter for a key that functions of the cell get, with all that calls them there and in later cells."""

    spot: Spot
    name: str
    given: Callable[[int], str]
    """The key that the call of this number gets at the top of the notebook."""
    program: list[Edits] = field(default_factory=list)
    _outside: list[tuple[Edits, KeyUse]] = field(default_factory=list)
    _uses: dict[FunctionNode, tuple[Edits, list[KeyUse]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.program = self.spot.cells()

    @property
    def edits(self) -> Edits:
        """The changes of the cell itself."""
        return self.program[0]

    def hand_down(self, function: FunctionNode, uses: Sequence[KeyUse], *, has_it: bool = False) -> Change:
        """The function takes the key for these uses, and its callers hand one on. `has_it`: there is a parameter with
        a default, which the calls leave out. Raises CannotEdit."""
        self._uses[function] = self.edits, list(uses)
        todo = [(self.edits, function)]
        for edits, taker in todo:
            own = has_it and taker is function
            if taker.name == "__init__" or not own and self.name in scope.parameters_of(taker):
                raise CannotEdit("it cannot take the key")
            keyword = own or signature.add_parameter(edits, taker, self.name)
            for place, call, rows, partly in self._calls(edits, taker):
                if own and signature.argument_of(call, taker, self.name) is not None:
                    continue
                caller = place.text.outermost(call)
                use = KeyUse(call, partial(self._pass, place, call, rows, keyword or partly))
                if caller is None:
                    self._outside.append((place, use))
                    continue
                if caller not in self._uses:
                    self._uses[caller] = place, []
                    todo.append((place, caller))
                self._uses[caller][1].append(use)
        for taker, (edits, found) in self._uses.items():
            if found:
                share(self.spot, edits, taker, found, self.name, self.name)
        self._give_at_the_top()
        title = f"take `{self.name}` as an argument, a new key for each call"
        later = tuple(edits.result() for edits in self.program[1:])
        passed = ((self.name, self.given(0)),)
        return Change(title, self.edits, later, passed=passed, claim=Claim("other random"))

    def _pass(self, edits: Edits, call: ast.Call, rows: bool, keyword: bool, key: str) -> None:
        if rows:
            many = self.spot.write("jax.random.split($key, len($rows))", edits, key=key, rows=call.args[0])
        signature.pass_to(edits, call, {self.name: many if rows else key}, keyword=keyword)

    def _calls(self, edits: Edits, taker: FunctionNode) -> Iterator[tuple[Edits, ast.Call, bool, bool]]:
        """Calls of a function, `jax.grad(f)(x)` among them; whether each is of `jax.vmap(f)`, a key for each row, and
        whether of a partial function, which takes it by name."""
        kind = edits.text.parents[taker]
        method = isinstance(kind, ast.ClassDef)
        names = {taker.name}
        if isinstance(kind, ast.ClassDef) and taker.name == "__call__":
            assigns = (a for e in self.program for a in e.text.within(e.text.tree, ast.Assign))
            made = (a for a in assigns if last_name(getattr(a.value, "func", a)) == kind.name)
            names = {last_name(t) for a in made for t in a.targets}
        for place in self.program:
            for call in place.text.within(place.text.tree, ast.Call):
                called, rows, partly = self._called(place.text, call)
                plain = isinstance(called, ast.Name)
                if last_name(called) in names and (plain != method or taker.name == "__call__"):
                    yield place, call, rows, partly

    def _called(self, text: Text, call: ast.Call) -> tuple[ast.AST, bool, bool]:
        """What a call calls, within what jax makes of it."""
        called, rows, partly = call.func, False, False
        while True:
            if isinstance(called, ast.Name):
                value = scope.assigned(text.tree, called.id)
                if not isinstance(value, ast.Call) or self.spot.full(value) not in (*_WRAPPERS, _PARTIAL):
                    return called, rows, partly
                called = value
            made = self.spot.full(called) if isinstance(called, ast.Call) and called.args else ""
            if not isinstance(called, ast.Call) or made not in (*_WRAPPERS, _PARTIAL):
                return called, rows, partly
            rows, partly = rows or last_name(called.func) == "vmap", partly or made == _PARTIAL
            if rows and called.keywords:
                return called, rows, partly  # it maps over some of the arguments
            called = called.args[0]

    def _give_at_the_top(self) -> None:
        """Each call that stands in no function gets a key that no other gets; one in a loop a part of one."""
        number, loops = 0, dict[ast.AST, tuple[Edits, list[KeyUse]]]()
        for edits, use in self._outside:
            tree = edits.text.tree
            if is_repeated(edits, use.node, tree):
                loops.setdefault(edits.text.top(use.node), (edits, []))[1].append(use)
                continue
            share(self.spot, edits, tree, [use], self.given(number))
            number += 1
        for edits, uses in loops.values():
            tree, key = edits.text.tree, self.given(number)
            taken = {*scope.stores(tree), *scope.loads(key)}
            share(self.spot, edits, tree, uses, key, self.name if self.name not in taken else "")
            number += 1


# --- families -----------------------------------------------------------------------------------------


def fixed_keys(spot: Spot) -> Iterator[Change]:
    """A key that a function makes from a fixed seed is its argument."""
    text = spot.text
    for seed in (n for n in spot.on_line(ast.Call) if spot.full(n) in _MAKERS and n.args):
        function, statement = text.outermost(seed), text.statement(seed)
        if function is None or isinstance(text.parents[seed], ast.arguments):
            continue
        bound = text.bound_to(seed)
        made = KeyArgument(spot, bound or spot.fresh(*NAMES), seeded(spot, seed))
        uses = [] if bound else [KeyUse(seed, partial(made.edits.replace, seed))]
        if bound:
            made.edits.remove(statement)
        yield made.hand_down(function, uses)


def default_keys(spot: Spot) -> Iterator[Change]:
    """A key that is the default of a parameter is given by each call."""
    function = spot.outermost
    for name, value in scope.defaults_of(function).items() if function is not None else ():
        if name in spot.names and isinstance(value, ast.Call) and spot.full(value) in _MAKERS:
            assert function is not None
            yield KeyArgument(spot, name, seeded(spot, value)).hand_down(function, [], has_it=True)


def captured_keys(spot: Spot) -> Iterator[Change]:
    """A key of the notebook that a function reads, as `KEY` or `self.key`, is its argument; each call gets a part of
    it."""
    function = spot.outermost
    facts = [f for f in spot.evidence.silent.random if f.origin == "captured" and f.names]
    for names in dict.fromkeys(f.names for f in facts if f.names[0] in spot.names and function is not None):
        assert function is not None
        read = [(n, ast.unparse(n)) for n in spot.text.within(function, ast.expr)]
        path, own = names[0], [n for n in names if n in [code for _, code in read]]
        written = next((n for n in own if n.rpartition(".")[2] == path.rpartition(".")[2]), "")
        reads, plain = [n for n, code in read if code == written], written.isidentifier()
        if not reads or plain and written not in scope.loads(function):
            continue
        name = written if plain else spot.fresh(*NAMES)
        made = KeyArgument(spot, name, partial(_part_of, spot, path))
        uses = [KeyUse(n, partial(made.edits.replace, n)) for n in reads if not plain]
        yield made.hand_down(function, uses)


_MAKERS = ("jax.random.key", "jax.random.PRNGKey")


def seeded(spot: Spot, seed: ast.Call) -> Callable[[int], str]:
    """Keys made as one from a fixed seed is, from the seeds that follow it."""
    start = seed.args[0].value if isinstance(seed.args[0], ast.Constant) else 0
    first = start if isinstance(start, int) else 0
    return lambda number: f"{spot.code(seed.func)}({first + number})"


def _part_of(spot: Spot, key: str, number: int) -> str:
    return spot.write("jax.random.fold_in($key, $n)", key=key, n=str(number))
