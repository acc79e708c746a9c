"""Donated arguments whose memory no result can take, and arguments whose memory a result could take."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from jitmagic.evidence import MissingDonation, UnusableDonation, root
from jitmagic.source.edits import Text
from jitmagic.source.modules import dotted, last_name
from jitmagic.tracing.compat import jaxpr_of
from jitmagic.tracing.stages import used_inputs
from jitmagic.units import array_type, short_dtype

Type = tuple[tuple[int, ...], str]


def unusable(closed: object, paths: Sequence[str], donated: Collection[str]) -> Iterator[UnusableDonation]:
    """Facts about donated inputs, in the way in which jax gives them to results: in order, one result for each of the
    same shape and dtype. What no operation reads is freed, and is not told."""
    body = jaxpr_of(closed)
    free = Counter(map(_type, body.outvars))
    every = set(free)
    for path, var, used in zip(paths, body.invars, used_inputs(closed), strict=True):
        kind = _type(var)
        if root(path) not in donated or not used:
            continue
        if free[kind]:
            free[kind] -= 1
        else:
            shape, dtype = kind
            size = int(var.aval.size * var.aval.dtype.itemsize)
            yield UnusableDonation(path, array_type(short_dtype(dtype), shape), size, _near(kind, every))


def _near(kind: Type, results: Collection[Type]) -> str:
    """Why: what the results are like."""
    if kind in results:
        return "each result of its type takes the memory of another donated argument"
    shape, dtype = kind
    others = sorted(str(short_dtype(d)) for s, d in results if s == shape)
    if others:
        return f"the result of its shape is {others[0]}"
    return f"no result has its shape{'' if any(d == dtype for _, d in results) else ', or its dtype'}"


def _type(var: object) -> Type:
    aval = getattr(var, "aval", None)
    return tuple(getattr(aval, "shape", ())), str(getattr(aval, "dtype", ""))


# -- what could be donated


def not_donated(
    closed: object, paths: Sequence[str], rebound: Mapping[str, str]
) -> Iterator[MissingDonation]:
    """The arguments that a loop binds anew, by the statement that does so, where results can take their memory."""
    refused = {root(fact.path) for fact in unusable(closed, paths, rebound)}
    names = tuple(name for name in rebound if name not in refused)
    inputs = {i: v.aval for i, v in enumerate(jaxpr_of(closed).invars) if root(paths[i]) in names}
    if inputs:
        size = sum(int(aval.size * aval.dtype.itemsize) for aval in inputs.values())
        yield MissingDonation(names, size, rebound[names[0]], tuple(inputs))


def rebound(source: str, function: str, parameters: Sequence[str]) -> dict[str, str]:
    """Parameters for which a loop of the cell passes what the same statement binds to a result (`w = step(w, x)`), each
    with that statement; none whose old value the loop may keep."""
    text, found = Text(source), dict[str, str]()
    try:
        loops = [n for n in ast.walk(text.tree) if isinstance(n, ast.For | ast.While)]
    except SyntaxError:
        return {}
    for loop in loops:
        for step in text.within(loop, ast.Assign):
            call = step.value
            if isinstance(call, ast.Call) and last_name(call.func) == function and len(step.targets) == 1:
                target = step.targets[0]
                parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                bound = {dotted(part) for part in parts} - {""}
                for name, given in _given(call, parameters):
                    if dotted(given) in bound and not _is_kept(text, loop, dotted(given), given):
                        found[name] = text.code(step)
    return found


def _given(call: ast.Call, parameters: Sequence[str]) -> Iterator[tuple[str, ast.expr]]:
    if not any(isinstance(a, ast.Starred) for a in call.args):
        yield from zip(parameters, call.args, strict=False)
        yield from ((k.arg, k.value) for k in call.keywords if k.arg and k.arg in parameters)


_KEEPING = frozenset("append add insert extend put update setdefault appendleft".split())


def _is_kept(text: Text, loop: ast.stmt, name: str, passed: ast.expr) -> bool:
    """The loop gives the value to something else than a computation: another name, a list, a result."""
    names = (n for n in ast.walk(loop) if isinstance(n, ast.Name | ast.Attribute))
    reads = (n for n in names if isinstance(n.ctx, ast.Load) and n is not passed)
    return any(dotted(n) == name and _goes_elsewhere(text, n) for n in reads)


def _goes_elsewhere(text: Text, node: ast.AST) -> bool:
    for outer in text.ancestors(node):
        if isinstance(outer, ast.Call):
            return last_name(outer.func) in _KEEPING
        if isinstance(outer, ast.BinOp | ast.Compare | ast.UnaryOp | ast.JoinedStr | ast.Expr):
            return False
        if isinstance(outer, ast.stmt):
            return True
    return True
