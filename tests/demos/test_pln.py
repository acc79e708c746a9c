"""demos/pln.ipynb, executed: what each level of the document shows, and every finding about it."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "demos" / "data"


@pytest.fixture(scope="module")
def pln(executed: Any) -> Any:
    return executed("pln")


def one(pln: Any, tag: str, kind: str) -> dict[str, Any]:
    found = [f for f in pln.findings(tag) if f["kind"] == kind]
    assert found, (kind, pln.kinds(tag))
    return found[0]


def numbers(text: str) -> list[float]:
    return [float(n) for n in re.findall(r"-?(?:inf|\d+\.?\d*(?:e[+-]\d+)?)", text)]


def losses_of_the_compiler(pln: Any) -> tuple[float, float]:
    compiled, plain = numbers(pln.text("check_compiler").splitlines()[0])
    return compiled, plain


def is_compiled_wrongly(pln: Any) -> bool:
    compiled, plain = losses_of_the_compiler(pln)
    return abs(compiled - plain) > 0.01 * plain


def test_the_counts_are_whole_and_their_licence_is_there(pln: Any) -> None:
    assert "116 leaves, 114 species, 319,591 reads" in pln.text("data")
    for name in ("counts", "offsets"):
        assert len(gzip.open(DATA / f"oaks_{name}.csv.gz").read().splitlines()) == 117
    assert "Permission is hereby granted" in (DATA / "README.md").read_text()


def test_the_determinant_overflows_at_the_fifth_step_and_slogdet_mends_it(pln: Any) -> None:
    losses = numbers(pln.text("level0"))
    assert losses[:4] == sorted(losses[:4], reverse=True) and losses[4:] == [float("-inf")] * 2
    assert losses[0] == pytest.approx(33_309_100, rel=1e-4)
    found = one(pln, "check_det", "nan")
    assert "det(" in found["span"]["source"] and "slogdet" in found["help"] and "data" in found["culprits"]
    (fix, *_) = one(pln, "fix_det", "nan")["fixes"]
    assert 'jnp.linalg.slogdet(data["Omega"])[1]' in fix["cell"]
    if is_compiled_wrongly(pln):
        assert not fix["verified"] and fix["evidence"].startswith(
            "a first step: the compiled result then differs"
        )
    else:
        assert fix["verified"]


def test_sizes_among_the_data_are_named(pln: Any) -> None:
    assert one(pln, "check_det", "size-argument")["culprits"][:2] == ["data['n']", "data['p']"]
    assert one(pln, "namedtuple", "size-argument")["culprits"][:2] == ["pln.n", "pln.p"]


def test_a_compiled_loss_that_is_wrong_is_the_compilers_fault(pln: Any) -> None:
    """Where this jaxlib compiles it rightly there is nothing to tell, and nothing may be told."""
    compiled, plain = losses_of_the_compiler(pln)
    wrong = is_compiled_wrongly(pln)
    assert ("jit-differs-from-eager" in pln.kinds("check_compiler")) == wrong
    if wrong:
        assert compiled / plain == pytest.approx(1.028, abs=0.002)
        assert "compiler is at fault" in one(pln, "check_compiler", "jit-differs-from-eager")["message"]


def test_the_dict_that_the_fit_changes_belongs_to_the_caller(pln: Any) -> None:
    found = one(pln, "level1", "state-write")
    assert set(found["culprits"]) == {"data['Sigma']", "data['Omega']", "data"}
    assert "belong to the caller" in found["message"]


def test_the_number_of_steps_and_the_executable_that_nobody_calls(pln: Any) -> None:
    found = one(pln, "level2", "dynamic-shape")
    assert found["culprits"] == ["steps"] and "static" in found["help"]
    assert "unused-result" in pln.text("aot") and "'compiled', 'fit2'" in pln.text("aot")


def test_the_container_and_the_misspelt_attribute_behind_it(pln: Any) -> None:
    assert "not a valid JAX type" in pln.text("container")
    assert one(pln, "container", "unregistered-pytree")["culprits"][0] == "pln"
    hidden = one(pln, "container", "user-error")
    assert hidden["span"]["source"] == "pln.Sigma = covariance(pln.N, pln.M, pln.S)"
    assert "'N'" in hidden["message"] and "`pln.n`" in hidden["help"]


def test_registering_the_container_is_proved(pln: Any) -> None:
    (fix, *_) = one(pln, "container_fixed", "unregistered-pytree")["fixes"]
    assert fix["verified"] and "tree_flatten" in fix["cell"] and "register" in fix["title"]


def test_what_is_wrong_with_the_pytree_class(pln: Any) -> None:
    writes = [f for f in pln.findings("level4") if f["kind"] in ("leaked-tracer", "state-write")]
    assert {f["culprits"][0] for f in writes} == {"pln.Sigma", "pln.Omega"}
    assert all(f["span"]["source"].startswith(f["culprits"][0]) for f in writes)
    assert one(pln, "level4", "lossy-pytree")["culprits"][:3] == ["Sigma", "Omega", "PLN"]
    assert one(pln, "level4", "array-in-aux-data")["culprits"][:3] == ["Y", "O", "X"]


def test_the_plain_class_is_right_and_traced_once(pln: Any) -> None:
    plain, compiled = (numbers(x) for x in re.findall(r"\[[\d.][^\]]*e\+[^\]]*\]", pln.text("dyn"))[:2])
    assert compiled[:4] == pytest.approx(plain[:4], rel=1e-4) and max(compiled[4:]) < compiled[3]
    (function,) = [f for r in pln.reports("dyn")[-1:] for f in r["functions"] if f["name"] == "Model.step"]
    counts = tuple(function[key] for key in ("verdict", "calls", "traces", "compiles"))
    assert counts == ("ok", 6, 1, 1), function["notes"]
    assert not [k for k in pln.kinds("dyn", "error", "warning")]


def test_the_table_has_a_line_for_each_level_and_names_its_conditions(pln: Any) -> None:
    lines = pln.text("table").splitlines()
    assert [x[0] for x in lines if re.match(r"\d [a-zA-Z].* s +\d", x)] == list("012345")
    assert any(x.startswith("here: cpu") or x.startswith("here: gpu") for x in lines)
    assert any("a GPU (level 0: a CPU)" in x for x in lines)
