"""Two runs compared: what chance explains is no difference."""

from __future__ import annotations

import json

import pytest

from jitmagic.measure.noise import FLOOR, compare_runs, spread, tell_apart
from jitmagic.measure.timing import summarize
from jitmagic.render.measured import against
from jitmagic.report import Timing


def timing(*batches, device="cpu", folded=False):
    return Timing(jit=summarize(list(batches), 1), device=device, constant_folded=folded)


QUIET = (1.0, 1.001, 1.002, 1.0, 1.001)
NOISY = (1.0, 1.2, 0.9, 1.1, 1.3)


def scaled(values, by):
    return tuple(v * by for v in values)


@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        (QUIET, QUIET, "same"),
        (scaled(QUIET, 1.02), QUIET, "same"),
        (scaled(QUIET, 1.1), QUIET, "slower"),
        (scaled(QUIET, 0.9), QUIET, "faster"),
        (scaled(NOISY, 1.1), NOISY, "same"),
        (scaled(NOISY, 3.0), NOISY, "slower"),
        (scaled(QUIET, 1.2), NOISY, "same"),
    ],
)
def test_the_verdict_respects_the_noise(now, before, verdict):
    assert compare_runs(timing(*now), timing(*before), "then").verdict == verdict


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (QUIET, scaled(QUIET, 1.1), True),
        (NOISY, scaled(NOISY, 1.5), True),  # each pair agrees, whatever the machine did meanwhile
        (NOISY, tuple(reversed(NOISY)), False),
        ((1.0, 3.0, 1.0, 3.0), (2.0, 2.0, 2.0, 2.0), False),
        (
            (9.0, *QUIET),
            scaled(QUIET, 1.1),
            True,
        ),  # the first batch of one was left out: pairs count from the end
        ((1.0,), (1.1,), True),
    ],
)
def test_batches_in_turn_tell_which_is_faster(one, other, apart):
    assert tell_apart(summarize(list(one), 1), summarize(list(other), 1)) is apart


def test_up_and_down_are_judged_alike():
    for factor in (1.02, 1.04, 1.5):
        up = compare_runs(timing(*scaled(QUIET, factor)), timing(*QUIET), "then")
        down = compare_runs(timing(*QUIET), timing(*scaled(QUIET, factor)), "then")
        assert (up.verdict == "same") == (down.verdict == "same")


def test_words():
    assert against(compare_runs(timing(*QUIET), timing(*QUIET), "the last run of this cell")) == (
        f"no difference from the last run of this cell: within {FLOOR * 100:.0f} %"
    )
    slower = against(compare_runs(timing(*scaled(QUIET, 2)), timing(*QUIET), "run.json"))
    assert slower.startswith("2× slower than run.json (1 s then)")
    faster = against(compare_runs(timing(*scaled(QUIET, 0.9)), timing(*QUIET), "run.json"))
    assert faster.startswith("11 % faster than run.json")


@pytest.mark.parametrize(
    ("other", "words"),
    [(timing(1.0, device="gpu"), "it ran on gpu"), (timing(1.0, folded=True), "beforehand")],
)
def test_what_cannot_be_compared(other, words):
    found = compare_runs(timing(1.0), other, "then")
    assert found.verdict == "incomparable" and words in found.why and found.ratio is None


def test_nothing_to_compare():
    assert compare_runs(timing(1.0), Timing(), "then") is None


def test_one_batch_has_a_spread_of_nothing():
    assert spread(summarize([2.0], 1)) == 0.0


CELL = "%%jit -q -n 2 -r 4{}\ndef f(x):\n    return x @ x\nf(jnp.ones(({n}, {n})))"


class TestInANotebook:
    def found(self, notebook, flags="", n=4):
        notebook.ok(CELL.replace("{}", flags).format(n=n))
        return notebook.report().functions[0].against

    def test_the_last_run_of_the_cell(self, notebook):
        assert self.found(notebook) is None
        again = self.found(notebook)
        assert again.earlier == "the last run of this cell" and again.verdict in ("same", "faster", "slower")
        assert again.ratio > 0 and again.noise >= FLOOR

    def test_other_arguments_are_not_compared(self, notebook):
        self.found(notebook)
        found = self.found(notebook, n=5)
        assert found.verdict == "incomparable" and "x: float32[4,4]" in found.why

    def test_a_saved_run(self, notebook, tmp_path):
        path = tmp_path / "run.json"
        assert self.found(notebook, f" --save {path}") is None
        data = json.loads(path.read_text())
        data["functions"][0]["timing"]["jit"]["median_s"] = 1000.0
        path.write_text(json.dumps(data))
        for flags in (f" --compare {path}", f" --save {path}"):
            found = self.found(notebook, flags)
            assert (
                found.verdict == "faster"
                and found.earlier == f"the run in {path}"
                and found.before_s == 1000.0
            )
        assert json.loads(path.read_text())["functions"][0]["against"]["verdict"] == "faster"

    @pytest.mark.parametrize(
        "content", [None, "no json", "[1]", '{"schema": 99}', '{"schema": 1, "functions": 3}']
    )
    def test_a_file_that_cannot_be_read_is_a_usage_error(self, notebook, tmp_path, content):
        path = tmp_path / "old.json"
        if content is not None:
            path.write_text(content)
        error = notebook.error(f"%%jit --compare {path}\ndef f(x):\n    return x\n")
        assert type(error).__name__ == "UsageError" and "--compare" in str(error)
