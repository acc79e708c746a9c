"""From what a program does with its keys to the places in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from jitmagic.evidence import HiddenRandom, KeyReuse, Where
from jitmagic.silent.in_program import Constant, Frame, Keys, Seed, Stack
from jitmagic.source.modules import dotted
from jitmagic.source.tree import Function, walk
from jitmagic.tracing.sites import Site, site_of

_LOOPS = ast.For | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
DERIVERS = ("split", "fold_in", "key", "PRNGKey", "clone", "wrap_key_data")


def reused(keys: Keys, inputs: Sequence[str]) -> Iterator[KeyReuse]:
    """One record for each place that uses a key again. `inputs` are the paths of the program's inputs."""
    seen: set[tuple[str, int, int]] = set()
    for earlier, now in keys.reused:
        root = now.value.root
        leaf = inputs[root] if isinstance(root, int) and root < len(inputs) else ""
        turned = _turning(now.stack, leaf) if earlier.stack == now.stack else None
        frame = turned or _parting(earlier.stack, now.stack)
        site = site_of(*frame) if frame else None
        if site is None or (place := (site.where.file, site.where.line, site.where.column)) in seen:
            continue
        seen.add(place)
        named = key_names(site, leaf)
        first = _parting(now.stack, earlier.stack)
        before = site_of(*first) if first and first != frame and not turned else None
        yield KeyReuse(site.where, _unique([*named, leaf]), before.where.source if before else "")


def fixed(keys: Keys, names: dict[int, str], file: str = "") -> Iterator[HiddenRandom]:
    """Draws that give the same numbers at every call. `names`: paths of captured values by identity; `file`:
    where a helper elsewhere makes the key, the line in this file that calls it is the place."""
    seen: set[Where] = set()
    for stack, root, made in keys.fixed:
        captured = isinstance(root, Constant)
        frames = stack if captured else made
        frame = next((f for f in frames if f[0].co_filename == file), frames[0] if frames else None)
        site = site_of(*frame) if frame else None
        if site is None or site.where in seen:
            continue
        seen.add(site.where)
        if isinstance(root, Constant):
            path = names.get(id(root.value), "")
            yield HiddenRandom("captured", _unique([path, *key_names(site)]), site.where, site.where.text)
        elif isinstance(root, Seed):
            bound = site.source.bound_to(site.node) if site.node is not None else []
            yield HiddenRandom(
                "fixed",
                _unique([*bound, _callee(site), *names_at(site)]),
                site.where,
                site.where.text,
            )


def _parting(one: Stack, other: Stack) -> Frame | None:
    """The outermost frame of `other` in which it leaves the way of `one`; the innermost where it never does."""
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            return b
    return other[0] if other else None


def _turning(stack: Stack, leaf: str) -> Frame | None:
    """The innermost frame that makes its call in a loop which leaves the key as it is."""
    for frame in stack:
        site = site_of(*frame)
        loop = _loop_around(site) if site is not None else None
        if site is None or loop is None:
            continue
        bound = {n.id for n in walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if not any(n.split("[")[0].split(".")[0] in bound for n in key_names(site, leaf)):
            return frame
    return None


def _loop_around(site: Site) -> ast.AST | None:
    around = [site.node, *site.source.ancestors(site.node)] if site.node is not None else []
    found = next((n for n in around if isinstance(n, _LOOPS | Function)), None)
    return found if isinstance(found, _LOOPS) else None


def key_names(site: Site, leaf: str = "") -> list[str]:
    """The key that a call uses, as written; where `leaf` is the argument it comes from, that of its name first."""
    call = site.node
    if not isinstance(call, ast.Call):
        return names_at(site)
    given = [k.value for k in call.keywords if k.arg in ("key", "rng", "rng_key", "seed")]
    texts = [
        text
        for node in handed((*given, *call.args))
        if (text := dotted(node) or (ast.unparse(node) if isinstance(node, ast.Subscript) else ""))
    ]
    same = [t for t in texts if t.split("[")[0].split(".")[0] == leaf.split("[")[0].split(".")[0]]
    spoken = [t for t in texts if "key" in t or "rng" in t]
    return (same or spoken or texts)[:1] or names_at(site)


def handed(values: Iterable[ast.expr | None]) -> Iterator[ast.expr]:
    """What a call is given, what stands in tuples, lists and dicts included."""
    for value in values:
        if isinstance(value, ast.Tuple | ast.List):
            yield from handed(value.elts)
        elif isinstance(value, ast.Dict):
            yield from handed(value.values)
        elif value is not None:
            yield value


def names_at(site: Site) -> list[str]:
    """Names in an expression; those of what it calls are left out."""
    nodes = walk(site.node) if site.node is not None else ()
    called = {id(n.func) for n in walk(site.node) if isinstance(n, ast.Call)} if site.node else set()
    return [
        n.id
        for n in nodes
        if isinstance(n, ast.Name) and id(n) not in called and n.id not in ("jax", "jnp", "np")
    ]


def _callee(site: Site) -> str:
    return dotted(site.node.func) if isinstance(site.node, ast.Call) else ""


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for n in names if n))
