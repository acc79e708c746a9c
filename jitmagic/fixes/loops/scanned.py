"""A Python loop as a `jax.lax.scan`, or as a `jax.vmap` where no iteration needs another, as in comprehensions; what
its lists get are stacked results."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.loops.filled import Filled, as_stacked, filled_lists, stacks, uses_after, without_lists
from jitmagic.fixes.loops.heads import counted, fresh, rows
from jitmagic.fixes.loops.iterations import Iteration, function, group, iteration
from jitmagic.fixes.stores.rebinding import rebindings
from jitmagic.source import scope
from jitmagic.source.edits import CannotEdit, Edits
from jitmagic.source.loops import LoopBody, Turns
from jitmagic.source.modules import dotted
from jitmagic.source.pattern import atom, call_of
from jitmagic.state.adapters import OWN_LOOPS

SCAN = "loop with `jax.lax.scan`"
STACKED = f"{SCAN}, which stacks the results"
VMAP = "map over the rows with `jax.vmap`"
FEWER = Claim(fewer="equations")


def scanned_loops(spot: Spot) -> Iterator[Change]:
    """A `for` over rows, or one that fills lists, as a `vmap` or a `scan`; equal things in a list are stacked."""
    yield from _scanned(spot, "")


def followed_loops(spot: Spot) -> Iterator[Change]:
    """A `for` around calls of a framework's objects as the framework's own loop, which follows their variables."""
    packages = {full.partition(".")[0] for full in spot.modules.names.values()}
    for own in OWN_LOOPS:
        if own.partition(".")[0] in packages:
            yield from _scanned(spot, own)


def _scanned(spot: Spot, own: str) -> Iterator[Change]:
    loop = spot.here(ast.For)
    turns = Turns.of(loop) if loop is not None else None
    if loop is None or turns is None or loop.orelse or LoopBody(spot.text, loop).jumps:
        return
    live, lists = scope.live_after(spot.text, loop), filled_lists(spot, loop)
    code = without_lists(spot, loop, turns, lists, rebindings(spot, loop.body))
    lasts = [n for x in lists for n in x.lasts]
    step = iteration(spot, loop, code, [*turns.names, *lasts], follows=bool(own))
    if turns.names & live or not own and not lists and (turns.counting is not None or not step.carried):
        return  # what only counts is for `fori_loop`
    looped = _Looped(spot, loop, turns, lists, step, live | {*spot.kept}, own)
    yield from looped.changes(rows(spot, turns))
    if turns.arrays:
        stacked = spot.fresh("stacked", "rows")
        before = spot.write("$$name = jax.tree.map(lambda *leaves: jnp.stack(leaves), *$looped)\n\n",
                            name=stacked, looped=loop.iter)  # fmt: skip
        yield from looped.changes([(spot.code(loop.target), stacked)], before)


@dataclass(frozen=True)
class _Looped:
    """A loop, the lists that it fills, and the rest of an iteration."""

    spot: Spot
    loop: ast.For
    turns: Turns
    lists: list[Filled]
    step: Iteration
    live: set[str]
    own: str = ""
    """The module of a framework whose loops are written."""

    def changes(self, given: list[tuple[str, str]], before: str = "") -> Iterator[Change]:
        """The loop over these rows, each with its name; `before` makes them."""
        independent = self.lists and not self.step.carried and not self.turns.backwards
        if self.own:
            alone = not self.step.carried and not any(x.lasts for x in self.lists)
            name = self.spot.modules.spelled(f"{self.own}.{'for_loop' if alone else 'scan'}")
            new = self._looped(given, name) if alone else self._scanned(given, name)
            title = f"loop with `{name}`, which follows variables"
            yield Change(title, self._put(before + new), claim=FEWER)
            return
        if independent and all(x.plain and not x.start for x in self.lists):
            yield Change(VMAP, self._put(before + self._mapped(given)), claim=FEWER)
        scanned = self._scanned(given, self.spot.write("lax.scan"))
        yield Change(STACKED if self.lists else SCAN, self._put(before + scanned), claim=FEWER)

    def _put(self, code: str) -> Edits:
        """The loop's place, with the lists not made any more and what uses them."""
        spot, edits = self.spot, self.spot.edits()
        for x in self.lists:
            code += as_stacked(spot, edits, uses_after(spot, self.loop, x.name), x.value)
        names = {x.name for x in self.lists}
        gone: list[ast.stmt] = [x.made for x in self.lists if set(scope.stores(x.made)) <= names]
        block, at = spot.text.siblings(self.loop)
        while at and block[at - 1] in gone:
            at -= 1
        for made in dict.fromkeys(gone):
            if made not in block[at:]:
                edits.remove(made)
        return edits.statements(block[at], code, self.loop)

    @property
    def values(self) -> list[str]:
        """What each iteration adds to the lists."""
        return [x.code for x in self.lists]

    def _mapped(self, given: list[tuple[str, str]]) -> str:
        """Statements of a `vmap`."""
        spot, code, targets = self.spot, self.step.code, [t for t, _ in given]
        mapped, defined = f"lambda {', '.join(targets)}: {group(self.values)}", ""
        if code or not all(map(str.isidentifier, targets)):
            mapped = fresh(spot, code, "one", "each")
            parameters = [t if t.isidentifier() else fresh(spot, ", ".join(targets), "row") for t in targets]
            unpacked = "".join(f"{t} = {p}\n" for p, t in zip(parameters, targets, strict=True) if p != t)
            defined = function(mapped, ", ".join(parameters), unpacked + code, ", ".join(self.values))
        names, arrays = ", ".join(x.name for x in self.lists), ", ".join(a for _, a in given)
        vmap = "$$names = jax.vmap($$mapped)($$arrays)\n"
        return defined + spot.write(vmap, names=names, mapped=mapped, arrays=arrays)

    def _looped(self, given: list[tuple[str, str]], loop: str) -> str:
        """Statements of a `for_loop`."""
        row, xs, unpacked = self._row(given)
        name = fresh(self.spot, self.step.code, "step", "body")
        defined = function(name, row, unpacked + self.step.code, ", ".join(self.values) or "None")
        out = f"{', '.join(x.name for x in self.lists)} = " if self.lists else ""
        around = [self._finished(x, set()) for x in self.lists]
        before, after = "".join(b for b, _ in around), "".join(a for _, a in around)
        reverse = ["reverse=True"] if self.turns.backwards else []
        return f"{defined}{before}{self.step.first}{out}{call_of(loop, name, xs, *reverse)}\n{after}"

    def _scanned(self, given: list[tuple[str, str]], loop: str) -> str:
        """Statements of a `scan`."""
        spot, code, carried = self.spot, self.step.code, list(self.step.carried)
        lasts = [(n, spot.code(x.start[-k])) for x in self.lists for k, n in enumerate(x.lasts, 1)]
        state, starts = [*carried, *(n for n, _ in lasts)], [*carried, *(v for _, v in lasts)]
        row, xs, unpacked = self._row(given)
        whole = "_" if not state and row != "_" else fresh(spot, code, "state", "carry")
        whole = state[0] if len(state) == 1 and state[0].isidentifier() else whole
        unpacked += f"{', '.join(state)} = {whole}\n" * (whole not in ("_", *state))
        name = fresh(spot, code, "step", "body")
        defined = function(name, f"{whole}, {row}", unpacked + code, f"{group(state)}, {group(self.values)}")
        bound = [n if n in self.live else "_" for n in state]
        into, out = group(bound) if {*bound} - {"_"} else "_", group([x.name for x in self.lists] or ["_"])
        reverse = ["reverse=True"] if self.turns.backwards else []
        scan = f"{into}, {out} = {call_of(loop, name, group(starts), xs, *reverse)}\n"
        around = [self._finished(x, {*bound}) for x in self.lists]
        before, after = "".join(b for b, _ in around), "".join(a for _, a in around)
        return f"{defined}{before}{self.step.first}{scan}{after}"

    def _row(self, given: list[tuple[str, str]]) -> tuple[str, str, str]:
        """The parameter for what an iteration takes, the arrays, and how the parameter is unpacked."""
        target, xs = ", ".join(t for t, _ in given), group([a for _, a in given])
        reads = scope.loads(f"{self.step.code}\n{group(self.values)}")
        if self.turns.counting is not None and target not in reads and not self.own:
            return "_", f"None, length={counted(self.spot, self.turns).count}", ""
        if target.isidentifier():
            return target, xs, ""
        row = fresh(self.spot, f"{self.step.code}\n{target}", "row")
        return row, xs, f"{target} = {row}\n"

    def _finished(self, x: Filled, bound: set[str]) -> tuple[str, str]:
        """Statements before and after a scan that give the array of a list its order and what the list began with."""
        write, before, after = self.spot.write, "", ""
        if isinstance(x.holder, ast.If):
            if self.turns.backwards or isinstance(x.value, ast.Tuple):
                raise CannotEdit("a list that some iterations fill")
            k = self.spot.fresh("k", "turn")
            after = write(
                "$$xs = $$xs[jnp.array([$$k for $$k, $$t in enumerate($looped) if $$test])]\n", xs=x.name, k=k,
                t=self.loop.target, looped=self.loop.iter, test=x.holder.test,
            )  # fmt: skip
        if self.turns.backwards != x.front:
            after += f"{x.name} = {x.name}[::-1]\n"
        if x.start:
            first = write("jnp.stack([$*start])", start=x.start)
            if bound & {n for e in x.start for n in scope.loads(e)}:  # it has another value behind the loop
                name = fresh(self.spot, "", f"first_{x.name}")
                before, first = f"{name} = {first}\n", name
            parts = [x.name, first] if x.front else [first, x.name]
            after += write("$$xs = jnp.concatenate([$*parts])\n", xs=x.name, parts=", ".join(parts))
        return before, after


# --- comprehensions ----------------------------------------------------------------------------------

MAPPED = "map with `jax.vmap`"


def mapped_comprehensions(spot: Spot) -> Iterator[Change]:
    """`jnp.stack([f(x) for x in xs])` as `jax.vmap(f)(xs)`, `sum(...)` as the sum of that."""
    for node in spot.on_line(ast.ListComp, ast.GeneratorExp):
        if isinstance(node, ast.ListComp | ast.GeneratorExp) and (mapped := _as_vmap(spot, node)):
            yield from _placed(spot, node, mapped, node.elt)


def _as_vmap(spot: Spot, node: ast.ListComp | ast.GeneratorExp) -> str:
    """A comprehension without conditions as `jax.vmap`, inner ones with it; a second `for` gives rows in a row."""
    code = _as_vmap(spot, node.elt) if isinstance(node.elt, ast.ListComp) else spot.code(node.elt)
    element: ast.expr | None = node.elt
    for generator in reversed(node.generators):
        turns = Turns.of(generator)
        if not code or turns is None or generator.ifs or turns.backwards:
            return ""
        given = rows(spot, turns)
        names, arrays = ", ".join(t for t, _ in given), ", ".join(a for _, a in given)
        if not all(t.isidentifier() for t, _ in given):
            return ""
        function = f"lambda {names}: {code}"
        if isinstance(element, ast.Call) and not element.keywords and dotted(element.func):
            if ", ".join(map(spot.code, element.args)) == names:
                function = dotted(element.func)
        code, element = spot.write("jax.vmap($$function)($$arrays)", function=function, arrays=arrays), None
    for _ in node.generators[1:]:
        code = spot.write("jnp.concatenate($code)", code=code)
    return code


def _placed(spot: Spot, node: ast.expr, mapped: str, value: ast.expr) -> Iterator[Change]:
    """What is mapped in the place of a list: stacked already where it was stacked, added up by `jnp.sum`."""
    around, edits, title = spot.text.parents[node], spot.edits(), MAPPED
    if isinstance(around, ast.Call) and around.args[:1] == [node]:
        if stacks(spot, around):
            edits.replace(around, mapped)
        elif isinstance(around.func, ast.Name) and around.func.id == "sum":
            total, title = spot.write("jnp.sum($mapped, axis=0)", mapped=mapped), f"{MAPPED} and add up"
            start = f"{atom(spot.code(around.args[1]))} + " if around.args[1:] else ""
            edits.replace(around, start + total)
        else:
            edits.replace(node, mapped)
    elif isinstance(around, ast.Assign) and isinstance(around.targets[0], ast.Name):
        edits.replace(node, mapped)
        if again := as_stacked(spot, edits, uses_after(spot, around, around.targets[0].id), value):
            edits.after(around, again)
    elif isinstance(node, ast.GeneratorExp):
        return
    else:
        edits.replace(node, f"list({mapped})")
    yield Change(title, edits, claim=FEWER)
