"""Arrays that come in many lengths, padded to a few: a mask keeps the padding out of what is made of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jitmagic.fixes.change import Change, Claim, Spot
from jitmagic.fixes.sizes.masked_expressions import Alias
from jitmagic.fixes.sizes.masked_functions import Bodies
from jitmagic.fixes.sizes.masks import Mask, Masked
from jitmagic.fixes.sizes.statements import Known
from jitmagic.source import scope
from jitmagic.source.edits import Edits, FunctionNode, Text
from jitmagic.source.pattern import call_of
from jitmagic.source.signature import add_parameter, body_of
from jitmagic.source.tree import SCOPES

COST = "up to twice the work"


@dataclass
class _Varying:
    """A length that differs between the calls, and the axes of parameters that have it."""

    lengths: tuple[int, ...]
    length: str
    """What it is for the arguments of a call."""
    mask: Mask
    places: list[tuple[str, int]] = field(default_factory=list)
    size: str = ""
    """The variable for the length after padding."""

    @property
    def least(self) -> int:
        """The power of two that all lengths seen fit in."""
        return 1 << max(max(self.lengths) - 1, 7).bit_length()


def padded_lengths(spot: Spot) -> Iterator[Change]:
    """The function over padded arrays, which is compiled once for many lengths, and around it one that pads."""
    function = _function(spot)
    ranks, varying = _lengths(spot, function) if function is not None else ({}, [])
    if function is None or not varying:
        return
    lower = _Padded(spot)
    known: Known = {}
    for parameter, rank in ranks.items():
        axes = tuple((axis, v.mask) for axis in range(rank) for v in varying if (parameter, axis) in v.places)
        known[parameter] = Alias(parameter, Masked(rank, axes))
        if not rank:
            rows = tuple((0, v.mask) for v in varying if (parameter, 0) in v.places)
            known[parameter] = Alias(parameter, Masked(0, rows, holds="arrays"))
    result = lower.body(body_of(function), known, {}, [v.mask for v in varying])
    if not result or not all(m.count for v in result if v is not None for _, m in v.axes):
        return
    inner, edits = spot.fresh(f"{function.name}_padded"), lower.finished()
    counts = [v.mask.count for v in varying if v.mask.used or v.mask.count in lower.counted]
    by_name = bool(counts) and add_parameter(edits, function, ", ".join(counts))
    given = [f"{count}={count}" if by_name else count for count in counts]
    mode = ', mode="edge"' if min(min(v.lengths) for v in varying) > 0 else ""
    kept = ", with a mask for what counts" if any(v.mask.used for v in varying) else ""
    wrapper = _wrapper(spot, function, inner, ranks, varying, given, result, mode)
    yield _wrapped(spot, function, edits, inner, wrapper, varying, kept)


def padded_beside_masks(spot: Spot) -> Iterator[Change]:
    """The same of a function that is given a mask already: what is padded is False there."""
    function = _function(spot)
    ranks, varying = _lengths(spot, function) if function is not None else ({}, [])
    masks = {leaf.argument for leaf in spot.every_leaf if leaf.dtype == "bool" and leaf.shape}
    if function is not None and any(name in masks for v in varying for name, _ in v.places):
        inner = spot.text.fresh(f"{function.name}_padded")
        wrapper = _wrapper(spot, function, inner, ranks, varying, (), [None], "")
        change = _wrapped(spot, function, spot.edits(), inner, wrapper, varying, ", where the mask is False")
        yield replace(change, sure=False)


def _function(spot: Spot) -> FunctionNode | None:
    """The function that is checked, if it may be compiled under another name."""
    function = spot.text.definition(spot.function)
    if function is None or "." in spot.function or function.args.vararg or function.args.kwarg or spot.static:
        return None
    return function if all(spot.full(d) == "jax.jit" for d in function.decorator_list) else None


def _wrapped(
    spot: Spot, function: FunctionNode, edits: Edits, inner: str, wrapper: str, varying: Sequence[_Varying], kept: str
) -> Change:  # fmt: skip
    """The function under another name, with one of its own name behind it that pads."""
    head = spot.text.plain.index("def", spot.text.offset(function.lineno, function.col_offset))
    name = spot.text.plain.index(function.name, head + len("def")) + len(function.name)
    edits.insert(name, inner.removeprefix(function.name))
    if not function.decorator_list:
        edits.before(function, spot.write("@jax.jit"))
    end = spot.text.plain.find("\n", spot.text.span(function)[1])
    edits.insert(end if end >= 0 else len(spot.text.plain), f"\n\n\n{wrapper}")
    most = max(v.least for v in varying)
    title = f"pad to powers of two{kept}: one compilation for all lengths up to {most}"
    return Change(title, edits, functions=(inner,), claim=Claim(fewer="traces"), cost=COST)


def _lengths(spot: Spot, function: FunctionNode) -> tuple[dict[str, int], list[_Varying]]:
    """Ranks of the parameters whose lengths vary (0 for several arrays of one length), and these lengths; nothing where
    something else varies."""
    ranks: dict[str, int] = {}
    found: dict[tuple[int, ...], _Varying] = {}
    for name in scope.parameters_of(function):
        calls = [[v.shape for v in c.leaves if v.argument == name] for c in spot.evidence.calls]
        axes = _varying(calls)
        if axes is None:
            return {}, []
        if axes:
            ranks[name] = len(calls[0][0]) if len(calls[0]) == 1 else 0
        for axis, lengths in axes:
            if lengths not in found:
                n = spot.text.fresh("n", "count", "length", taken=[v.mask.count for v in found.values()])
                size = _size(spot, name, axis, ranks)
                text = spot.write("jnp.arange($size) < $n", size=size, n=n)
                found[lengths] = _Varying(lengths, size, Mask(text, count=n, leading=True))
            found[lengths].places.append((name, axis))
    return ranks, list(found.values())


def _varying(calls: Sequence[Sequence[tuple[int, ...]]]) -> list[tuple[int, tuple[int, ...]]] | None:
    """The axes of an argument that vary, with their lengths; of several arrays the first axis of each. None where they
    vary otherwise. `calls` has the shapes of its leaves, call by call."""
    if not any(map(any, calls)):
        return []
    leaves = list(zip(*calls, strict=False))
    if len(set(map(len, calls))) > 1 or any(len(set(map(len, leaf))) > 1 for leaf in leaves):
        return None
    each = [[(k, n) for k, n in enumerate(zip(*leaf, strict=True)) if len(set(n)) > 1] for leaf in leaves]
    if len(leaves) > 1 and any(each) and any(axes != each[0] or axes[0][0] > 0 or axes[1:] for axes in each):
        return None
    return each[0] if each else []


def _size(spot: Spot, name: str, axis: int, ranks: Mapping[str, int]) -> str:
    """The length of an argument along an axis."""
    return f"{name}.shape[{axis}]" if ranks[name] else spot.write("jax.tree.leaves($x)[0].shape[0]", x=name)


class _Padded(Bodies):
    """Lowers the body of a function whose arguments are padded."""

    def __init__(self, spot: Spot) -> None:
        super().__init__(spot)
        self.counted: set[str] = set()
        """The numbers of what counts that are needed inside."""

    def selects(self, element: ast.expr) -> bool:
        """The function compiles as it is: nothing in it selects by data."""
        return False

    def count(self, mask: Mask) -> str:
        """How many count."""
        self.counted |= scope.loads(mask.count) if mask.count else set()
        return super().count(mask)


def _wrapper(
    spot: Spot, function: FunctionNode, inner: str, ranks: dict[str, int], varying: Sequence[_Varying],
    counts: Sequence[str], result: Sequence[Masked | None], mode: str,
) -> str:  # fmt: skip
    """The function that pads, calls, and cuts what comes out."""
    lines, widths = [], dict[tuple[str, int], str]()
    for one in varying:
        size = spot.text.fresh("size", "padded", taken=[v.size for v in varying])
        one.size, n = size, one.mask.count
        lines.append(f"{n} = {one.length}")
        lines.append(f"{size} = max({one.least}, 1 << ({n} - 1).bit_length())")
        widths |= dict.fromkeys(one.places, f"(0, {size} - {n})")
    pad = "np.pad" if _called_alone(spot, function.name) else "jnp.pad"
    a, given = function.args, []
    for parameter in (*a.posonlyargs, *a.args, *a.kwonlyargs):
        name = value = parameter.arg
        if name in ranks:
            each = [widths.get((name, axis), "(0, 0)") for axis in range(ranks[name])]
            template = f"{pad}($x, $$w{mode})"
            if not each:
                each = [widths[name, 0], "*[(0, 0)] * (v.ndim - 1)"]
                template = f"jax.tree.map(lambda v: {pad}(v, $$w{mode}), $x)"
            value = spot.write(template, x=name, w=f"({', '.join(each)})" if len(each) > 1 else each[0])
        given.append(f"{name}={value}" if parameter in a.kwonlyargs else value)
    call = call_of(inner, *given, *counts)
    cuts = ["".join(_cut(v)) for v in result]
    if len(cuts) == 1 or not any(cuts):
        lines.append(f"return {call}{cuts[0]}")
    else:
        out = spot.text.fresh("out")
        lines += [f"{out} = {call}", f"return {', '.join(f'{out}[{k}]{c}' for k, c in enumerate(cuts))}"]
    body = "".join(f"    {line}\n" for text in lines for line in text.split("\n"))
    return f"def {function.name}({ast.unparse(function.args)}):\n{body.rstrip()}"


def _cut(value: Masked | None) -> Iterator[str]:
    """The index that leaves what counts."""
    if value is not None:
        masks = dict(value.axes)
        yield f"[{', '.join(f':{masks[k].count}' if k in masks else ':' for k in range(max(masks) + 1))}]"


def _called_alone(spot: Spot, name: str) -> bool:
    """All that is seen of the function is called with arrays, not inside of others or by what transforms it."""
    for text in (spot.text, *map(Text, spot.later)):
        for use in (n for n in text.within(text.tree, ast.Name) if n.id == name):
            call = text.parents[use]
            if not (isinstance(call, ast.Call) and call.func is use) or text.around(use, *SCOPES):
                return False
    return True
