"""Text made of traced values: `jax.debug.print` in place of `print` and of formatting."""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
import string
from collections.abc import Iterator, Sequence

from jitmagic.fixes.branches.truth import truth
from jitmagic.fixes.calls.callbacks import VALUES, callback, handed_out, is_text, on_the_host, text_of
from jitmagic.fixes.change import Change, Spot
from jitmagic.source import scope
from jitmagic.source.modules import last_name
from jitmagic.source.tree import copied

TITLE = "print with `jax.debug.print`, at every call"
_PERCENT = re.compile(r"(?<!%)(%[-+ 0#]*\d*(?:\.\d+)?[sdrifgeEGx])")


def prints(spot: Spot) -> Iterator[Change]:
    """Prints of traced values on the line, or of a text that it makes: with all of the function, then these alone."""
    around = spot.outermost or spot.text.tree
    every = [c for c in spot.text.within(around, ast.Call) if _is_print(spot, c)]
    here = [c for c in spot.on_line(ast.Call) if c in every]
    made = spot.here(ast.Assign)
    if not here and made is not None and is_text(made.value):
        here = [c for c in every if getattr(made.targets[0], "id", "") in scope.loads(c)]
    others = [c for c in every if c not in here and spot.is_traced(c)]
    for calls in ([*here, *others], here) if others else (here,):
        edits, messages = spot.edits(), {c: Message(spot, c) for c in calls}
        for call, message in messages.items():
            if message.code:
                edits.replace(call, message.code)
        told = [n for m in messages.values() for n in m.texts]
        for text in {n.id for n in told}:
            stored, *read = [n for n in spot.text.within(around, ast.Name) if n.id == text]
            if all(n in told for n in read):
                edits.remove(spot.text.statement(stored))
        if any(messages[c].code for c in here):
            yield Change(TITLE, edits)


def _is_print(spot: Spot, call: ast.Call) -> bool:
    plain = isinstance(call.func, ast.Name) and call.func.id == "print"
    return (plain or spot.full(call) == "sys.stdout.write") and not on_the_host(spot, call)


def prints_under_condition(spot: Spot) -> Iterator[Change]:
    """`if c: print(x)` as a `jax.debug.print` under `jax.lax.cond`."""
    test = spot.here(ast.If)
    if test is None or test.test not in spot.path:
        return
    branches = [[_told(spot, s) for s in block] for block in (test.body, test.orelse)]
    if not all(all(block) for block in branches):
        return
    above, functions = "", list[str]()
    for name, told in zip(("show", "show_other"), branches, strict=True):
        if len(told) > 1:
            functions.append(spot.fresh(name))
            body = "\n".join(map(str, told))
            above += spot.write("def $$name():\n    $body\n\n", name=functions[-1], body=body)
        else:
            functions.append(f"lambda: {told[0] if told else None}")
    yes, no = functions
    new = above + spot.write("lax.cond($test, $$yes, $$no)", test=truth(spot, test.test), yes=yes, no=no)
    edits = spot.edits().statements(test, new)
    if spot.write("jax.debug.callback") in new:
        yield handed_out("call `jax.debug.callback` where the condition holds", edits)
    else:
        yield Change("print with `jax.debug.print`, where the condition holds", edits)


def _told(spot: Spot, statement: ast.stmt) -> str | None:
    """What tells the outside at run time what this statement does."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    if spot.full(statement.value).startswith("jax.debug."):
        return spot.code(statement.value)
    own = Message(spot, statement.value).code if _is_print(spot, statement.value) else None
    return own or callback(spot, statement)


def progress_bars(spot: Spot) -> Iterator[Change]:
    """`for i in tqdm(range(n)):` without the bar, and without the lines that set its text."""
    around = spot.outermost or spot.text.tree
    calls = spot.on_line(ast.Call)
    roots = (getattr(getattr(c.func, "value", None), "id", "") for c in calls)
    bars = {r: made for r in roots if r and isinstance(made := scope.assigned(around, r), ast.Call)}
    for call in (*calls, *bars.values()):
        name = last_name(call.func)
        if not call.args or "tqdm" not in name and name not in ("trange", "tnrange"):
            continue
        new = spot.code(call.args[0]) if "tqdm" in name else spot.write("range($*n)", n=call.args)
        edits, assign = spot.edits().replace(call, new), spot.text.parents[call]
        bar = getattr(assign.targets[0], "id", "") if isinstance(assign, ast.Assign) else ""
        for line in spot.text.within(around, ast.Expr):
            function = line.value.func if isinstance(line.value, ast.Call) else None
            if bar and isinstance(function, ast.Attribute) and getattr(function.value, "id", None) == bar:
                edits.remove(line)
        yield Change("take out the progress bar", edits)


# -- the text of a print


class Message:
    """What a `print` or a `write` of one call prints, as a call of `jax.debug.print`."""

    def __init__(self, spot: Spot, call: ast.Call) -> None:
        self.spot = spot
        self.arguments: dict[str, str] = {}
        """Names in the format by the code that they stand for."""
        self.fixed: list[str] = []
        """Expressions that are known while jax traces."""
        self.texts: list[ast.Name] = []
        """Names of texts that the format holds now."""
        self.code = ""
        """Nothing where it prints elsewhere, or something that cannot be printed so."""
        with contextlib.suppress(LookupError):
            template = self._template(call)
            if self.fixed:
                template = _escaped(template)
            for index, code in enumerate(self.fixed):
                template = template.replace(f"\0{index}\0", f"{{{code}}}")
            given = [f"{name}={code}" for code, name in self.arguments.items()]
            self.code = spot.write(
                "jax.debug.print($$f$$template, $*given)",
                f="f" * bool(self.fixed), template=_quoted(template), given=", ".join(given),
            )  # fmt: skip

    def _template(self, call: ast.Call) -> str:
        """The format. Raises LookupError where it has none."""
        options = {k.arg: getattr(k.value, "value", k.value) for k in call.keywords if k.arg != "flush"}
        separator, end = options.pop("sep", " "), options.pop("end", "\n")
        whole = _escaped(str(separator)).join(map(self._text, call.args))
        if last_name(call.func) == "write":  # no line end of its own
            whole, end = whole.removesuffix("\n"), whole[-1:]
        if options or end != "\n" or not isinstance(separator, str):
            raise LookupError("it prints elsewhere")
        return whole

    def _text(self, node: ast.expr) -> str:
        """The part of the format for one thing that is printed."""
        match node:
            case ast.Constant(str(value)):
                return _escaped(value)
            case ast.JoinedStr(parts):
                return "".join(map(self._text, parts))
            case ast.FormattedValue(value, _, spec):
                return self._text(value) if spec is None else self._field(value, _plain(spec))
            case ast.BinOp(ast.Constant(str(form)), ast.Mod(), right):
                return self._percent(form, right.elts if isinstance(right, ast.Tuple) else [right])
            case ast.BinOp(left, ast.Add(), right) if is_text(node):
                return self._text(left) + self._text(right)
            case ast.Call(ast.Attribute(ast.Constant(str(form)), "format"), args, keywords):
                return self._format(form, [*enumerate(args), *((k.arg, k.value) for k in keywords)])
            case ast.Call(ast.Name("format"), [value, ast.Constant(str(form))]):
                return self._field(value, form)
            case ast.Name() if (made := text_of(self.spot, node)) is not None:
                self.texts.append(node)
                return self._text(made.value)
        return self._field(node, "")

    def _percent(self, form: str, values: Sequence[ast.expr]) -> str:
        out, rest = "", list(values)
        for piece in _PERCENT.split(form):
            if _PERCENT.fullmatch(piece):
                plain = piece[-1] in "sr" or piece in ("%d", "%i")
                out += self._field(rest.pop(0), "" if plain else piece[1:])
            else:
                out += _escaped(piece.replace("%%", "%"))
        if rest:
            raise LookupError("more values than fields")
        return out

    def _format(self, form: str, values: Sequence[tuple[object, ast.expr]]) -> str:
        given, count, out = {str(k): v for k, v in values}, itertools.count(), ""
        for literal, name, spec, _ in string.Formatter().parse(form):
            out += _escaped(literal)
            if name is not None:
                out += self._field(given[name or str(next(count))], spec or "")
        return out

    def _field(self, node: ast.expr, spec: str) -> str:
        plain = _Unconverted(self.spot).visit(copied(node))
        code, tail = ast.unparse(plain), f":{spec}" if spec else ""
        if not isinstance(node, ast.Name) and not self.spot.may_be_array(node):
            if isinstance(node, ast.Constant):
                return _escaped(format(node.value, spec))
            if any(last_name(c.func) != "len" for c in ast.walk(node) if isinstance(c, ast.Call)):
                raise LookupError("a clock, say, is asked while jax traces")
            self.fixed.append(f"{code}{tail}")
            return f"\0{len(self.fixed) - 1}\0"
        if code not in self.arguments:
            name = _name(plain)
            same = [n for n in self.arguments.values() if n.rstrip("0123456789") == name]
            self.arguments[code] = f"{name}{len(same) + 1}" if same else name
        return f"{{{self.arguments[code]}{tail}}}"


class _Unconverted(ast.NodeTransformer):
    """Without the conversions that a text needs no more."""

    def __init__(self, spot: Spot) -> None:
        self.spot = spot

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = last_name(node.func)
        if isinstance(node.func, ast.Attribute) and name in VALUES and not node.args:
            return node.func.value
        if isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
            if name in ("str", "repr", "float"):
                return node.args[0]
            if name == "int":
                whole = self.spot.write("jnp.asarray($x, int)", x=ast.unparse(node.args[0]))
                return ast.parse(whole, mode="eval").body
        return node


def _name(node: ast.expr) -> str:
    """A name for a value in a format: `mean` for `x.mean()`."""
    if isinstance(node, ast.Call):
        return _name(node.args[0]) if last_name(node.func) == "asarray" else last_name(node.func) or "value"
    return last_name(node) or "value"


def _plain(spec: ast.expr) -> str:
    """The format of a field, where it is written out."""
    parts = spec.values if isinstance(spec, ast.JoinedStr) else [spec]
    if not all(isinstance(p, ast.Constant) for p in parts):
        raise LookupError("the format is computed")
    return "".join(str(p.value) for p in parts if isinstance(p, ast.Constant))


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _quoted(template: str) -> str:
    for plain, written in (("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t"), ('"', '\\"')):
        template = template.replace(plain, written)
    return f'"{template}"'
