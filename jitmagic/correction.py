"""A fix put into the text of a cell: its body, the options of its magic line, the calls there.

The in-editor layer does the same in the browser (lab/src/fix.ts); what one writes, the other has to write too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jitmagic.report import Fix
from jitmagic.source.cell import split_calls

_MAGIC = re.compile(r"\s*%%?(?:jitcheck|jit)(?=\s|$)")
_FLAGS = {"--static": "(?:--static|-s)", "--static-argnums": "--static-argnums", "--dyn": "(?:--dyn|-d)",
          "--donate": "--donate", "--donate-argnums": "--donate-argnums"}  # fmt: skip


def corrected(source: str, fix: Fix) -> str:
    """`source`, magic line included, after the fix; unchanged where the fix says nothing that could be written."""
    first, newline, rest = source.partition("\n")
    cell_magic = first.startswith("%%")
    body = rest if cell_magic else source
    if fix.cell is not None:
        body = fix.cell.removesuffix("\n") + ("\n" if body.endswith("\n") else "")
    if cell_magic and fix.magic is not None:
        first = with_calls(fix.magic, fix)
    elif cell_magic:
        first = with_calls(with_options(first, fix), fix)
    if cell_magic:
        return first + (newline or "\n" if body else "") + body
    lines = body.split("\n")
    at = next((i for i, line in enumerate(lines) if _MAGIC.match(line)), None)
    if at is not None:
        lines[at] = with_options(lines[at], fix)
    return "\n".join(lines)


def with_options(line: str, fix: Fix) -> str:
    """A magic line with the static arguments and dynamic variables of the fix."""
    static, numbers = fix.static_argnames, fix.static_argnums
    if static is not None or numbers is not None:  # each says the whole of what is static
        static, numbers = static or (), numbers or ()
    lists = {"--static": static, "--static-argnums": numbers, "--dyn": fix.dyn}
    for flag, values in lists.items():
        if values is not None:
            line = with_option(line, flag, [str(v) for v in values])
    return line


def with_option(line: str, flag: str, values: Sequence[str]) -> str:
    """`line` with this list for the option, in the place of what it had; an empty list takes the option out."""
    head = _MAGIC.match(line)
    if head is None:
        return line
    rest = line[head.end() :]
    joined = ",".join(values)
    quoted = f'"{joined}"' if re.search(r"\s", joined) else joined
    option = f" {flag} {quoted}" if joined else ""
    old = _option(flag)
    return head[0] + (old.sub(lambda _: option, rest, count=1) if old.search(rest) else option + rest)


def option_of(line: str, flag: str) -> tuple[str, ...]:
    """What a magic line lists for the option."""
    found = _option(flag).search(line)
    return tuple(filter(None, re.split(r"[,\s]+", found[1].strip("\"'")))) if found else ()


def _option(flag: str) -> re.Pattern[str]:
    return re.compile(rf"""\s+{_FLAGS[flag]}(?:\s+|=)("[^"]*"|'[^']*'|\S+)""")


def functions_of(line: str) -> list[str]:
    """The functions that a magic line names."""
    return re.findall(r"\s-f(?:\s+|=)(\S+)", line)


def with_functions(line: str, names: Sequence[str]) -> str:
    """`line` with these functions for its magic to take, in the place of those that it named."""
    head = _MAGIC.match(line)
    if head is None:
        return line
    rest = re.sub(r"\s+-f(?:\s+|=)\S+", "", line[head.end() :])
    return head[0] + "".join(f" -f {name}" for name in names) + rest


def with_calls(line: str, fix: Fix) -> str:
    """The calls of the magic line in their corrected form, where the fix gives one for each."""
    calls = fix.calls or ()
    name = re.match(r"([\w.]+)\(", calls[0]) if calls else None
    if name is None or any("\n" in call or not call.startswith(name[0]) for call in calls):
        return line
    start = re.search(rf"(?<=\s){re.escape(name[0])}", line)
    if start is None:
        return line
    try:
        count = len(split_calls(line[start.start() :]))
    except (SyntaxError, ValueError):
        return line
    return line[: start.start()] + "; ".join(calls) if count == len(calls) else line
