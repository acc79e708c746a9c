"""A corrected cell put to the test: only its definitions run, on copies, and their results are compared."""

from __future__ import annotations

import functools
import io
import types
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jitmagic.fixes import adopt
from jitmagic.fixes.around import (
    among,
    as_arrays,
    as_numpy,
    covered,
    lists_as_tuples,
    numpy_leaves,
    of_jax,
    shape_of,
    vmap_as_loop,
)
from jitmagic.fixes.definitions import Defined, find, prepare
from jitmagic.fixes.rewrite.place import Shape
from jitmagic.fixes.runs import Runs

if TYPE_CHECKING:
    from jitmagic.checking.seen import Sample
    from jitmagic.fixes.prove import Prover

SEEN = "__seen"
OUTPUTS = "__outputs"


@dataclass(frozen=True)
class Outcome:
    """How a corrected cell did. Where it raised under jit, `error` and the name of its file say where."""

    holds: bool
    words: str
    error: BaseException | None = None
    file: str = ""
    printed: str = ""
    proved: bool = True
    """False where the plain function cannot run, so that there was nothing to compare with."""
    exact: bool = True
    """False where the values are those of the plain run, and types or structure are not."""
    cost: str = ""
    """What the corrected function does not do that the user's does."""


NOT_AGAIN = Outcome(False, "what it draws or notes outside happens once, and later calls differ")
NOT_GIVEN_BACK = Outcome(False, "the array that the function changes is not given back")


@dataclass(frozen=True)
class _Ran:
    """A corrected function that ran on every kept call, compiled and plain."""

    jitted: Any
    target: adopt.Classes
    static: Sequence[str]
    got: list[Any]
    plain: list[Any]
    printed: str


class Trial:
    """Tries corrected cells of one function on the calls that were kept."""

    def __init__(self, prover: Prover) -> None:
        self.prover, self.checker = prover, prover.checker
        self._wanted: tuple[list[Any], str] | None = None
        self._changed: list[list[Any]] | None = None
        self._in_a_row: list[Any] | None = None
        """What the plain function gives where its calls follow each other; empty where it leaves nothing behind."""
        self.runs = Runs(prover)

    def _found(self, defined: Defined) -> Any:
        """The corrected function, by its own name or by that of what the notebook made of it. Raises KeyError."""
        own = self.checker.name.partition(".")[0] in defined.namespace
        name, fn = self.checker.name if own else self.checker.bound_as, self.checker.fn
        if isinstance(
            fn, types.MethodType
        ):  # that of the object that the user's is bound to, or of a copy of it
            found = find(defined.namespace, name)
            if isinstance(found, types.FunctionType):
                return types.MethodType(found, adopt.adopted(fn.__self__, defined.classes))
        return defined.function(name)

    # -- what is wanted

    def wanted(self) -> tuple[list[Any], str]:
        """Results of the user's plain function on the kept calls, and how they were had.

        A function that cannot run without jit either, because its loops trace their bodies, runs with
        `jax.disable_jit`, where these are Python loops. Raises what the function raises.
        """
        if self._wanted is None:
            run = self.runs.plain(self.checker.fn)
            samples = self.prover.samples
            try:
                self._wanted = [run(s) for s in samples], "equal to the run without jit"
            except Exception as exc:
                if "JAX arrays are immutable" in str(exc):
                    self._wanted = [run(as_numpy(s)) for s in samples], "equal to the run on NumPy arrays"
                    return self._wanted
                self._wanted = self._with_loops_in_python(exc)
        return self._wanted

    def _with_loops_in_python(self, refused: Exception) -> tuple[list[Any], str]:
        """Raises what jax said of its loop where these fail too."""
        import jax

        run = self.runs.plain(self.checker.fn)
        try:
            with jax.disable_jit(), vmap_as_loop():
                return [run(s) for s in self.prover.samples], "equal to the run with loops in Python"
        except Exception as exc:
            raise refused if of_jax(refused) else exc from None

    def _changed_arguments(self) -> list[list[Any]]:
        """For each kept call, what the plain function leaves in numpy arguments that it writes into."""
        if self._changed is None:
            numpy = self._wanted is not None and "NumPy" in self._wanted[1]
            self._changed = [self._changes_of(as_numpy(s) if numpy else s) for s in self.prover.samples]
        return self._changed

    def _changes_of(self, sample: Sample) -> list[Any]:
        import numpy as np

        arrays = numpy_leaves(sample)
        if not arrays:
            return []
        before, after = [a.copy() for a in arrays], []
        with self.runs.aside(sample):
            try:
                self.checker.fn(*sample.args, **sample.kwargs)
            except Exception:
                return []
            after = [a.copy() for a in arrays]
        return [
            new
            for array, old, new in zip(arrays, before, after, strict=True)
            if not np.array_equal(old, new, equal_nan=old.dtype.kind == "f") or self._writes(sample, array)
        ]

    def _writes(self, sample: Sample, array: Any) -> bool:
        """The plain function writes into this argument, if only what is there already."""
        if not array.flags.writeable:
            return False
        array.flags.writeable = False
        try:
            self.runs.plain(self.checker.fn)(sample)
        except ValueError as exc:
            return "read-only" in str(exc)
        except Exception:
            return False
        finally:
            array.flags.writeable = True
        return False

    # -- what a cell does

    def cell(
        self, cell: str, *, static: Sequence[str] = (), changes_result: bool = False, effects: bool = False,
        covers: bool = False, raises: bool = False, dyn: Sequence[str] = (),
    ) -> Outcome:  # fmt: skip
        """Whether the function of the corrected cell traces and gives what the plain one gives."""
        from jitmagic.measure.compare import compare

        ran = self._ran(cell, static, dyn)
        if isinstance(ran, Outcome):
            return ran
        try:
            wanted, how = self.wanted()
        except Exception as exc:
            if not of_jax(exc) or changes_result or compare(ran.plain, ran.got):
                return Outcome(
                    False, f"the function without jit raises {type(exc).__name__}: nothing can be compared"
                )
            words = "traced; the same with and without jit; the uncorrected function cannot run without jit"
            return Outcome(True, words, printed=ran.printed, proved=False)
        if changes_result:
            return self._changed_result(ran, wanted)
        if effects:
            again = self.runs.writes(lambda s: self.runs.traced(ran.jitted, s, ran.target, io.StringIO()))
            if again != self.runs.writes(self.runs.plain(self.checker.fn)):
                return Outcome(False, "it writes other things outside the function")
        found = self._same_results(ran, wanted, how, covers)
        if found.holds and not self._goes_on_alike(ran):
            return NOT_AGAIN
        if not found.holds or not raises:
            return found
        told = self._raises(ran.jitted, ran.target)
        if told is None:
            return Outcome(False, "it does not raise where the plain function does")
        return replace(found, words=f"{found.words}; {told}")

    def _ran(self, cell: str, static: Sequence[str], dyn: Sequence[str]) -> _Ran | Outcome:
        """The function of the corrected cell run on every kept call, or why it does not run."""
        samples = self.prover.samples
        if not samples:
            return Outcome(False, "not tried: no call was kept")
        try:
            defined = prepare(cell, self.checker.namespace)
            fn = self._found(defined)
        except Exception as exc:
            return Outcome(False, f"the corrected cell does not run: {type(exc).__name__}: {exc}")
        target, printed = defined.classes, io.StringIO()
        self.runs.trying = fn if target or _keeps_by_name(cell, self.checker.name) else None
        jitted = self.runs.compiled(fn, defined.namespace, static, dyn)
        try:
            with redirect_stdout(printed):
                got = [self.runs.traced(jitted, s, target, printed) for s in samples]
        except Exception as exc:
            return Outcome(
                False, f"it still fails: {type(exc).__name__}", exc, defined.file, printed.getvalue()
            )
        try:
            plain = self._plainly(fn, target, static)
        except Exception as exc:
            return Outcome(False, f"it fails without jit: {type(exc).__name__}")
        return _Ran(jitted, target, static, got, plain, printed.getvalue())

    def alike(self, cell: str, static: Sequence[str]) -> bool:
        """Without jit, the function of the corrected cell gives what the user's gives."""
        from jitmagic.measure.compare import compare

        try:
            defined = prepare(cell, self.checker.namespace)
            fn = self._found(defined)
            self.runs.trying = fn if defined.classes else None
            got = self._plainly(fn, defined.classes, static)
            return not compare(self.wanted()[0], got)
        except Exception:
            return False

    def _plainly(self, fn: Callable[..., Any], target: adopt.Classes, static: Sequence[str]) -> list[Any]:
        """Results of the corrected function without jit. Raises what it raises."""
        run, samples = self.runs.plain(fn, target), self.prover.samples
        try:
            return [run(s) for s in samples]
        except ArithmeticError:
            # Python's numbers raise where both sides of a choice are computed; arrays do not
            fixed = {*self.checker.options.static_parameters(self.checker.fn), *static}
            return [run(as_arrays(s, self.checker.fn, fixed)) for s in samples]

    def _given_back(self, ran: _Ran, wanted: Sequence[Any]) -> str | None:
        """What it costs that arrays which the function changes come as results; None where they do not come."""
        import jax

        pairs = zip(self._changed_arguments(), ran.got, strict=True)
        if all(among(arrays, result) for arrays, result in pairs):
            return ""
        if all(not jax.tree.leaves(w) for w in wanted):
            return None
        return "the caller's own array stays as it is"

    def _changed_result(self, ran: _Ran, wanted: Sequence[Any]) -> Outcome:
        """The correction changes what the function returns: with and without jit alike, and not as before."""
        from jitmagic.measure.compare import compare

        if self._given_back(ran, wanted) is None:
            return NOT_GIVEN_BACK
        if compare(ran.plain, ran.got):
            return Outcome(False, "jit and the plain run differ")
        if not compare(wanted, ran.got):
            return Outcome(False, "it changes nothing")
        words = f"traced; with and without jit the same on {_calls(len(ran.got))}"
        return Outcome(True, words, printed=ran.printed)

    def _same_results(self, ran: _Ran, wanted: Sequence[Any], how: str, covers: bool) -> Outcome:
        """The correction gives what the uncorrected function gives, compiled and not."""
        from jitmagic.measure.compare import compare

        cost = self._given_back(ran, wanted)
        if cost is None:
            return NOT_GIVEN_BACK
        calls = _calls(len(ran.got))
        own = not how.endswith("without jit")  # the user's own branches cannot run as they are
        looped = how.endswith("loops in Python")
        if looped and any(d.reason == "structure" for d in compare(wanted, ran.got)):
            # of a state that goes in as a tuple and comes out as a list, either may be meant
            wanted, got, plain = (lists_as_tuples(r) for r in (wanted, ran.got, ran.plain))
            ran = replace(ran, got=got, plain=plain)
        if differences := compare(wanted, ran.got):
            if {d.reason for d in differences} == {"values"} and self._by_rounding(ran):
                how = f"{how} up to rounding"
            elif covers and own and covered(wanted, ran.got) and not compare(ran.plain, ran.got):
                words = f"traced; holds the values of the run without jit on {calls}"
                return Outcome(True, words, printed=ran.printed, exact=False)
            else:
                return Outcome(False, f"the result differs from the plain run ({differences[0].reason})")
        if differences := compare(wanted, ran.plain):
            return Outcome(False, f"the result differs from the plain run ({differences[0].reason})")
        return Outcome(True, f"traced; {how} on {calls}", printed=ran.printed, exact=not cost, cost=cost)

    def _goes_on_alike(self, ran: _Ran) -> bool:
        """Where the function leaves something behind (a random state, a count): called in a row, each call starting
        from what the one before has left, the corrected one gives what the plain one gives."""
        from jitmagic.measure.compare import compare

        samples, wanted = self.prover.samples, self.wanted()[1]
        if len(samples) < 2 or not wanted.endswith("without jit") and "NumPy" not in wanted:
            return True
        given = as_numpy if "NumPy" in wanted else (lambda s: s)
        if self._in_a_row is None:
            plain = self.runs.plain(self.checker.fn)
            moves = any(self.runs.writes(lambda s: plain(given(s)), samples[:1]))
            self._in_a_row = (self.runs.in_a_row(lambda s: plain(given(s))) if moves else None) or []
        if not self._in_a_row:
            return True
        got = self.runs.in_a_row(lambda s: self.runs.traced(ran.jitted, s, ran.target, io.StringIO()))
        return got is not None and not compare(self._in_a_row, got)

    def _by_rounding(self, ran: _Ran) -> bool:
        """Rounding alone makes the compiled results of the corrected function differ from its plain ones."""
        from jitmagic.fixes.rounding import explains

        for sample, plain, got in zip(self.prover.samples, ran.plain, ran.got, strict=True):
            call = adopt.adopted((sample.args, sample.kwargs), ran.target)
            with self.runs.aside(sample):
                if not explains(self.checker, ran.jitted, call, (plain, got), ran.static):
                    return False
        return True

    def _raises(self, jitted: Callable[..., Any], target: adopt.Classes) -> str | None:
        """Words about the corrected function on values for which the plain one raises; None where it does not."""
        from jitmagic.fixes import raising

        def run(fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
            sample = replace(self.prover.samples[0], args=args, kwargs=kwargs)
            if fn is jitted:
                self.runs.traced(fn, sample, target, io.StringIO())
            else:
                self.runs.plain(fn)(sample)

        first = self.prover.samples[0]
        return raising.tried(
            functools.partial(run, self.checker.fn), functools.partial(run, jitted), first.args, first.kwargs
        )

    # -- what expressions are

    def probe(self, cell: str) -> list[Shape]:
        """Runs the cell's function without jit on the kept calls; what went through `__seen(...)`, in order."""
        import jax

        seen: list[Shape] = []

        def note(value: Any) -> Any:
            for leaf in jax.tree.leaves(value)[:8]:
                seen.append(shape_of(leaf))
            if not jax.tree.leaves(value):
                seen.append(Shape((), "", type=type(value).__name__))
            return value

        self._rehearse(cell, SEEN, note)
        return seen

    def outputs(self, cell: str) -> list[Any]:
        """Runs the cell's function until it asks `__outputs([f, g], *operands)`; what each function would return."""
        import jax

        found: list[Any] = []

        def ask(functions: Sequence[Callable[..., Any]], *operands: Any) -> Any:
            found[:] = [jax.eval_shape(f, *operands) for f in functions]
            raise StopIteration  # what comes after needs the result

        self._rehearse(cell, OUTPUTS, ask)
        return found

    def _rehearse(self, cell: str, name: str, function: Callable[..., Any]) -> None:
        """Run the cell's function without jit, with one more function in its names, as far as it goes."""
        try:
            defined = prepare(cell, self.checker.namespace, {name: function})
            fn = self._found(defined)
            self.runs.trying = fn if defined.classes else None
            for sample in self.prover.samples:
                self.runs.plain(fn, defined.classes)(sample)
        except Exception:
            pass  # what was seen before it failed is still true


def _keeps_by_name(cell: str, name: str) -> bool:
    """A corrected cell whose functions write globals, or attributes of themselves, has names of its own for them."""
    return any(line.lstrip().startswith(("global ", f"{name}.")) for line in cell.splitlines())


def _calls(number: int) -> str:
    return "1 call" if number == 1 else f"{number} calls"
