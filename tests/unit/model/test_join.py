"""The lab with a scripted worker: the candidates that join later."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lab_bench import STATIC, Bench, failure, label, labels, variant
from lab_builders import accuracy, candidate

from workbench.contract import Case
from workbench.engine.variant_search import MOST_CANDIDATES
from workbench.export.view.model_facts import saved_text
from workbench.files import write
from workbench.report.candidate import Row
from workbench.worker.recipe import Recipe


def by_label(**seconds: float) -> Callable[[Case], float]:
    """Seconds by the beginning of the label, 1 ms otherwise."""

    def found(case: Case) -> float:
        return next((s for word, s in seconds.items() if label(case).startswith(word)), 1e-3)

    return found


def test_no_candidate_joins_before_the_leader_has_two_rounds() -> None:
    bench = Bench.opened()
    assert bench.join(bench.measured(by_label(fp32=5e-4), rounds=1)) == []
    assert bench.join([candidate(case, 0, samples=[]) for case in bench.cases]) == []


def test_neighbours_and_rivals_of_the_leader_join() -> None:
    bench = Bench.opened()
    single = label(bench.cases[1])
    assert single == "fp32/t1"
    joined = labels(bench.join(bench.measured(lambda c: 5e-4 if label(c) == single else 1e-3)))
    assert {"fp32/t2", "fp32/extended/t1"} <= joined
    assert any(name.startswith("int8") and name.endswith("/t1") for name in joined)
    assert "fp32/t4" not in joined  # it is there already


def test_a_leader_in_int8_has_neighbours_that_must_be_built() -> None:
    bench = Bench.opened()
    before = len(bench.child.recipes())
    fast = lambda c: 2e-4 if label(c) == f"{STATIC}-products-channel/t4" else 1e-3  # noqa: E731
    joined = labels(bench.join(bench.measured(fast)))
    assert f"{STATIC}-products/t4" in joined
    assert f"{STATIC}-products-channel/t2" in joined
    assert f"{STATIC}-products-channel/nospin/t4" in joined
    assert bench.child.recipes()[before:] == [f"{STATIC}-products"]


def test_joining_candidates_are_new_and_come_to_an_end() -> None:
    bench = Bench.opened()
    for rounds in range(2, 12):
        seen = set(bench.cases)
        joined = bench.join(bench.measured(by_label(fp32=5e-4), rounds=rounds))
        assert not seen & set(joined)
        assert len(bench.cases) <= MOST_CANDIDATES
    assert joined == []


def test_a_full_row_takes_no_more() -> None:
    bench = Bench.opened()
    crowd = bench.measured(by_label(fp32=5e-4))
    crowd += [candidate(crowd[-1].case, 2e-3)] * (MOST_CANDIDATES - len(crowd))
    assert bench.join(crowd) == []


def test_a_thorough_race_has_every_candidate_from_the_start() -> None:
    bench = Bench.opened(thorough=True)
    assert bench.join(bench.measured(by_label(fp32=5e-4), rounds=4)) == []


def test_no_candidate_joins_too_late() -> None:
    bench = Bench.opened()
    assert bench.join(bench.measured(by_label(fp32=5e-4)), left_s=1.0) == []


def test_a_gpu_has_no_neighbours() -> None:
    bench = Bench(gpus=["fake:0"], devices=("fake:0",))
    assert {case.device for case in bench.open()} == {"fake:0"}
    assert bench.join(bench.measured(by_label())) == []


def mix(request: dict[str, Any]) -> dict[str, Any]:
    recipe = {**request["recipe"], "excluded": ["conv", "gemm"]}
    return {**variant(recipe), "recipe": recipe}


def off(*variants: str) -> Callable[[Case], float]:
    return lambda case: 0.1 if any(label(case).startswith(v) for v in variants) else 1e-6


def mixing(
    seconds: Callable[[Case], float], errors: Callable[[Case], float], **answers: Any
) -> Bench:
    bench = Bench.opened({"mixed": mix, **answers})
    bench.first_joined = bench.join(bench.measured(seconds, errors=errors))
    return bench


def test_a_static_variant_that_is_fast_but_over_the_limit_is_mixed() -> None:
    bench = mixing(by_label(**{STATIC: 2e-4}), off(STATIC))
    (mixed,) = bench.first_joined
    assert mixed.quantization.endswith("-mixed")
    (asked,) = (request for request in bench.child.asked if request["op"] == "mixed")
    assert (asked["metric"], asked["limit"]) == ("relative_error", 0.02)
    assert 0 < asked["seconds"] < 20
    last = bench.built()[-1]
    assert (last.excluded, last.coverage, last.reason) == (["conv", "gemm"], 1.0, None)
    assert bench.search.files(mixed)["model"].endswith("-mixed.onnx")


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_a_mix_runs_in_the_library_of_the_variant_that_it_mends(library: str) -> None:
    bench = Bench.opened({"mixed": mix}, backends=(library,))
    measured = bench.measured(by_label(**{STATIC: 2e-4}), errors=off(STATIC))
    (mixed,) = bench.join(measured)
    assert (mixed.backend, mixed.threads, label(mixed).count("mixed")) == (library, 4, 1)


def test_it_is_mixed_once() -> None:
    bench = mixing(by_label(**{STATIC: 2e-4}), off(STATIC))
    bench.join(bench.measured(by_label(**{STATIC: 2e-4}), rounds=4, errors=off(STATIC)))
    assert bench.child.ops().count("mixed") == 1


def test_the_variant_nearest_to_the_limit_is_mixed() -> None:
    errors = {f"{STATIC}/t4": 0.3, f"{STATIC}-channel/t4": 0.05}
    bench = mixing(by_label(**{STATIC: 2e-4}), lambda case: errors.get(label(case), 0.2))
    # Everything is over the limit, the model as given too: without a leader nothing is mixed.
    assert bench.first_joined == []
    bench = mixing(
        by_label(**{STATIC: 2e-4}),
        lambda case: errors.get(label(case), 1e-6 if case.precision == "fp32" else 0.2),
    )
    (asked,) = (request for request in bench.child.asked if request["op"] == "mixed")
    assert Recipe.of(asked["recipe"]).label == f"{STATIC}-channel"


@pytest.mark.parametrize(
    ("seconds", "errors"),
    [
        (by_label(**{STATIC: 2e-4}), off()),  # within the limit
        (by_label(**{STATIC: 2e-3}), off(STATIC)),  # slower anyway
        (by_label(**{STATIC: 9.7e-4}), off(STATIC)),  # hardly faster
        (by_label(**{"int8-dynamic": 2e-4}), off("int8-dynamic")),  # its ranges follow each input
    ],
)
def test_what_is_not_worth_mixing(seconds, errors) -> None:
    assert "mixed" not in mixing(seconds, errors).child.ops()


def test_the_race_goes_on_after_a_mix_that_fails() -> None:
    reason = failure("unsupported", "no node of it may stay in INT8")
    bench = mixing(by_label(**{STATIC: 2e-4}), off(STATIC), mixed=reason)
    last = bench.built()[-1]
    assert last.recipe.endswith("-mixed") and last.recipe.startswith(STATIC)
    assert last.reason.message == "no node of it may stay in INT8"
    assert bench.first_joined  # the neighbours of the leader
    assert not any("mixed" in label(case) for case in bench.first_joined)


def test_a_candidate_without_an_answer_is_not_mixed() -> None:
    bench = Bench.opened({"mixed": mix})
    unknown = bench.measured(by_label(**{STATIC: 2e-4}), errors=off(STATIC))
    for each in unknown:
        each.accuracy = None if each.case.quantization else accuracy(1e-6)
    bench.join(unknown)
    assert "mixed" not in bench.child.ops()


def test_the_pick_is_saved_to_the_given_file() -> None:
    saved = {"file": "/x/best.onnx", "size_bytes": 300, "difference": 0.0}
    bench = Bench({"save": saved}, {"save_best": "out/best.onnx"})
    static = next(case for case in bench.open() if label(case) == f"{STATIC}/t4")
    found = bench.lab.variants.save(static, Path("out/best.onnx"))
    assert (found.file, found.size_bytes, found.reason) == ("out/best.onnx", 300, None)
    asked = bench.child.asked[-1]
    assert asked["variant"] == f"{STATIC}.onnx"
    assert Path(asked["destination"]).is_absolute()
    assert bench.child.owned == [Path(asked["hidden"])]  # removed also if the worker is killed
    assert Path(asked["hidden"]).parent == Path(asked["destination"]).parent


def test_a_failed_save_has_its_reason() -> None:
    bench = Bench({"save": failure("no_space", "the disk is full")}, {"save_best": "out/b.onnx"})
    (case, *_) = bench.open()
    found = bench.lab.variants.save(case, Path("out/b.onnx"))
    assert found.reason.message == "the disk is full"
    assert found.size_bytes is None


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("writes", [True, False])
def test_only_a_file_that_is_as_before_was_not_written(old, writes, tmp_path) -> None:
    target = tmp_path / "best.onnx"
    if old is not None:
        target.write_bytes(old)
        os.utime(target, (1e9, 1e9))

    def save(request: dict[str, Any]) -> Exception:
        if writes:
            write.replace(Path(request["destination"]), b"whole")
        return failure("timeout", "no answer within 6.4 s")

    bench = Bench({"save": save}, {"save_best": str(target)})
    (case, *_) = bench.open()
    found = bench.lab.variants.save(case, target)
    text = saved_text(found)
    assert ("was not written: no answer within 6.4 s" in text) is not writes
    assert ("was written, but not checked: no answer within 6.4 s" in text) is writes
    assert (found.size_bytes, found.reason is None) == (5 if writes else None, False)


def test_the_fastest_run_of_the_model_as_given_is_the_baseline() -> None:
    bench = Bench.opened()
    seconds = {"fp32/t4": 3e-3, "fp32/t1": 2e-3}
    measured = bench.measured(lambda case: seconds.get(label(case), 1e-3))
    found = bench.search.baseline(measured)
    assert found.endswith("fp32/t1")
    assert bench.search.baseline([c for c in measured if c.case.quantization]) is None


def test_a_rounded_run_over_the_limit_is_not_the_model_as_given() -> None:
    bench = Bench()
    row = Row(bench.lab.plan)
    bench.open()
    rounded = replace(bench.cases[1], mode="bf16")
    exact = candidate(bench.cases[0], 1e-3)
    fast = candidate(rounded, 5e-4, error=0.1)
    row.candidates[:] = [exact, fast]
    known = msgspec.structs.replace(bench.search.space.facts, max_error=0.02)
    bench.search.space = replace(bench.search.space, facts=known)
    assert bench.search.baseline(row.candidates) == exact.case.id
    fast.accuracy = accuracy(1e-3)
    assert bench.search.baseline(row.candidates) == fast.case.id
