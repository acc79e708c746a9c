"""`break`, `continue` and `return` in a loop's body as flags that the loop carries."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from jitmagic.fixes.branches.truth import is_boolean, negated, truth
from jitmagic.fixes.change import Spot
from jitmagic.fixes.loops.heads import fresh
from jitmagic.source.edits import CannotEdit, Edits, indented
from jitmagic.source.loops import LoopBody, LoopNode
from jitmagic.source.pattern import atom, stripped

JUMPS = (ast.Break, ast.Continue, ast.Return)


class Exits:
    """The body of a loop without its jumps: each is a flag, and what follows it stands under a condition. `edits` are
    changes of the statements besides."""

    def __init__(self, spot: Spot, loop: LoopNode, edits: Edits) -> None:
        self.spot, self.edits = spot, edits
        self.jumps = LoopBody(spot.text, loop).jumps
        self.done = ""
        """The flag of a `break`."""
        self.found: dict[str, ast.expr] = {}
        """The flag of each `return`, and what that returns."""
        self.skipped = ""
        """The flag of a `continue` that stands deeper."""
        self.at = next(s for s in loop.body if self._inside(s))
        """The first statement that holds a jump; `code` stands for it and what follows it."""
        index = loop.body.index(self.at)
        self.code = self._jump(self.at, loop.body[index + 1 :])
        if self.skipped:
            self.code = f"{self.skipped} = False\n{self.code}"
        self.body = (edits.block(loop.body[:index]) if index else "") + self.code
        """All of it."""

    @property
    def flags(self) -> list[str]:
        """Those that end the loop."""
        return [*([self.done] if self.done else []), *self.found]

    @property
    def ended(self) -> str:
        """Some flag says that the loop has ended."""
        return " | ".join(self.flags)

    def _without(self, statements: Sequence[ast.stmt]) -> str:
        at = next((i for i, s in enumerate(statements) if self._inside(s)), None)
        if at is None:
            return self.edits.block(statements) if statements else ""
        head = self.edits.block(statements[:at]) if at else ""
        return head + self._jump(statements[at], statements[at + 1 :])

    def _inside(self, *statements: ast.stmt) -> list[ast.AST]:
        """Jumps out of the loop that these hold."""
        found = [n for s in statements for n in self.spot.text.own(s, *JUMPS)]
        return [n for n in found if n in self.jumps]

    def _jump(self, statement: ast.stmt, rest: Sequence[ast.stmt]) -> str:
        if isinstance(statement, JUMPS):
            flag = self._flag(statement)
            return f"{flag} = True\n" if flag else ""
        if not isinstance(statement, ast.If):
            raise CannotEdit("a jump out of another statement")
        then, test = statement.body, statement.test
        if not isinstance(then[-1], JUMPS) or self._inside(*then[:-1]):
            return self._either(statement, rest)
        after = [*statement.orelse, *rest]
        flag, before = self._flag(then[-1]), self.edits.block(then[:-1]) if then[:-1] else ""
        if not flag:  # what a `continue` skips
            asked, opposite = self.spot.code(test), negated(self.spot, test)
            return _choice(asked, opposite, before, self._without(after))
        tests = [test]
        while isinstance(then[-1], ast.Break) and not before and after and self._breaks(after[0], tests):
            tests.append(after.pop(0).test)  # type: ignore[attr-defined]
        truths = [stripped(truth(self.spot, t)) for t in tests]
        asked = truths[0] if len(tests) == 1 else " | ".join(map(atom, truths))
        return f"{flag} = {asked}\n" + _choice(flag, f"not {flag}", before, self._without(after))

    def _breaks(self, statement: ast.stmt, tests: Sequence[ast.expr]) -> bool:
        """`if c: break` after others, all of them booleans."""
        match statement:
            case ast.If(test, [ast.Break()], []):
                return all(is_boolean(self.spot, t) for t in [*tests, test])
        return False

    def _either(self, statement: ast.If, rest: Sequence[ast.stmt]) -> str:
        """Jumps deeper in the branches of an `if`."""
        held = self._inside(statement)
        if rest and any(isinstance(n, ast.Continue) for n in held):
            self.skipped = self.skipped or self._named("skipped")
        then, other = self._without(statement.body), self._without(statement.orelse)
        code = _choice(self.spot.code(statement.test), negated(self.spot, statement.test), then, other)
        flags = dict.fromkeys(map(self._flag, held))
        return f"{code}if not {atom(' | '.join(flags))}:\n{indented(self._without(rest))}" if rest else code

    def _flag(self, jump: ast.AST) -> str:
        """The name of the flag of a jump; none for a `continue` that needs none."""
        if isinstance(jump, ast.Break):
            self.done = self.done or self._named("done")
            return self.done
        if not isinstance(jump, ast.Return):
            return self.skipped
        if jump.value is None:
            raise CannotEdit("a return of nothing")
        name = next((n for n, v in self.found.items() if v is jump.value), "") or self._named("found")
        self.found[name] = jump.value
        return name

    def _named(self, wanted: str) -> str:
        return fresh(self.spot, "\n".join([*self.flags, self.skipped]), wanted)


def _choice(test: str, opposite: str, then: str, other: str) -> str:
    """An `if` of which a branch may be empty."""
    if then and other:
        return f"if {test}:\n{indented(then)}else:\n{indented(other)}"
    if then or other:
        return f"if {test if then else opposite}:\n{indented(then or other)}"
    return ""
