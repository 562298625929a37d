"""Two earlier runs: words for their cases, changes of their verdicts, and doubts about them."""

import dataclasses

import msgspec
import pytest
from builders import case, events, machine, report, scenario, steady
from recorded_model import FACTS

from workbench.advisor.compare import RunSide, compared
from workbench.advisor.verdict import decide
from workbench.contract import Case
from workbench.records.code import CodeFacts, CodeReport
from workbench.records.comparison import ComparedCase, Versus
from workbench.records.document import Clocks
from workbench.records.model import ModelReport
from workbench.records.reason import Warning
from workbench.report.report import Report

ONE, TWO, THREE = case("cpu-a"), case("cpu-b"), case("cpu-c")
GPU = case("cuda:0-a")


def side(name: str, times: dict[Case, float], rounds: int = 8, **options: object) -> RunSide:
    found = report({c: steady(center, rounds) for c, center in times.items()}, **options)
    for row in found.rows.values():
        row.verdict = decide(found, scenario())
    return RunSide(name, found)


def against(
    before: dict[Case, float], after: dict[Case, float], fail_on: float | None = None
) -> Versus:
    return compared(side("A", before), side("B", after), fail_on)


def only(found: Versus) -> ComparedCase:
    (one,) = found.cases
    return one


@pytest.mark.parametrize(
    ("factor", "word"), [(1.3, "SLOWER"), (0.7, "FASTER"), (1.0, "SAME"), (1.06, "AMBIGUOUS")]
)
def test_the_word_is_about_the_second_run(factor: float, word: str) -> None:
    found = only(against({ONE: 1.0}, {ONE: factor}))
    assert found.word == word
    assert found.ratio == pytest.approx(factor)
    assert found.median_s == pytest.approx((1.0, factor), rel=0.02)
    assert found.rounds == (8, 8)
    assert found.ci99 and found.ci95
    assert found.ci99[0] < found.ci95[0] < found.ratio < found.ci95[1] < found.ci99[1]


def test_proven_changes_come_first_then_the_largest() -> None:
    before = {ONE: 1.0, TWO: 1.0, THREE: 1.0}
    found = against(before, {ONE: 1.06, TWO: 0.7, THREE: 1.8})
    assert [each.id for each in found.cases] == [THREE.id, TWO.id, ONE.id]


@pytest.mark.parametrize(("fail_on", "beyond"), [(None, False), (0.05, True), (0.25, False)])
def test_a_case_is_beyond_the_limit_if_its_whole_interval_is(fail_on, beyond) -> None:
    assert only(against({ONE: 1.0}, {ONE: 1.3}, fail_on)).beyond is beyond
    assert not only(against({ONE: 1.0}, {ONE: 0.5}, fail_on)).beyond


def test_few_rounds_prove_nothing_whatever_the_ratio() -> None:
    before, after = side("A", {ONE: 1.0}), side("B", {ONE: 9.0}, rounds=2)
    found = only(compared(before, after, 0.05))
    assert (found.word, found.ci95, found.beyond) == ("AMBIGUOUS", None, False)
    assert found.ratio == pytest.approx(9.0, rel=0.02)
    assert found.reason and found.reason.message == "only 2 rounds in B"


@pytest.mark.parametrize("disturbed", ["A", "B"])
def test_a_disturbed_row_proves_nothing(disturbed: str) -> None:
    sides = side("A", {ONE: 1.0}), side("B", {ONE: 2.0})
    for each in sides:
        if each.name == disturbed:
            each.report.warnings.append(Warning("busy_machine", "busy", "wait", "row"))
    found = only(compared(*(RunSide(each.name, each.report) for each in sides), None))
    assert found.word == "AMBIGUOUS"
    assert found.reason and found.reason.message == f"busy machine in {disturbed}"


def test_a_rate_is_not_compared_with_a_latency() -> None:
    sides = side("A", {ONE: 1.0}), side("B", {ONE: 2.0})
    for each, counted in zip(sides, ("device", "host"), strict=True):
        candidate = each.report.candidates[ONE.id]
        clocks = Clocks(counted=counted, host_s=1.0, device_s=1.0, issue_s=None)
        candidate.blocks = [msgspec.structs.replace(b, clocks=clocks) for b in candidate.blocks]
    found = only(compared(*sides, 0.05))
    assert (found.word, found.ratio, found.beyond) == ("AMBIGUOUS", None, False)
    assert found.reason and found.reason.code == "other_clock"


def test_grouped_steps_are_not_compared_with_single_ones_on_a_cpu_either() -> None:
    sides = side("A", {ONE: 1.0}), side("B", {ONE: 2.0})
    sides[1].report.candidates[ONE.id].objective = "latency"
    found = only(compared(*sides, 0.05))
    assert found.reason and found.reason.code == "other_clock"


def test_rows_that_time_a_case_in_two_ways_are_not_mixed() -> None:
    def both(name: str, rates: int, latencies: int) -> RunSide:
        row = scenario(id="other", objective="latency")
        built = events({ONE: steady(1.0, rates)})
        return RunSide(name, Report.of(built + events({ONE: steady(1.5, latencies)}, row=row)[2:]))

    found = only(compared(both("A", 10, 4), both("B", 4, 10), None))
    assert (found.word, found.rounds) == ("SAME", (10, 4))
    assert found.ratio == pytest.approx(1.0, rel=0.02)


def test_a_case_of_two_rows_is_compared_by_the_clock_that_both_runs_have() -> None:
    row = scenario(id="other", objective="latency")
    rate, latency = events({ONE: steady(1.0, 8)}), events({ONE: steady(1.5, 8)}, row=row)
    before = RunSide("A", Report.of(rate + latency[2:]))
    found = only(compared(before, RunSide("B", Report.of(latency)), None))
    assert (found.word, found.median_s) == ("SAME", pytest.approx((1.5, 1.5), rel=0.02))


@pytest.mark.parametrize("carried", [{}, {"row": "earlier"}])
def test_a_carried_row_is_not_compared_with_itself(carried: dict[str, str]) -> None:
    def of(name: str, **rows: str) -> RunSide:
        first, *others = events({ONE: steady(1.0)})
        return RunSide(
            name, Report.of([msgspec.structs.replace(first, id=name, carried=rows), *others])
        )

    before, after = of("A", **carried), of("B", row=carried.get("row", "A"))
    found = only(compared(before, after, None))
    assert (found.word, found.ratio, found.ci99) == ("AMBIGUOUS", None, None)
    assert found.reason and found.reason.code == "same_run"
    assert only(compared(before, of("C", other="A"), None)).word == "SAME"


def test_a_failed_search_for_a_crossover_disturbs_no_row() -> None:
    sides = side("A", {ONE: 1.0}), side("B", {ONE: 2.0})
    sides[0].report.warnings.append(Warning("no_crossover", "ended early", "narrow it", "row"))
    again = RunSide("A", sides[0].report)
    assert only(compared(again, sides[1], None)).word == "SLOWER"


def test_a_step_with_other_work_has_no_ratio() -> None:
    sides = side("A", {ONE: 1.0}), side("B", {ONE: 2.0})
    candidate = sides[1].report.candidates[ONE.id]
    candidate.work = dataclasses.replace(candidate.work, flops=2e9)
    found = only(compared(*sides, None))
    assert (found.word, found.ratio) == ("AMBIGUOUS", None)
    assert found.reason and found.reason.code == "other_work"


def test_cases_of_one_run_are_listed() -> None:
    found = against({ONE: 1.0, TWO: 1.0}, {ONE: 1.0, THREE: 1.0})
    assert (found.only_in_a, found.only_here) == ([TWO.id], [THREE.id])


def test_the_noise_of_one_case_widens_all_of_its_run() -> None:
    calm = only(against({ONE: 1.0}, {ONE: 1.0}))
    noisy = report({ONE: steady(1.0), TWO: [[1.0] * 5, [3.0] * 5] * 4})
    found = compared(side("A", {ONE: 1.0}), RunSide("B", noisy), None).cases
    (wide,) = [each for each in found if each.id == ONE.id]
    assert calm.ci95 and wide.ci95
    assert wide.ci95[1] > 1.5 * calm.ci95[1]


# ----------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("after", "word"),
    [({ONE: 1.3, TWO: 1.0}, "CHANGED"), ({ONE: 1.04, TWO: 1.03}, "AMBIGUOUS")],
    ids=["reversed", "a coin toss"],
)
def test_another_pick_is_a_change_if_the_intervals_are_disjoint(after, word) -> None:
    found = against({ONE: 1.0, TWO: 1.03}, after)
    (verdict,) = found.verdicts
    assert (verdict.scenario, verdict.word) == ("row", word)
    assert verdict.picks == (ONE.id, TWO.id)
    here, there = verdict.ci95
    assert here and there
    assert (here[1] < there[0]) is (word == "CHANGED")


def test_the_answer_to_another_question_or_of_a_disturbed_row_is_no_change() -> None:
    sides = side("A", {ONE: 1.0, TWO: 1.03}), side("B", {ONE: 1.3, TWO: 1.0})
    (changed,) = compared(*sides, None).verdicts
    row = sides[1].report.rows["row"]
    latency = msgspec.structs.replace(row.verdict, objective="latency")
    row.verdict, was = latency, row.verdict
    (asked,) = compared(*sides, None).verdicts
    row.verdict = was
    sides[1].report.model = ModelReport(FACTS)
    (contents,) = compared(*sides, None).verdicts
    sides[1].report.model = None
    sides[0].report.warnings.append(Warning("busy_machine", "busy", "wait", "row"))
    (disturbed,) = compared(RunSide("A", sides[0].report), sides[1], None).verdicts
    words = [each.word for each in (changed, asked, contents, disturbed)]
    assert words == ["CHANGED", *["AMBIGUOUS"] * 3]


def test_a_pick_has_no_ratio_to_itself() -> None:
    sides = side("A", {ONE: 1.0, TWO: 2.0}), side("B", {ONE: 1.0, TWO: 2.0})
    row = sides[1].report.rows["row"]
    row.verdict = msgspec.structs.replace(row.verdict, choice="either")
    (verdict,) = compared(*sides, None).verdicts
    assert (verdict.word, verdict.ci95) == ("AMBIGUOUS", (None, None))


def test_an_equal_verdict_is_not_listed() -> None:
    assert against({ONE: 1.0, TWO: 2.0}, {ONE: 1.3, TWO: 2.6}).verdicts == []


def test_a_pick_that_the_other_run_lacks_is_ambiguous() -> None:
    (verdict,) = against({ONE: 1.0, TWO: 1.5}, {TWO: 1.5}).verdicts
    assert (verdict.word, verdict.ci95[1]) == ("AMBIGUOUS", None)


# ------------------------------------------------------------------ machines


def codes(found: Versus) -> list[str]:
    return [warning.code for warning in found.warnings]


def test_a_run_with_a_simulated_device_is_flagged() -> None:
    fake = case("fake:0-a")
    sides = side("A", {ONE: 1.0, fake: 0.1}), side("B", {ONE: 1.0, GPU: 0.1})
    found = compared(*sides, None)
    assert codes(found) == ["simulated"]
    assert found.warnings[0].message.startswith("A has simulated devices")
    assert [each.id for each in found.cases] == [ONE.id]
    (both,) = compared(sides[0], side("B", {ONE: 1.0, fake: 0.1}), None).warnings
    assert both.message.startswith("A and B have simulated devices")


def of_version(version: str) -> Report:
    found = report({ONE: steady(1.0)})
    tool = msgspec.structs.replace(found.started.tool, version=version)
    found.started = msgspec.structs.replace(found.started, tool=tool)
    return found


def test_runs_of_two_versions_are_flagged() -> None:
    one, two = RunSide("A", of_version("1")), RunSide("B", of_version("2"))
    assert codes(compared(one, two, None)) == ["other_version"]
    assert codes(compared(one, one, None)) == []


def test_two_machines_are_noticed() -> None:
    here, there = side("A", {ONE: 1.0}), side("B", {ONE: 1.0}, gpus=["cuda:0"])
    unknown = report({ONE: steady(1.0)})
    unknown.machine = None
    assert compared(here, here, None).same_machine
    assert not compared(here, there, None).same_machine
    assert not compared(RunSide("A", unknown), RunSide("B", unknown), None).same_machine


def test_a_machine_stays_the_same_where_a_run_may_use_less_of_it() -> None:
    here, less = side("A", {ONE: 1.0}), report({ONE: steady(1.0)})
    cpu = msgspec.structs.replace(less.machine.cpu, affinity_cores=2, usable_physical_cores=1)
    posed = [msgspec.structs.replace(machine("fake:0").gpus[0], simulated=True)]
    less.machine = msgspec.structs.replace(less.machine, cpu=cpu, gpus=posed)
    assert compared(here, RunSide("B", less), None).same_machine


@pytest.mark.parametrize(("uuid", "same"), [("GPU-1", True), ("GPU-2", False)])
def test_a_machine_is_known_by_its_gpus_where_its_host_name_changes(uuid: str, same: bool) -> None:
    def job(hostname: str, uuid: str) -> RunSide:
        found, here = report({ONE: steady(1.0)}), machine("cuda:0")
        gpus = [msgspec.structs.replace(here.gpus[0], uuid=uuid)]
        found.machine = msgspec.structs.replace(here, hostname=hostname, gpus=gpus)
        return RunSide(hostname, found)

    assert compared(job("job-1", "GPU-1"), job("job-2", uuid), None).same_machine == same


def test_other_code_or_inputs_have_no_ratio() -> None:
    def own(code: str, inputs: str) -> RunSide:
        found = side("A", {dataclasses.replace(ONE, workload="own"): 1.0})
        facts = CodeFacts("torch", "net:build", code, inputs)
        found.report.code = CodeReport(facts)
        return found

    same, other = (compared(own("c0de", "1"), own("c0de", which), None) for which in "12")
    assert only(same).ratio is not None
    assert (only(other).ratio, only(other).reason.code) == (None, "other_code")


def test_another_model_under_the_same_name_has_no_ratio() -> None:
    def of(sha256: str) -> RunSide:
        found = side("A", {ONE: 1.0})
        found.report.model = ModelReport(msgspec.structs.replace(FACTS, sha256=sha256))
        return found

    same, other = (compared(of("a"), of(sha256), None) for sha256 in "ab")
    assert only(same).ratio is not None
    assert (only(other).word, only(other).ratio) == ("AMBIGUOUS", None)
    assert only(other).reason.message == "the model, the code or its inputs differ"
