"""What a recording run saw: each question asked of a traced value, at its place in the user's source."""

from __future__ import annotations

import ast
import types
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jitmagic import work
from jitmagic.evidence import Op, Problem
from jitmagic.source.tree import walk
from jitmagic.tracing import messages
from jitmagic.tracing.expressions import callee_of, construct_of, names_in
from jitmagic.tracing.locate import is_user_file, namespace_of, refine_op
from jitmagic.tracing.probing import SHAPE_CHECKS, is_indexing
from jitmagic.tracing.sites import site_of

MAX_PROBLEMS = 200
_FOLLOW_UPS = frozenset((("hash", "bool"), ("boolean-mask", "array"), ("boolean-mask", "concrete")))
"""A question and the second one it makes at the same place: a key is compared, a mask is read."""


Leaves = frozenset[str]


class OutOfBudget(BaseException):
    """The run took longer than it may; no `except Exception` of the user's may swallow it."""


@dataclass(frozen=True)
class _Seen:
    problem: Problem
    leaves: Leaves


class Recorder:
    """What the run saw, one entry per place and op, in order of occurrence."""

    def __init__(self, order: Mapping[str, int], budget_s: float, *, inside: bool) -> None:
        self.order, self.inside, self.budget_s = order, inside, budget_s
        self.deadline = work.clock() + budget_s
        self.seen: dict[Any, _Seen] = {}
        self.counts: Counter[object] = Counter()
        self.lru_caches: list[Any] = []

    def tick(self) -> None:
        """Raise OutOfBudget once the time is spent."""
        if work.clock() > self.deadline:
            raise OutOfBudget

    def problems(self) -> tuple[Problem, ...]:
        """Everything recorded, with counts and the leaves in the order of the arguments."""
        return tuple(
            replace(s.problem, leaves=self.sorted(s.leaves), count=self.counts[key])
            for key, s in self.seen.items()
        )

    def sorted(self, leaves: Leaves) -> tuple[str, ...]:
        """Leaves in the order of the arguments, state paths after them."""
        return tuple(sorted(leaves, key=lambda x: (self.order.get(x, len(self.order)), x)))

    def add(
        self, op: Op, leaves: Leaves, value: object, frame: types.FrameType | None, context: str = ""
    ) -> None:
        """Record one question; `frame` is where the search for the user's frame begins."""
        self.tick()
        user, crossed = user_frame(frame)
        if user is None or len(self.seen) >= MAX_PROBLEMS or self._is_own_loop(frame, user):
            return
        # A place asked before costs no look at the syntax: loops ask a thousand times.
        raw = (op, user.f_code, user.f_lasti)
        if raw in self.seen:
            self._again(raw, leaves)
            return
        self.seen[raw] = _Seen(self._problem(op, value, user, crossed, context, leaves), leaves)
        self.counts[raw] = 1
        self._merge_twin(raw)

    def _again(self, key: object, leaves: Leaves) -> None:
        self.counts[key] += 1
        old = self.seen[key]
        if not leaves <= old.leaves:
            self.seen[key] = replace(old, leaves=old.leaves | leaves)

    def _merge_twin(self, key: object) -> None:
        """The same span twice is one problem: a loop compiles its test twice, a key is compared after its hash."""
        new = self.seen[key]
        for other, old in self.seen.items():
            same = old.problem.where == new.problem.where and old.problem.where is not None
            pair = (old.problem.op, new.problem.op)
            if other != key and same and (pair[0] == pair[1] or pair in _FOLLOW_UPS):
                del self.seen[key], self.counts[key]
                self._again(other, new.leaves)
                return

    def _problem(
        self, op: Op, value: object, user: types.FrameType, crossed: list[str], context: str, leaves: Leaves
    ) -> Problem:
        if op == "concrete" and context:
            op = messages.concretization_op(context)
        if op in ("index", "int", "bool") and SHAPE_CHECKS & set(crossed):
            op = "shape"
        text = _short(value)
        found = site_of(user.f_code, user.f_lasti)
        if found is None:
            return Problem(op, None, recorded=True, value=text)
        namespace = namespace_of(user)
        op = refine_op(op, found, namespace)
        callee = callee_of(found.node)
        if op == "bool" and callee.rsplit(".", 1)[-1] in ("compress", "extract"):
            op = "boolean-mask"
        construct = construct_of(found, op)
        if op == "index" and "indexing" in crossed and _holds_slice(found.node):
            op = "slice"
        names = names_in(found, op, namespace, self.sorted(leaves))
        return Problem(op, found.where, (), names, construct, callee, recorded=True, value=text)

    def _is_own_loop(self, frame: types.FrameType | None, user: types.FrameType) -> bool:
        """Under disable_jit jax's control flow runs as Python and asks itself: not the user's question."""
        if not self.inside:
            return False
        while frame is not None and frame is not user:
            name = frame.f_code.co_filename.replace("\\", "/")
            if "/lax/control_flow/" in name:
                return True
            frame = frame.f_back
        return False


def user_frame(frame: types.FrameType | None) -> tuple[types.FrameType | None, list[str]]:
    """The innermost user frame from `frame` outwards and the names of jax functions crossed on the way."""
    crossed: list[str] = []
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        crossed.append(frame.f_code.co_name)
        if is_indexing(frame):
            crossed.append("indexing")
        frame = frame.f_back
    return frame, crossed


def _holds_slice(node: ast.AST | None) -> bool:
    return node is not None and any(isinstance(n, ast.Slice) for n in walk(node))


def _short(value: object) -> str:
    if value is None:
        return ""
    array = np.asarray(value)
    if array.ndim == 0:
        return repr(array.item())[:60]
    return f"{array.dtype}{list(array.shape)}"
