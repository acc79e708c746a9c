from __future__ import annotations

import gc

import pytest

from jitmagic.measure.timing import break_even, summarize, time_pair


class Clock:
    """A clock that moves only when a call says how long it took."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def call(self, seconds: float, log: list[str] | None = None, name: str = ""):
        def run() -> None:
            self.now += seconds
            if log is not None:
                log.append(name)

        return run


def test_medians_speedup_and_break_even_come_from_the_calls():
    clock = Clock()
    timing = time_pair(clock.call(0.010), clock.call(0.002), clock=clock, compile_s=1.0, device="cpu:0")
    assert timing.eager.median_s == pytest.approx(0.010)
    assert timing.jit.median_s == pytest.approx(0.002)
    assert timing.speedup == pytest.approx(5.0)
    assert timing.break_even_calls == 125
    assert timing.device == "cpu:0"
    assert timing.left_out is None


def test_where_the_batches_disagree_nothing_is_said_to_pay_off():
    clock = Clock()
    turns = iter([0.010, 0.010] + [0.010, 0.030] * 4)
    timing = time_pair(
        lambda: clock.call(next(turns))(), clock.call(0.020), clock=clock, loops=1, repeats=8, compile_s=1.0
    )
    assert not timing.clear and timing.break_even_calls is None


def test_a_batch_lasts_a_fifth_of_a_second_in_round_numbers():
    clock = Clock()
    timing = time_pair(clock.call(0.010), clock.call(0.003), clock=clock)
    assert (timing.eager.loops, timing.jit.loops) == (20, 100)
    assert timing.eager.repeats == timing.jit.repeats == 7


def test_given_loops_are_used_as_they_are():
    clock = Clock()
    timing = time_pair(clock.call(0.010), clock.call(0.003), clock=clock, loops=3, repeats=4)
    assert (timing.eager.loops, timing.jit.loops) == (3, 3)
    assert (timing.eager.repeats, timing.jit.repeats) == (4, 4)


def test_batches_alternate():
    clock, log = Clock(), []
    time_pair(clock.call(0.01, log, "e"), clock.call(0.01, log, "j"), clock=clock, loops=2, repeats=3)
    assert "".join(log).endswith("eejj" * 3)


@pytest.mark.parametrize("seconds", [(0.5, 0.001), (1.0, 1.0), (0.0001, 0.4)])
def test_the_budget_holds(seconds):
    clock = Clock()
    time_pair(clock.call(seconds[0]), clock.call(seconds[1]), clock=clock, budget_s=4.0)
    assert clock.now <= 4.0 + sum(seconds)


def test_repeats_are_cut_before_loops_and_the_report_says_so():
    clock = Clock()
    timing = time_pair(clock.call(0.4), clock.call(0.1), clock=clock, budget_s=4.0, loops=1, repeats=50)
    assert 3 <= timing.jit.repeats < 50
    assert "of 50 repeats" in timing.left_out
    many = time_pair(clock.call(0.1), clock.call(0.1), clock=clock, budget_s=4.0, loops=1000)
    assert 1 <= many.jit.loops < 1000
    assert many.jit.median_s == pytest.approx(0.1)


def test_a_slow_call_without_jit_is_measured_once():
    clock, log = Clock(), []
    timing = time_pair(clock.call(30.0, log, "e"), clock.call(0.001), clock=clock, budget_s=10.0)
    assert log == ["e"]
    assert (timing.eager.loops, timing.eager.repeats) == (1, 1)
    assert timing.eager.median_s == pytest.approx(30.0)
    assert timing.jit.median_s == pytest.approx(0.001)
    assert "more than was left of the 10 s" in timing.left_out


def test_a_known_slow_call_is_not_made_again():
    clock, log = Clock(), []
    timing = time_pair(clock.call(30.0, log, "e"), clock.call(0.001), clock=clock, eager_once_s=31.0)
    assert log == []
    assert timing.eager.median_s == pytest.approx(31.0)
    assert timing.speedup == pytest.approx(31000.0)
    assert timing.jit.repeats == 7


def test_a_slow_first_call_alone_does_not_decide_the_loops():
    clock = Clock()
    spans = iter([1.0])

    def eager() -> None:
        clock.now += next(spans, 0.001)

    assert time_pair(eager, clock.call(0.001), clock=clock).eager.loops >= 100


def test_an_exception_without_jit_leaves_the_compiled_timing():
    clock = Clock()

    def eager() -> None:
        raise ValueError("not today\nsecond line")

    timing = time_pair(eager, clock.call(0.002), clock=clock, compile_s=1.0)
    assert timing.eager is None and timing.speedup is None and timing.break_even_calls is None
    assert timing.jit.median_s == pytest.approx(0.002)
    assert "ValueError: not today" in timing.left_out and "second line" not in timing.left_out


def test_an_exception_of_the_compiled_call_is_told():
    clock = Clock()

    def jit() -> None:
        raise RuntimeError("out of memory")

    timing = time_pair(clock.call(0.1), jit, clock=clock)
    assert timing.jit is None and "out of memory" in timing.left_out


def test_without_an_eager_call_only_the_compiled_one_is_timed():
    clock = Clock()
    timing = time_pair(None, clock.call(0.002), clock=clock)
    assert timing.eager is None and timing.speedup is None and timing.left_out is None
    assert timing.jit.repeats == 7


def test_state_is_put_back_after_every_batch_outside_the_clock():
    clock, state, seen = Clock(), [0], []

    def step() -> None:
        state[0] += 1
        clock.now += 0.01

    def restore() -> None:
        seen.append(state[0])
        state[0] = 0
        clock.now += 0.05

    timing = time_pair(step, step, restore=restore, clock=clock, loops=4, repeats=2)
    assert state == [0] and seen[-4:] == [4, 4, 4, 4]
    assert timing.jit.median_s == pytest.approx(0.01)


def test_state_is_put_back_after_every_call_where_asked():
    clock, state, seen = Clock(), [0], []

    def step() -> None:
        state[0] += 1
        seen.append(state[0])
        clock.now += 0.01

    def restore() -> None:
        state[0] = 0
        clock.now += 1e-6

    timing = time_pair(step, step, restore=restore, restore_each=True, clock=clock, loops=4, repeats=2)
    assert set(seen) == {1} and state == [0]
    assert timing.jit.median_s == pytest.approx(0.01)


@pytest.mark.parametrize("enabled", [True, False])
def test_an_interrupt_passes_and_leaves_everything_as_it_was(enabled):
    clock, state, collecting = Clock(), [0], []

    def eager() -> None:
        state[0] += 1
        collecting.append(gc.isenabled())
        raise KeyboardInterrupt

    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(KeyboardInterrupt):
            time_pair(eager, clock.call(0.001), restore=lambda: state.__setitem__(0, 0), clock=clock)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
    assert collecting == [False] and state == [0]


def test_statistics_are_per_call():
    sample = summarize([2.0, 4.0, 6.0], loops=2)
    assert (sample.median_s, sample.mean_s, sample.best_s) == (2.0, 2.0, 1.0)
    assert sample.std_s == pytest.approx((2 / 3) ** 0.5)
    assert sample.quartiles_s == (1.5, 2.5)


@pytest.mark.parametrize(
    ("eager", "jit", "compiling", "calls"),
    [(2.0, 1.0, 3.5, 4), (1.0, 2.0, 3.5, None), (1.0, 1.0, 1.0, None), (1.0, 0.5, 0.0, 1)],
)
def test_break_even(eager, jit, compiling, calls):
    assert break_even(eager, jit, compiling) == calls


def test_each_call_is_blocked_on(monkeypatch):
    blocked = []
    monkeypatch.setattr("jax.block_until_ready", blocked.append)
    clock, step = Clock(), [0]

    def jit() -> int:
        step[0] += 1
        clock.now += 0.1
        return step[0]

    time_pair(None, jit, clock=clock, loops=2, repeats=2)
    assert blocked == list(range(1, step[0] + 1))


class TestDonatedArguments:
    def test_they_are_copied_for_each_call_outside_the_clock(self, notebook):
        notebook.ok(
            "%%jit -q -n 3 -r 4 --donate x\ndef f(x, y):\n    return x + y, y.sum()\n"
            "x, y = jnp.arange(50.0), jnp.ones(50)\nr = f(x, y)"
        )
        notebook.ok("assert x.is_deleted() and not y.is_deleted() and float(r[0][3]) == 4.0")
        (function,) = notebook.report().functions
        assert function.timing.jit.median_s > 0 and function.timing.eager.median_s > 0
        assert function.timing.jit.loops == 3
        assert function.timing.jit.repeats == 4 - ("first run compiled" in function.timing.left_out)
        assert "copied before each call" in function.timing.left_out
        assert (function.traces, function.compiles, function.calls) == (1, 1, 1)

    def test_of_a_method_and_in_containers(self, notebook):
        notebook.ok(
            "%%jit -q -n 2 -r 3 -f M.step -s self --donate p\nclass M:\n    n = 2.0\n    def step(self, p, lr):\n"
            "        return {k: v - lr * self.n * v for k, v in p.items()}\n"
            "p = {'a': jnp.ones(40), 'b': jnp.zeros((40, 2))}\nq = M().step(p, lr=0.1)"
        )
        notebook.ok("assert p['a'].is_deleted() and q['a'].shape == (40,)")
        assert notebook.report().functions[0].timing.jit.repeats == 3

    def test_variables_that_are_given_away_are_not_timed(self, notebook):
        notebook.ok(
            "w = jnp.ones(30)\n%jit -q -n 2 -r 3 --dyn w --donate w\ndef f(x):\n    global w\n    w = w + x\n    return w.sum()\n"
            "v = float(f(1.0)); u = float(f(1.0))"
        )
        notebook.ok("assert (v, u) == (60.0, 90.0)")
        timing = notebook.report().functions[0].timing
        assert timing.jit is None and "not timed" in timing.left_out


def test_a_call_in_which_jax_compiled_is_no_time_of_a_call():
    import jax
    import jax.numpy as jnp

    clock = Clock()
    cold = [jax.jit(lambda x: x + 1)]

    def call() -> None:
        clock.now += 30.0 if cold else 0.010
        for program in cold:
            program(jnp.ones(3))
        cold.clear()

    timing = time_pair(call, clock.call(0.001), clock=clock, budget_s=2.0)
    assert timing.eager.median_s == pytest.approx(0.010)
    assert timing.left_out is None
