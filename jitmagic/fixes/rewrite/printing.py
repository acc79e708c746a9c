"""Text made of traced values: `jax.debug.print` in place of `print` and of formatting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jitmagic.fixes.rewrite import names
from jitmagic.fixes.rewrite.place import Candidate, Place
from jitmagic.fixes.rewrite.truths import assigned, stripped

_PRINTS = ("print", "sys.stdout.write", "stdout.write")
TITLE = "print with `jax.debug.print`, at every call"


def candidates(place: Place) -> Iterator[Candidate]:
    """Prints of traced values, and texts that are formatted for the outside."""
    import libcst as cst

    if place.kind not in ("tracer-format", "trace-time-print", "tracer-array-conversion", "frozen-side-effect",
                          "tracer-int", "tracer-bool"):  # fmt: skip
        return
    if place.kind == "tracer-bool":
        yield from _under_a_condition(place)
        return
    if place.kind == "trace-time-print":
        yield from _without_bar(place)
    prints = [c for c in place.on_line(cst.Call) if place.cell.code(c.func) in _PRINTS]
    if not prints and place.kind in ("tracer-format", "trace-time-print"):
        yield from _formatted_before(place)
        yield from _outside(place)
        return
    for call in prints:
        new = debug_print(place, call)
        if new is not None:
            yield Candidate(TITLE, place.cell.edit({call: new}))
            every = {**_other_prints(place), call: new}
            if len(every) > 1:
                yield Candidate(TITLE, place.cell.edit(every))
        elif place.kind in ("tracer-format", "trace-time-print"):  # no line end, or into a file
            yield from _outside(place)


def _other_prints(place: Place) -> dict[Any, str | None]:
    """Every print of traced values in the function: one alone would leave the others."""
    import libcst as cst

    found: dict[Any, str | None] = {}
    for call in place.cell.within(place.outermost, cst.Call) if place.outermost is not None else ():
        if place.cell.code(call.func) in _PRINTS and names.traced_in(place.cell.code(call), place.traced):
            new = debug_print(place, call)
            if new is not None:
                found[call] = new
    return found


def _without_bar(place: Place) -> Iterator[Candidate]:
    """`for i in tqdm(range(n)):` without the bar, and without the lines that set its text."""
    import libcst as cst

    for call in place.on_line(cst.Call):
        name = place.cell.code(call.func).rpartition(".")[2]
        items = [a.value for a in call.args if a.keyword is None and not a.star]
        if "tqdm" not in name and name not in ("trange", "tnrange") or not items:
            continue
        plain = ", ".join(map(place.cell.code, items))
        new = f"range({plain})" if "range" in name else place.cell.code(items[0])
        yield Candidate(
            "take out the progress bar", place.cell.edit({call: new, **_lines_of_bar(place, call)})
        )


def _lines_of_bar(place: Place, call: Any) -> dict[Any, Any]:
    """`bar.set_description(...)` and its like, for the name that the bar is given."""
    import libcst as cst

    assigned_to = [
        t.target.value
        for n in place.path if isinstance(n, cst.Assign) and n.value is call
        for t in n.targets if isinstance(t.target, cst.Name)
    ]  # fmt: skip
    found: dict[Any, Any] = {}
    around = place.outermost or place.cell.module
    for line in place.cell.within(around, cst.SimpleStatementLine) if assigned_to else ():
        inner = line.body[0].value if len(line.body) == 1 and isinstance(line.body[0], cst.Expr) else None
        if isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute):
            if isinstance(inner.func.value, cst.Name) and inner.func.value.value in assigned_to:
                found[line] = None
    return found


def _under_a_condition(place: Place) -> Iterator[Candidate]:
    """`if c: print(x)` as a `jax.debug.print` under `jax.lax.cond`."""
    import libcst as cst

    from jitmagic.fixes.rewrite.truths import truth

    statement = next(
        (n for n in place.path if isinstance(n, cst.If) and any(m is n.test for m in place.path)), None
    )
    if statement is None or statement.orelse is not None or not isinstance(statement.body, cst.IndentedBlock):
        return
    printed: list[str] = []
    for line in statement.body.body:
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
        call = small.value if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call) else None
        if call is None:
            return
        name = place.cell.code(call.func)
        text = debug_print(place, call) if name == "print" else None
        if name.endswith("debug.print"):
            text = place.cell.code(call)
        if text is None:
            return
        printed.append(text)
    test = stripped(truth(place, statement.test))
    title = "print with `jax.debug.print`, where the condition holds"
    if len(printed) == 1:
        new = f"{place.lax}.cond({test}, lambda: {printed[0]}, lambda: None)\n"
    else:
        show = names.fresh("show", place.taken)
        body = "".join(f"    {p}\n" for p in printed)
        new = f"def {show}():\n{body}\n{place.lax}.cond({test}, {show}, lambda: None)\n"
    yield Candidate(title, place.cell.edit({statement: new}))


def _outside(place: Place) -> Iterator[Candidate]:
    """`logger.info(f"{x:.3f}")` as a callback."""
    from jitmagic.fixes.rewrite import outside

    yield from outside.candidates(place)


def _formatted_before(place: Place) -> Iterator[Candidate]:
    """`text = f"{x:.3f}"` that is only printed: format where it is printed."""
    import libcst as cst

    line = next((n for n in place.path if isinstance(n, cst.SimpleStatementLine)), None)
    if (
        line is None
        or len(line.body) != 1
        or not isinstance(line.body[0], cst.Assign)
        or place.outermost is None
    ):
        return
    target = line.body[0].targets[0].target
    if not isinstance(target, cst.Name):
        return
    name = target.value
    uses = [n for n in place.cell.within(place.outermost, cst.Name) if n.value == name and n is not target]
    prints = [
        c for c in place.cell.within(place.outermost, cst.Call)
        if place.cell.code(c.func) == "print" and any(a.value in uses for a in c.args)
    ]  # fmt: skip
    if len(uses) != 1 or len(prints) != 1:
        return
    new = debug_print(place, prints[0], {name: line.body[0].value})
    if new is not None:
        yield Candidate(TITLE, place.cell.edit({line: None, prints[0]: new}))


def debug_print(place: Place, call: Any, known: dict[str, Any] | None = None) -> str | None:
    """The `jax.debug.print` of the same text; None where the call prints elsewhere."""
    import libcst as cst

    separator, end, texts = " ", None, []
    out = _Template(place)
    for argument in call.args:
        if argument.star:
            return None
        if argument.keyword is not None:
            value = argument.value
            if argument.keyword.value == "flush":
                continue
            if not isinstance(value, cst.SimpleString) or argument.keyword.value not in ("sep", "end"):
                return None
            if argument.keyword.value == "sep":
                separator = str(value.evaluated_value)
            else:
                end = str(value.evaluated_value)
            continue
        value = (
            (known or {}).get(getattr(argument.value, "value", ""), argument.value)
            if known
            else argument.value
        )
        texts.append(out.text(value))
    if any(t is None for t in texts):
        return None
    template = separator.join(t or "" for t in texts)
    if place.cell.code(call.func).endswith(".write"):  # no line end of its own
        if not template.endswith("\n"):
            return None
        template = template.removesuffix("\n")
    if end not in (None, "\n"):
        return None
    quoted = _quoted(template)
    return f"{place.jax}.debug.print({', '.join([out.prefix + quoted, *out.arguments])})"


def _quoted(template: str) -> str:
    escaped = template.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace('"', '\\"')
    return f'"{escaped}"'


class _Template:
    """A format text for `jax.debug.print` and its keyword arguments, as they are found."""

    def __init__(self, place: Place) -> None:
        self.place, self.prefix = place, ""
        self.arguments: list[str] = []
        self._known: dict[str, str] = {}

    def text(self, node: Any) -> str | None:
        """The part of the template for one thing that is printed."""
        import libcst as cst

        if isinstance(node, cst.SimpleString):
            value = node.evaluated_value
            return _escaped(value) if isinstance(value, str) else None
        if isinstance(node, cst.ConcatenatedString):
            left, right = self.text(node.left), self.text(node.right)
            return None if left is None or right is None else left + right
        if isinstance(node, cst.FormattedString):
            return self._formatted(node)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
            if isinstance(node.left, cst.SimpleString):
                return self._percent(node)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
            left, right = self.text(node.left), self.text(node.right)
            return None if left is None or right is None else left + right
        if isinstance(node, cst.Call):
            found = self._call(node)
            if found is not None:
                return found
        if isinstance(node, cst.Name):
            value = assigned(self.place, node)
            if isinstance(value, (cst.FormattedString, cst.SimpleString)):
                return self.text(value)
        return self._field(node, "")

    def _call(self, node: Any) -> str | None:
        import libcst as cst

        name = (
            node.func.attr.value if isinstance(node.func, cst.Attribute) else getattr(node.func, "value", "")
        )
        if (
            name in ("str", "repr", "float", "int")
            and isinstance(node.func, cst.Name)
            and len(node.args) == 1
        ):
            return self._field(node.args[0].value, "")
        if name in ("item", "tolist") and isinstance(node.func, cst.Attribute) and not node.args:
            return self._field(node.func.value, "")
        if (
            name == "format"
            and isinstance(node.func, cst.Attribute)
            and isinstance(node.func.value, cst.SimpleString)
        ):
            return self._format_method(node)
        if name == "format" and isinstance(node.func, cst.Name) and len(node.args) == 2:
            spec = node.args[1].value
            if isinstance(spec, cst.SimpleString):
                return self._field(node.args[0].value, str(spec.evaluated_value))
        return None

    def _formatted(self, node: Any) -> str | None:
        import libcst as cst

        out = ""
        for part in node.parts:
            if isinstance(part, cst.FormattedStringText):
                out += _decoded(part.value, node.start)
                continue
            spec = "".join(
                p.value if isinstance(p, cst.FormattedStringText) else "\0" for p in part.format_spec or ()
            )
            if "\0" in spec:
                return None
            if part.equal is not None:
                out += _escaped(self.place.cell.code(part.expression) + "=")
            inner = part.expression
            known = self._call(inner) if isinstance(inner, cst.Call) and not spec else None
            if isinstance(inner, cst.Call) and spec and getattr(inner.func, "value", "") in ("float", "int"):
                inner = inner.args[0].value
            if (
                isinstance(inner, cst.Call)
                and isinstance(inner.func, cst.Attribute)
                and inner.func.attr.value == "item"
            ):
                inner = inner.func.value
            out += known if known is not None else self._field(inner, spec)
        return out

    def _percent(self, node: Any) -> str | None:
        import libcst as cst

        values = [e.value for e in node.right.elements] if isinstance(node.right, cst.Tuple) else [node.right]
        pieces = re.split(r"(%[-+ 0#]*\d*(?:\.\d+)?[sdrifgeEGx%])", str(node.left.evaluated_value))
        out, index = "", 0
        for piece in pieces:
            if piece == "%%":
                out += "%"
            elif re.fullmatch(r"%[-+ 0#]*\d*(?:\.\d+)?[sdrifgeEGx]", piece):
                if index >= len(values):
                    return None
                spec = "" if piece[-1] in "sr" or piece == "%d" or piece == "%i" else piece[1:]
                out += self._field(values[index], spec)
                index += 1
            else:
                out += _escaped(piece)
        return out if index == len(values) else None

    def _format_method(self, node: Any) -> str | None:
        import string

        positional = [a.value for a in node.args if a.keyword is None]
        keywords = {a.keyword.value: a.value for a in node.args if a.keyword is not None}
        if any(a.star for a in node.args):
            return None
        out, index = "", 0
        for literal, name, spec, _ in string.Formatter().parse(str(node.func.value.evaluated_value)):
            out += _escaped(literal)
            if name is None:
                continue
            if name == "":
                value, index = (positional[index] if index < len(positional) else None), index + 1
            elif name.isdigit():
                value = positional[int(name)] if int(name) < len(positional) else None
            else:
                value = keywords.get(name)
            if value is None:
                return None
            out += self._field(value, spec or "")
        return out

    def _field(self, node: Any, spec: str) -> str:
        import libcst as cst

        code = stripped(self.place.cell.code(node))
        tail = f":{spec}" if spec else ""
        traced = names.traced_in(code, self.place.traced) or f"{self.place.jnp}." in code
        if not traced and isinstance(node, (cst.Integer, cst.Float)):
            return code
        if code in self._known:
            return f"{{{self._known[code]}{tail}}}"
        name = code if isinstance(node, cst.Name) else self._name_for(node)
        name = names.fresh(name, set(self._known.values()))
        self._known[code] = name
        self.arguments.append(f"{name}={code}")
        return f"{{{name}{tail}}}"

    def _name_for(self, node: Any) -> str:
        import libcst as cst

        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            return node.func.attr.value
        if isinstance(node, cst.Attribute):
            return node.attr.value
        return "value"


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _decoded(text: str, start: str) -> str:
    """The text of a literal part of an f-string; its double braces stay."""
    if "r" in start.lower():
        return text
    import ast

    try:
        return str(ast.literal_eval(f'"""{text}"""')) if not text.endswith('"') else text
    except SyntaxError:
        return text
