"""What a traced program shows: keys used twice, keys that no argument changes, loops written out.

Each variable gets a number for the value it holds (value numbering): what leaves a value as it is, or picks
the same part of it, gives the same number, so two draws from `keys[0]` are two draws from one key.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jax.extend.core import JaxprEqn, Literal

from jitmagic.measure.program import called_program, constants_of, scan_parts
from jitmagic.source.tree import ByCode
from jitmagic.tracing import compat
from jitmagic.tracing.locate import is_user_file

Frame = tuple[types.CodeType, int]
Stack = tuple[Frame, ...]
"""User frames in which an equation arose, innermost first."""

_SAME = frozenset(
    "random_wrap random_unwrap copy copy_p convert_element_type device_put optimization_barrier".split()
)
_MOST_PARTS = 64
"""Of larger splits the first parts are followed one by one."""
_PICKS = frozenset(
    "slice squeeze unstack reshape dynamic_slice gather random_split random_fold_in random_seed broadcast_in_dim "
    "expand_dims transpose rev random_clone concatenate add sub mul lt select_n iota stack".split()
)
_DRAWS = frozenset("random_bits threefry2x32 random_gamma rng_bit_generator".split())
_RANDOM = _DRAWS | {"random_split", "random_seed", "random_wrap", "threefry_seed"}


@dataclass(frozen=True)
class Value:
    """`number`: equal numbers are equal values. `dynamic`: some input leads to it. `loops`: loops at each turn
    of which it may be another. `root`: the argument or seed that it comes from."""

    number: int
    dynamic: bool
    loops: frozenset[int] = frozenset()
    root: object = None
    parts: Parts | None = None
    keys: frozenset[int] = frozenset()
    """Numbers of the keys that were drawn with to make it, and of those from which they were split."""


@dataclass(frozen=True)
class Consumed:
    """A key that a draw or a split used up."""

    value: Value
    stack: Stack
    draw: bool
    loop: int | None
    """The loop at whose every turn the same key is used."""
    inside: Stack = ()
    """The way from there through a library."""


@dataclass(frozen=True)
class Parts:
    """Keys that a split made: `count` of them from `first` on. Part `i` is the same however many a split makes.
    `key` is the number of the key that was split, `made` the split itself."""

    key: int
    first: int
    count: int
    made: Consumed


@dataclass
class Keys:
    """What happened to the keys of a program, in order."""

    reused: list[tuple[Consumed, Consumed]] = field(default_factory=list)
    fixed: list[tuple[Stack, object, Stack]] = field(default_factory=list)
    """(frames of the draw, the root of its key, frames where the root was made) where no input leads to it."""


@dataclass(frozen=True)
class Seed:
    """A root: a key made from a seed inside the program."""

    stack: Stack
    constant: bool


@dataclass(frozen=True)
class Constant:
    """A root: a value that the program holds."""

    value: object = field(compare=False)


def keys_of(closed: object) -> Keys:
    """Keys used twice, and draws whose key depends on no input."""
    if not any(eqn.primitive.name in _RANDOM for eqn in compat.every_equation(closed)):
        return Keys()
    found = _Walk().whole(closed).found
    if any(_alike(*pair) for pair in found.reused):
        walk = _Walk(exact=True).whole(closed)
        found.reused = [
            p for p in walk.found.reused if not (_alike(*p) and _keys_of(p[0].value) & walk.on_purpose)
        ]
    return found


def _keys_of(key: Value) -> frozenset[int]:
    """The key, and that from which it was split."""
    return frozenset((key.number, key.parts.key if key.parts else key.number))


def _alike(earlier: Consumed, now: Consumed) -> bool:
    """The same line uses the key in two calls of its function."""
    return earlier is not now and earlier.stack[:1] == now.stack[:1]


class _Walk:
    """`exact`: all that is computed twice from the same has the same number."""

    def __init__(self, *, exact: bool = False) -> None:
        self.found, self.exact = Keys(), exact
        self.count = 0
        self.on_purpose: set[int] = set()
        """Keys that serve both sides of a quotient of differences, where the random numbers are to be the same."""
        self._differences: dict[int, frozenset[int]] = {}
        self.numbers: dict[object, int] = {}
        self.in_loop: tuple[int, ...] = ()
        self.site: Stack = ()
        self.now: object = None
        """The equation that is looked at, and where the user's code asks for it."""

    def whole(self, closed: object) -> _Walk:
        """The walk, after it has been through a program."""
        inputs = [Value(self.fresh(), True, root=i) for i, _ in enumerate(compat.jaxpr_of(closed).invars)]
        self.program(closed, inputs, {})
        return self

    def fresh(self) -> int:
        self.count += 1
        return self.count

    def numbered(self, key: object) -> int:
        if key not in self.numbers:
            self.numbers[key] = self.fresh()
        return self.numbers[key]

    def program(self, jaxpr: object, inputs: Sequence[Value], used: dict[int, Consumed]) -> list[Value]:
        """Values of the results; `used` is filled with the keys used up."""
        body = compat.jaxpr_of(jaxpr)
        values: dict[object, Value] = dict(zip(body.invars, inputs, strict=True))
        for var, constant in zip(body.constvars, constants_of(jaxpr), strict=False):
            values[var] = self.constant(constant)

        def read(atom: object) -> Value:
            return self.constant(atom.val) if isinstance(atom, Literal) else values[atom]

        for eqn in body.eqns:
            results = self.equation(eqn, [read(v) for v in eqn.invars], used)
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(v) for v in body.outvars]

    def constant(self, value: object) -> Value:
        key = (
            repr(value)
            if getattr(value, "ndim", 0) == 0 and not hasattr(value, "addressable_shards")
            else id(value)
        )
        return Value(self.numbered(("constant", type(value), key)), False, root=Constant(value))

    def equation(self, eqn: JaxprEqn, inputs: list[Value], used: dict[int, Consumed]) -> list[Value]:
        name, outer = eqn.primitive.name, (self.site, self.now)
        self.site, self.now = user_frames(eqn) or self.site, eqn
        try:
            return self._equation(name, eqn, inputs, used)
        finally:
            self.site, self.now = outer

    def _equation(
        self, name: str, eqn: JaxprEqn, inputs: list[Value], used: dict[int, Consumed]
    ) -> list[Value]:
        if name == "scan":
            return self.scan(eqn, inputs, used)
        if name == "while":
            return self.loop(eqn, inputs, used)
        if name == "cond":
            return self.cond(eqn, inputs, used)
        inner = called_program(eqn)
        if inner is not None:
            return self.program(inner[0], [inputs[i] for i in inner[1]], used)
        if name in _DRAWS and inputs:
            self.consume(inputs[0], used, draw=True)
        elif name == "random_split":
            self.consume(inputs[0], used, draw=False)
        return self.results(name, eqn, inputs)

    def results(self, name: str, eqn: JaxprEqn, inputs: list[Value]) -> list[Value]:
        if name in _SAME and len(inputs) == 1:
            return [inputs[0]]
        if (parts := self.split(name, eqn, inputs)) is not None:
            return parts
        dynamic = any(v.dynamic for v in inputs)
        loops = frozenset().union(*(v.loops for v in inputs))
        keys = frozenset().union(*(v.keys for v in inputs))
        if name in _DRAWS and inputs:
            keys = _keys_of(inputs[0])
        root = next((v.root for v in inputs if v.dynamic), next((v.root for v in inputs), None))
        if name in ("random_seed", "random_wrap", "threefry_seed"):
            root = root if dynamic or name != "random_seed" else Seed(self.site, True)
        if name not in _PICKS and not self.exact:
            return [Value(self.fresh(), dynamic, loops, root, keys=keys) for _ in eqn.outvars]
        key = (name, tuple(v.number for v in inputs), str(eqn.params) if eqn.params else "")
        differ = [self._differences.get(v.number, frozenset()) for v in inputs]
        if name == "div":
            self.on_purpose |= differ[0]
        elif name == "mul":
            self._differences[self.numbered((key, 0))] = differ[0] | differ[1]
        elif name == "sub" and inputs[0].number != inputs[1].number:
            self._differences[self.numbered((key, 0))] = inputs[0].keys & inputs[1].keys
        return [
            Value(self.numbered((key, i)), dynamic, loops, root, keys=keys) for i, _ in enumerate(eqn.outvars)
        ]

    def split(self, name: str, eqn: Any, inputs: list[Value]) -> list[Value] | None:
        """Values of the parts of a split, or of those picked from it; None for all else."""
        if name == "random_split" and not eqn.invars[0].aval.shape and len(eqn.params["shape"]) == 1:
            made = Consumed(inputs[0], self.site, False, None)
            return [self.part(inputs[0], Parts(inputs[0].number, 0, eqn.params["shape"][0], made))]
        whole = inputs[0].parts if inputs else None
        if whole is None or len(inputs) != 1:
            return None
        if name == "slice" and not any(eqn.params["start_indices"][1:]):
            first, last = eqn.params["start_indices"][0], eqn.params["limit_indices"][0]
            if all(s == 1 for s in eqn.params["strides"] or ()):
                return [self.part(inputs[0], replace(whole, first=whole.first + first, count=last - first))]
        if name == "squeeze" and eqn.params["dimensions"] == (0,):
            return [self.part(inputs[0], whole, one=True)]
        if name == "unstack" and eqn.params["axis"] == 0:
            each = [replace(whole, first=whole.first + i, count=1) for i in range(whole.count)]
            return [self.part(inputs[0], p, one=True) for p in each]
        return None

    def part(self, of: Value, parts: Parts, *, one: bool = False) -> Value:
        """One key of a split, or an array of some."""
        keys = (
            self.part_number(parts, 0)
            if one
            else self.numbered(("parts", parts.key, parts.first, parts.count))
        )
        return replace(of, number=keys, parts=parts)

    def part_number(self, parts: Parts, turn: int) -> int:
        return self.numbered(("part", parts.key, parts.first + turn))

    def consume(self, key: Value, used: dict[int, Consumed], *, draw: bool, inside: Stack = ()) -> None:
        loop = next((x for x in self.in_loop if x not in key.loops), None)
        frames, own = compat.eqn_frames(self.now), user_frames(self.now)
        now = Consumed(key, self.site, draw, loop, (*inside, *frames[: len(frames) - len(own)]))
        if draw and not key.dynamic:
            made = key.root.stack if isinstance(key.root, Seed) else ()
            self.found.fixed.append((self.site, key.root, made))
        parts = key.parts
        each = [self.part_number(parts, i) for i in range(min(parts.count, _MOST_PARTS))] if parts else []
        numbers = dict.fromkeys((key.number, *each))
        earlier = next((used[n] for n in numbers if n in used and (draw or used[n].draw)), None)
        of_library = earlier is not None and earlier.stack == now.stack and earlier.inside != now.inside
        if earlier is not None and not of_library:  # whose function may use one key in two ways
            self.found.reused.append(_splits(earlier, now) or (earlier, now))
        elif loop is not None and draw:
            self.found.reused.append((now, now))
        for number in numbers:
            used.setdefault(number, now)

    def scan(self, eqn: JaxprEqn, inputs: list[Value], used: dict[int, Consumed]) -> list[Value]:
        fixed, carry, _ = scan_parts(eqn, inputs)
        many = eqn.params["length"] > 1
        return self.turns(eqn.params["jaxpr"], inputs, len(fixed), len(carry), used, eqn, many)

    def turns(
        self,
        body: object,
        inputs: list[Value],
        consts: int,
        carries: int,
        used: dict[int, Consumed],
        eqn: JaxprEqn,
        many: bool,
    ) -> list[Value]:
        """A loop's body once, with what changes from turn to turn marked."""
        loop, inner = self.fresh(), compat.jaxpr_of(body)
        rows = consts + carries  # from here on each turn has a row of its own
        kept = [
            i < consts or (i < consts + carries and inner.outvars[i - consts] is inner.invars[i])
            for i in range(len(inputs))
        ]
        inside = [
            v
            if same
            else Value(self.fresh(), v.dynamic, v.loops | {loop}, v.root, v.parts if i >= rows else None)
            for i, (v, same) in enumerate(zip(inputs, kept, strict=True))
        ]
        known = set(used)
        before, self.in_loop = self.in_loop, (*self.in_loop, loop) if many else self.in_loop
        try:
            inside = self.settled(body, inside, consts, carries)
            results = self.program(body, inside, used)
        finally:
            self.in_loop = before
        draws = any(c.draw for n, c in used.items() if n not in known)
        for i in range(consts, rows):  # the first turn uses what the loop begins with
            if not kept[i] and (first := used.get(inside[i].number)) is not None:
                self.consume(inputs[i], used, draw=draws, inside=first.inside)
        out = [Value(self.fresh(), v.dynamic, v.loops - {loop}, v.root, keys=v.keys) for v in results]
        for i in range(min(carries, len(out))):
            if kept[consts + i]:
                out[i] = inputs[consts + i]
        return out[: len(eqn.outvars)]

    def settled(self, body: object, inside: list[Value], consts: int, carries: int) -> list[Value]:
        """The inputs of a body with all of the carry marked dynamic that some turn makes so."""
        for _ in range(carries + 1):
            found, self.found = self.found, Keys()
            try:
                results = self.program(body, inside, {})
            finally:
                self.found = found
            after = [
                replace(v, dynamic=True) if 0 <= i - consts < carries and results[i - consts].dynamic else v
                for i, v in enumerate(inside)
            ]
            if after == inside:
                break
            inside = after
        return inside

    def loop(self, eqn: JaxprEqn, inputs: list[Value], used: dict[int, Consumed]) -> list[Value]:
        split = eqn.params["cond_nconsts"]
        end = split + eqn.params["body_nconsts"]
        carry = len(inputs) - end
        return self.turns(
            eqn.params["body_jaxpr"], inputs[split:], eqn.params["body_nconsts"], carry, used, eqn, True
        )

    def cond(self, eqn: JaxprEqn, inputs: list[Value], used: dict[int, Consumed]) -> list[Value]:
        after = dict(used)
        columns = []
        for branch in eqn.params["branches"]:
            own = dict(used)
            columns.append(self.program(branch, inputs[1:], own))
            after |= own
        used.update(after)
        dynamic = any(v.dynamic for v in inputs)
        return [
            Value(
                self.fresh(),
                dynamic or any(v.dynamic for v in c),
                frozenset().union(*(v.loops for v in c)),
                c[0].root,
            )
            for c in zip(*columns, strict=True)
        ]


def _splits(earlier: Consumed, now: Consumed) -> tuple[Consumed, Consumed] | None:
    """The two splits at different places that gave both uses the same key."""
    one, other = earlier.value.parts, now.value.parts
    if one is None or other is None or one.made.stack == other.made.stack:
        return None
    return one.made, other.made


_users: ByCode[bool] = ByCode()
"""Code objects that were once seen to be the user's, or a library's."""


def _is_users(code: types.CodeType) -> bool:
    known = _users.get(code)
    return _users.put(code, is_user_file(code.co_filename)) if known is None else known


def user_frames(eqn: object, known: dict[int, bool] | None = None) -> Stack:
    """The frames of the user's own code in which an equation arose, innermost first.

    `known` is a dictionary that one walk over a program shares: whose code is whose, by `id`."""
    users: dict[int, bool] = {} if known is None else known
    found = []
    for frame in compat.eqn_frames(eqn):
        own = users.get(id(frame[0]))
        if own is None:
            own = users[id(frame[0])] = _is_users(frame[0])
        if own:
            found.append(frame)
    return tuple(found)


_equations: weakref.WeakKeyDictionary[Any, list[tuple[JaxprEqn, Stack]]] = weakref.WeakKeyDictionary()


def all_equations(jaxpr: Any) -> list[tuple[JaxprEqn, Stack]]:
    """Every equation, inner programs included, with its user frames (those of the call where it has none). Not to be
    changed: remembered as long as the program lives."""
    if (told := _equations.get(jaxpr)) is not None:
        return told
    found: list[tuple[JaxprEqn, Stack]] = []
    known: dict[int, bool] = {}

    def collect(inner: object, outer: Stack) -> None:
        for eqn in compat.jaxpr_of(inner).eqns:
            stack = user_frames(eqn, known) or outer
            found.append((eqn, stack))
            for sub in compat.subjaxprs(eqn):
                collect(sub, stack)

    collect(jaxpr, ())
    _equations[jaxpr] = found
    return found
