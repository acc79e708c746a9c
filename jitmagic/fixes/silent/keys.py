"""Keys that are used twice: split before each use."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jitmagic.evidence import Evidence
from jitmagic.fixes.silent import trial
from jitmagic.fixes.silent.text import FunctionNode, Text, the
from jitmagic.report import Finding, Fix
from jitmagic.source.expressions import dotted_name

if TYPE_CHECKING:
    from jitmagic.fixes.prove import Prover

_NO_USE = frozenset("split fold_in key_data clone shape print".split())
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def propose(finding: Finding, evidence: Evidence, prover: Prover) -> Iterator[Fix]:
    """A cell in which every draw has a key of its own."""
    text = Text(evidence.function.cell)
    line = text.line_of(finding)
    functions = [
        n
        for n in ast.walk(text.tree)
        if isinstance(n, FunctionNode) and n.lineno <= line <= (n.end_lineno or 0)
    ]
    if not functions or not finding.culprits:
        return
    function = min(functions, key=lambda n: (n.end_lineno or 0) - n.lineno)
    sources = trial.history(prover)
    for key in dict.fromkeys(finding.culprits):
        for cell in rewritten(evidence.function.cell, function, key):
            if words := _proved(prover, cell, sources):
                yield Fix(
                    title=f"split `{key}` so that each draw has its own key", applicability="unsafe", verified=True,
                    evidence=words, cell=cell,
                )  # fmt: skip
                return


def rewritten(cell: str, function: FunctionNode, key: str) -> Iterator[str]:
    """Cells in which the draws of this function from the key may each have their own."""
    rewrites = (_comprehension, _tree_map, _scan_body, _while_body, _lambda_body, _each_use, _each_split)
    for rewrite in rewrites:
        with contextlib.suppress(SyntaxError, ValueError, LookupError):
            if made := rewrite(Text(cell), function.name, function.lineno, key):
                yield made


def _proved(prover: Prover, cell: str, sources: list[str]) -> str | None:
    from jitmagic.silent.program import keys_of

    with contextlib.suppress(Exception):
        got, plain = trial.play(prover, cell, sources), trial.play(prover, cell, sources, jit=False)
        before = trial.original(prover, sources, jit=False)
        if (
            got.traced is None
            or keys_of(got.traced.jaxpr).reused
            or not trial.same(plain.results, got.results)
        ):
            return None
        if not trial.same(before.results, got.results):
            return "traced; no key is used twice, the same with and without jit"
    return None


def _at(text: Text, name: str, line: int) -> FunctionNode:
    return the(
        n for n in ast.walk(text.tree) if isinstance(n, FunctionNode) and n.name == name and n.lineno == line
    )


def _uses(function: FunctionNode, key: str) -> list[ast.expr]:
    """Arguments that hand the key to a call which uses it up, in order."""
    found: list[ast.expr] = []
    for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
        if dotted_name(call.func).rpartition(".")[2] not in _NO_USE:
            found += [a for a in (*call.args, *(k.value for k in call.keywords)) if ast.unparse(a) == key]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def _each_use(text: Text, name: str, line: int, key: str) -> str | None:
    """`key, sub = jax.random.split(key)` before each statement that draws; splits keep a part for later."""
    function = _at(text, name, line)
    aliases = [
        s.targets[0].id for s in ast.walk(function)
        if isinstance(s, ast.Assign) and ast.unparse(s.value) == key and isinstance(s.targets[0], ast.Name)
    ]  # fmt: skip
    uses = [u for k in (key, *aliases) for u in _uses(function, k)]
    if not uses:
        return None
    local = key if key.isidentifier() else text.fresh("key", "rng", "own_key")
    statements: dict[ast.stmt, list[ast.expr]] = {}
    for use in sorted(uses, key=lambda n: (n.lineno, n.col_offset)):
        if text.around(use, ast.Lambda, *_COMPREHENSIONS) is not None:
            return None
        statements.setdefault(_simple(text, use), []).append(use)
    split, first = _split(text), True
    for statement, found in statements.items():
        subs: list[str] = []
        for use in found:
            subs.append(_sub(text, use, subs))
            text.replace(use, subs[-1])
        start = key if first and local != key else local
        first = False
        number = f", {len(subs) + 1}" if len(subs) > 1 else ""
        text.before(statement, [f"{local}, {', '.join(subs)} = {split}({start}{number})"])
    for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
        statement = text.statement(call)
        if (
            dotted_name(call.func).rpartition(".")[2] == "split"
            and call.args
            and ast.unparse(call.args[0]) == key
        ):
            _keep_part(text, statement, call, local)
    return text.result()


def _each_split(text: Text, name: str, line: int, key: str) -> str | None:
    """`key, sub = split(key)` before each of several splits or folds of one key, which give the same keys."""
    function = _at(text, name, line)
    splits = [
        n for n in ast.walk(function)
        if isinstance(n, ast.Call) and dotted_name(n.func).rpartition(".")[2] in ("split", "fold_in")
        and n.args and ast.unparse(n.args[0]) == key and not _binds(text.statement(n), key)
    ]  # fmt: skip
    repeated = any(text.around(n, ast.Lambda, *_COMPREHENSIONS) is not None for n in splits)
    loops = [n for n in ast.walk(function) if isinstance(n, ast.For | ast.While)]
    again = len(splits) > 1 or any(n in ast.walk(loop) for n in splits for loop in loops)
    if not again or repeated or not key.isidentifier():
        return None
    subs: list[str] = []
    for call in sorted(splits, key=text.span):
        subs.append(_sub(text, call, subs))
        text.before(text.statement(call), [f"{key}, {subs[-1]} = {_split(text)}({key})"])
        text.replace(call.args[0], subs[-1])
    return text.result()


def _binds(statement: ast.stmt, name: str) -> bool:
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(statement)
    )


def _simple(text: Text, node: ast.AST) -> ast.stmt:
    return text.statement(node)


def _split(text: Text) -> str:
    for call in (n for n in ast.walk(text.tree) if isinstance(n, ast.Call)):
        dotted = dotted_name(call.func)
        if dotted.rpartition(".")[0].endswith(("random", "jr", "jrandom", "jrand")) and not dotted.startswith(
            ("np.", "numpy.")
        ):
            return dotted.rpartition(".")[0] + ".split"
    return "jax.random.split"


def _sub(text: Text, use: ast.expr, taken: list[str]) -> str:
    statement = text.statement(use)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    base = f"key_{target.id}" if isinstance(target, ast.Name) and not taken else "sub"
    name = text.fresh(base)
    number = 1
    while name in taken:
        number += 1
        name = text.fresh(f"{base}{number}")
    return name


def _keep_part(text: Text, statement: ast.stmt, call: ast.Call, key: str) -> None:
    """`a, b = split(key)` as `key, a, b = split(key, 3)`, so that the key can be used afterwards."""
    if not isinstance(statement, ast.Assign) or statement.value is not call:
        raise ValueError("a split that is not simply assigned")
    target = statement.targets[0]
    if not isinstance(target, ast.Tuple):
        raise ValueError("a split into an array")
    names = [ast.unparse(e) for e in target.elts]
    if key not in names:
        text.replace(
            statement,
            f"{key}, {', '.join(names)} = {text.code(call.func)}({ast.unparse(call.args[0])}, {len(names) + 1})",
        )


def _comprehension(text: Text, name: str, line: int, key: str) -> str | None:
    """`[draw(key) for i in xs]` as `[draw(k) for i, k in zip(xs, split(key, n))]`."""
    function = _at(text, name, line)
    for use in _uses(function, key):
        loop = text.around(use, *_COMPREHENSIONS)
        if not isinstance(loop, _COMPREHENSIONS) or len(loop.generators) != 1:
            continue
        generator, sub = loop.generators[0], text.fresh("k", "sub")
        called = dotted_name(generator.iter.func) if isinstance(generator.iter, ast.Call) else ""
        if called in ("enumerate", "zip", "reversed", "map"):
            return _by_number(text, use, generator, key, counted=called == "enumerate")
        target, looped = text.code(generator.target), text.code(generator.iter)
        if isinstance(generator.target, ast.Tuple) and target[0] != "(":
            target = f"({target})"
        bounds = (
            generator.iter.args
            if isinstance(generator.iter, ast.Call) and dotted_name(generator.iter.func) == "range"
            else None
        )
        number = text.code(bounds[0]) if bounds is not None and len(bounds) == 1 else f"len({looped})"
        keys = f"{_split(text)}({key}, {number})"
        parts = [loop.key, loop.value] if isinstance(loop, ast.DictComp) else [loop.elt]
        read = {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}
        text.replace(use, sub)
        if isinstance(generator.target, ast.Name) and generator.target.id not in read:
            text.replace(generator.target, sub).replace(generator.iter, keys)
        else:
            text.replace(generator.target, f"{target}, {sub}").replace(
                generator.iter, f"zip({looped}, {keys})"
            )
        return text.result()
    return None


def _by_number(text: Text, use: ast.expr, turn: ast.comprehension, key: str, *, counted: bool) -> str | None:
    """`fold_in(key, i)` with the number of the turn, which `enumerate` tells."""
    fold = f"{_split(text).removesuffix('split')}fold_in"
    if not counted:
        number = text.fresh("i", "turn")
        target = text.code(turn.target)
        target = f"({target})" if isinstance(turn.target, ast.Tuple) and target[0] != "(" else target
        text.replace(turn.target, f"{number}, {target}").replace(
            turn.iter, f"enumerate({text.code(turn.iter)})"
        )
    elif isinstance(turn.target, ast.Tuple) and isinstance(turn.target.elts[0], ast.Name):
        number = turn.target.elts[0].id
    else:
        return None
    return text.replace(use, f"{fold}({key}, {number})").result()


def _tree_map(text: Text, name: str, line: int, key: str) -> str | None:
    """`tree.map(lambda p: draw(key), params)` with a tree of keys beside the parameters."""
    function = _at(text, name, line)
    for use in _uses(function, key):
        body = text.around(use, ast.Lambda)
        call = text.parents.get(body) if body is not None else None
        if not isinstance(body, ast.Lambda) or not isinstance(call, ast.Call) or call.keywords:
            continue
        base, _, last = dotted_name(call.func).rpartition(".")
        if last not in ("map", "tree_map") or "tree" not in f"{base}{last}" or call.args[:1] != [body]:
            continue
        made = f"{base}.{last.removesuffix('map')}"
        sub, keys, tree = text.fresh("k", "sub"), text.fresh("keys", "subkeys"), text.code(call.args[1])
        split = f"{_split(text)}({key}, len({made}leaves({tree})))"
        text.before(
            text.statement(call), [f"{keys} = {made}unflatten({made}structure({tree}), list({split}))"]
        )
        end = text.span(body.args.args[-1])[1]
        text.changes += [(end, end, f", {sub}"), (text.span(call)[1] - 1,) * 2 + (f", {keys}",)]
        return text.replace(use, sub).result()
    return None


def _scan_body(text: Text, name: str, line: int, key: str) -> str | None:
    """A draw in the body of a scan gets the key of its turn."""
    inner = _at(text, name, line)
    uses = _uses(inner, key)
    outer = text.around(inner, *(ast.FunctionDef, ast.AsyncFunctionDef))
    if outer is None or not uses:
        return None
    for call in (n for n in ast.walk(outer) if isinstance(n, ast.Call)):
        last = dotted_name(call.func).rpartition(".")[2]
        if last == "scan" and call.args and ast.unparse(call.args[0]) == inner.name and len(call.args) >= 3:
            length = next((k for k in call.keywords if k.arg == "length"), None)
            row = inner.args.args[1]
            nothing = isinstance(call.args[2], ast.Constant) and call.args[2].value is None
            sub = text.fresh("sub", "k")
            for use in uses:
                text.replace(use, sub)
            if nothing and length is not None:
                text.replace(row, sub).replace(
                    call.args[2], f"{_split(text)}({key}, {text.code(length.value)})"
                )
                return text.result()
            xs = text.code(call.args[2])
            row_text = text.code(row)
            text.replace(row, f"{row_text}_and_key").before(
                inner.body[0], [f"{row_text}, {sub} = {row_text}_and_key"]
            )
            text.replace(call.args[2], f"({xs}, {_split(text)}({key}, len({xs})))")
            return text.result()
        if last == "fori_loop" and len(call.args) >= 3 and ast.unparse(call.args[2]) == inner.name:
            turn, split = inner.args.args[0].arg, _split(text)
            for use in uses:
                text.replace(use, f"{split.removesuffix('split')}fold_in({key}, {turn})")
            return text.result()
    return None


def _while_body(text: Text, name: str, line: int, key: str) -> str | None:
    """A draw in the body of a while_loop splits the key, which goes on beside the loop's own state."""
    inner = _at(text, name, line)
    uses = _uses(inner, key)
    outer = text.around(inner, ast.FunctionDef, ast.AsyncFunctionDef)
    returns = [n for n in ast.walk(inner) if isinstance(n, ast.Return)]
    if (
        outer is None
        or not uses
        or len(returns) != 1
        or returns[0].value is None
        or len(inner.args.args) != 1
    ):
        return None
    for call in (n for n in ast.walk(outer) if isinstance(n, ast.Call)):
        if dotted_name(call.func).rpartition(".")[2] != "while_loop" or len(call.args) != 3:
            continue
        test, body, start = call.args
        if ast.unparse(body) != inner.name or not isinstance(test, ast.Name):
            continue
        state, both, sub = inner.args.args[0].arg, text.fresh("state_and_key"), text.fresh("sub", "subkey")
        for use in uses:
            text.replace(use, sub)
        text.replace(inner.args.args[0], both)
        lines = [f"{state}, {key} = {both}", f"{key}, {sub} = {_split(text)}({key})"]
        text.before(_first_statement(inner), lines)
        text.changes.append((text.span(returns[0].value)[0],) * 2 + ("(",))
        text.changes.append((text.span(returns[0].value)[1],) * 2 + (f"), {key}",))
        text.replace(test, f"lambda both: {test.id}(both[0])").replace(start, f"({text.code(start)}, {key})")
        end = text.span(call)[1]
        text.changes.append((end, end, "[0]"))
        return text.result()
    return None


def _first_statement(function: FunctionNode) -> ast.stmt:
    told = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
    return function.body[1] if told and len(function.body) > 1 else function.body[0]


def _lambda_body(text: Text, name: str, line: int, key: str) -> str | None:
    """A draw in the lambda of a fori_loop folds in the number of the turn; in that of a scan it gets its own key."""
    function = _at(text, name, line)
    for use in _uses(function, key):
        body = text.around(use, ast.Lambda)
        call = text.parents.get(body) if body is not None else None
        if not isinstance(body, ast.Lambda) or not isinstance(call, ast.Call) or len(body.args.args) != 2:
            continue
        last, split = dotted_name(call.func).rpartition(".")[2], _split(text)
        if last == "fori_loop" and call.args[2:3] == [body]:
            turn = body.args.args[0].arg
            return text.replace(use, f"{split.removesuffix('split')}fold_in({key}, {turn})").result()
        length = next((k.value for k in call.keywords if k.arg == "length"), None)
        nothing = len(call.args) > 2 and isinstance(call.args[2], ast.Constant) and call.args[2].value is None
        if last == "scan" and call.args[:1] == [body] and nothing and length is not None:
            sub = text.fresh("sub", "k")
            text.replace(use, sub).replace(body.args.args[1], sub)
            return text.replace(call.args[2], f"{split}({key}, {text.code(length)})").result()
    return None
