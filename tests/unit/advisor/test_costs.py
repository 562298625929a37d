"""Prices as they are given, and what each candidate costs in money and in joules."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from builders import block, case, machine, scenario, steady
from hypothesis import given, strategies as st
from money import priced_report, watts

from workbench.advisor.costs import COUNTER, READINGS, one_of, step_energy
from workbench.advisor.verdict import decide
from workbench.export.view.answers import advice_facts, cost_lines, cost_notes
from workbench.planning import admission, scenarios
from workbench.planning.announcing import planned
from workbench.planning.cases import fill_cases
from workbench.planning.prices import LEAST, MOST, given_prices
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.planning.usage import UsageError
from workbench.records.reason import Reason
from workbench.records.verdict import Verdict
from workbench.report.candidate import ENERGY, price_of
from workbench.report.from_document import report_of

CPU, CPU_B, GPU = case("cpu-a"), case("cpu-b"), case("cuda:0-a")
RACED = {CPU: steady(0.010), CPU_B: steady(0.012), GPU: steady(0.001)}
DEVICES = st.sampled_from(["cpu", "gpu", "cuda:0", "cuda:12", "fake:0"])
PRICES = st.dictionaries(DEVICES, st.floats(LEAST, MOST), max_size=5)


def verdict(blocks=RACED, row=None, **options) -> Verdict:
    row = row or scenario()
    return decide(priced_report(blocks, row=row, **options), row)


def best(found: Verdict, objective: str):
    return next(each for each in found.by_objective if each.objective == objective)


# ------------------------------------------------------------------ prices


@given(PRICES)
def test_prices_read_as_they_are_written(prices: dict[str, float]) -> None:
    assert given_prices([f"{device}={price!r}" for device, price in prices.items()], None) == prices


@given(st.text(max_size=20) | st.builds("{}={}".format, DEVICES, st.text(max_size=8)))
def test_any_text_is_a_price_or_one_line_that_says_why_not(text: str) -> None:
    try:
        found = given_prices([text], None)
    except UsageError as error:
        assert "\n" not in str(error)
        assert "--price" in str(error)
    else:
        assert all(LEAST <= price <= MOST for price in found.values())


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["cpu=-1"], "not cpu=-1.0"),
        (["cpu=0"], "not cpu=0.0"),
        (["gpu=nan"], "not gpu=nan"),
        (["gpu=inf"], "not gpu=inf"),
        (["gpu=cheap"], "'cheap' is not a number"),
        (["gpu"], "DEVICE=PER_HOUR"),
        (["gpus=1"], "did you mean gpu?"),
        (["fake:0@8=1"], "unknown device"),
        (["cpu=1", "cpu=1"], "given twice"),
    ],
)
def test_a_wrong_price_says_what_is_wrong(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        given_prices(texts, None)
    assert message in str(error.value)


def test_a_file_of_prices_and_an_option_that_goes_before_it(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('[per_hour]\ncpu = 0.10\ngpu = 3\n"cuda:1" = 1.2\n')
    assert given_prices([], str(file)) == {"cpu": 0.10, "gpu": 3.0, "cuda:1": 1.2}
    assert given_prices(["gpu=2.99"], str(file)) == {"cpu": 0.10, "gpu": 2.99, "cuda:1": 1.2}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[per_hour]\ncpu = = 1\n", "line 2"),
        (b"[per_hour]\ncuda:1 = 1\n", "line 2"),
        (b"[per_hour]\ncpu = 1\ncpu = 2\n", "line 3"),
        (b"", "one table [per_hour]"),
        (b"cpu = 1\n", "unexpected 'cpu'"),
        (b"per_hour = 3\n", "it has none"),
        (b"[per_hour]\ncpu = -0.5\n", "not cpu=-0.5"),
        (b"[per_hour]\ncpu = nan\n", "line 2: cpu = nan is not finite"),
        (b"[per_hour]\ncpu = true\n", "cpu: True is not a number such as 2.99"),
        (b'[per_hour]\ncpu = "1"\n', "cpu: '1' is not a number"),
        (b"[per_hour]\ntpu = 1\n", "unknown device"),
        (b"[per_hour]\ncpu = 1" + b"0" * 12, "a price must be between"),
        (b"[per_hour]\ncpu = 1" + b"0" * 400, "line 2: cpu: the number has more than 64 bits"),
        (b"[per_hour]\ncpu = 1" + b"0" * 5000, "invalid number or date"),
        (b"\xff\xfe", "line 1: this is not UTF-8 text"),
    ],
)
def test_a_broken_file_of_prices_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError) as error:
        given_prices([], str(file))
    assert message in str(error.value)
    assert "prices.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone.toml"):
        with pytest.raises(UsageError, match="cannot be read"):
            given_prices([], str(path))


def test_the_price_of_a_device_goes_before_that_of_its_kind() -> None:
    prices = {"gpu": 3.0, "cuda:1": 1.0}
    assert price_of("cuda:0", prices, gpus=1) == 3.0
    assert price_of("cuda:1", prices, gpus=1) == 1.0
    assert price_of("cuda:1", prices, gpus=4) == 4.0
    assert price_of("cpu", prices, gpus=1) is None
    assert price_of("cpu", {"cpu": 0.1}, gpus=4) == 0.1  # the ranks share one machine


def test_prices_are_checked_before_anything_runs_and_go_into_the_plan() -> None:
    with pytest.raises(UsageError, match="--price"):
        resolve(Request(prices=("cpu=-1",)), {})
    request = Request(scenarios=("branching",), prices=("cpu=0.1",))
    (row,) = resolve(request, scenarios.load())
    fill_cases([row], request, machine())
    event = planned(row, request, 0.0)
    assert event.prices == {"cpu": 0.1}
    assert "--price cpu=0.1" in event.reproduce


def test_a_file_of_prices_is_read_once_whatever_becomes_of_it_in_the_run(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text("[per_hour]\ncpu = 0.10\n")
    request = Request(scenarios=("branching",), price_file=str(file))
    (row,) = resolve(request, scenarios.load())
    file.write_text("half a li")
    fill_cases([row], request, machine())
    assert planned(row, request, 0.0).prices == {"cpu": 0.1}
    assert planned(replace(row, point={"n": 8}), request, 0.0).prices == {"cpu": 0.1}


# ------------------------------------------------------------------- costs


def test_a_plain_verdict_needs_no_more_words() -> None:
    found = verdict()
    assert (found.by_objective, found.costs, found.prices) == ([], [], {})
    assert advice_facts(found) == []


def test_a_million_items_cost_their_hours() -> None:
    found = verdict(prices={"cpu": 0.36, "gpu": 36.0})
    by_id = {cost.id: cost for cost in found.costs}
    # 10 ms for 64 samples: 15,625 steps for a million, 156.25 s, at 0.36 an hour.
    assert by_id[CPU.id].per_million == pytest.approx(0.015625, rel=0.01)
    assert by_id[GPU.id].per_million == pytest.approx(0.15625, rel=0.01)
    assert by_id[CPU.id].joules_per_item is None


def test_the_fastest_is_not_always_the_cheapest() -> None:
    found = verdict(prices={"cpu": 0.36, "gpu": 36.0})
    fastest, cheapest = best(found, "fastest"), best(found, "cheapest")
    assert (fastest.pick, fastest.unit) == (found.pick, "s/step") == (GPU.id, "s/step")
    assert fastest.ratio == found.pick_ratio
    assert (cheapest.pick, cheapest.runner_up) == (CPU.id, CPU_B.id)
    assert cheapest.unit == "per million samples"
    assert cheapest.ratio_ci95[0] < 1.2 < cheapest.ratio_ci95[1]
    assert best(found, "most_frugal").unknown.code == "no_energy"


def test_between_devices_the_ratio_is_that_of_times_and_of_prices() -> None:
    found = verdict({CPU: steady(0.010), GPU: steady(0.001)}, prices={"cpu": 0.5, "gpu": 3.0})
    cheapest = best(found, "cheapest")
    factor = 0.5 / 3.0
    assert cheapest.pick == GPU.id
    assert cheapest.ratio == pytest.approx(found.device_ratio * factor)
    expected = tuple(end * factor for end in found.device_ratio_ci95)
    assert cheapest.ratio_ci95 == pytest.approx(expected, rel=1e-6)


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0.01, 100))
def test_another_currency_changes_no_pick_and_no_ratio(cpu: float, gpu: float, rate: float) -> None:
    one = best(verdict(prices={"cpu": cpu, "gpu": gpu}), "cheapest")
    other = best(verdict(prices={"cpu": cpu * rate, "gpu": gpu * rate}), "cheapest")
    if abs(one.ratio - 1) > 1e-9:
        assert other.pick == one.pick
    assert other.ratio == pytest.approx(one.ratio)
    assert other.value == pytest.approx(one.value * rate)


def test_without_a_price_for_each_device_the_cheapest_is_unknown() -> None:
    found = verdict(prices={"cpu": 0.1})
    cheapest = best(found, "cheapest")
    assert cheapest.pick is None
    texts = [fact.text.plain for fact in advice_facts(found)]
    assert any("--price gpu=PER_HOUR" in text for text in texts)
    assert {cost.id: cost.per_million is None for cost in found.costs}[GPU.id]


def test_of_whole_runs_the_start_is_paid_for_too() -> None:
    row = scenario(objective="time_to_result")
    found = verdict({CPU: steady(1.0)}, row=row, prices={"cpu": 3600.0})
    (cost,) = found.costs
    assert cost.per_million == pytest.approx(2.0 * 1e6 / 64, rel=0.01)  # import 1 s and run 1 s
    assert best(found, "fastest").unit == "s/run"
    assert best(found, "fastest").value == pytest.approx(2.0, rel=0.01)


def test_the_price_of_a_whole_run_is_as_uncertain_as_its_start() -> None:
    row = scenario(objective="time_to_result")
    found = verdict({CPU: steady(0.010), CPU_B: steady(0.050)}, row=row, prices={"cpu": 3600.0})
    fastest, cheapest = best(found, "fastest"), best(found, "cheapest")
    assert fastest.ratio_ci95 is not None
    assert cheapest.ratio_ci95 == pytest.approx(fastest.ratio_ci95)


# ------------------------------------------------------------------ energy


def test_joules_by_the_counter_go_before_those_by_readings() -> None:
    power = {
        CPU: watts(read=50.0),
        CPU_B: watts(counted=80.0, read=10.0),
        GPU: watts(counted=640.0),
    }
    found = verdict(power=power)
    by_id = {cost.id: cost for cost in found.costs}
    assert by_id[CPU.id].joules_from == READINGS
    assert by_id[CPU_B.id].joules_from == by_id[GPU.id].joules_from == COUNTER
    assert by_id[CPU_B.id].joules_per_item == pytest.approx(80 * 0.012 / 64, rel=0.01)
    frugal = best(found, "most_frugal")
    assert (frugal.pick, frugal.runner_up, frugal.unit) == (CPU.id, GPU.id, "J/sample")
    assert frugal.ratio == pytest.approx(0.64 / 0.5, rel=0.01)
    assert frugal.ratio_ci95 is None
    assert [each.objective for each in found.by_objective] == ["fastest", "most_frugal"]


def test_rapl_around_the_blocks_goes_before_readings() -> None:
    report = priced_report({CPU: steady(1.0)}, power={CPU: watts(read=50.0)})
    (candidate,) = report.rows["row"].candidates
    candidate.blocks[0].metrics[ENERGY] = 30.0
    assert step_energy(candidate) == (30.0, COUNTER)


def test_where_one_kind_of_device_is_not_read_there_is_no_most_frugal() -> None:
    found = verdict(power={GPU: watts(counted=300.0)}, prices={"cpu": 1.0, "gpu": 2.0})
    assert "of the CPU" in best(found, "most_frugal").unknown.message
    assert any(cost.joules_per_item for cost in found.costs)
    assert verdict(power={GPU: watts(counted=300.0)}).by_objective == []


GPU_B = case("cuda:0-b")
PAIR = {CPU: steady(0.010), GPU: steady(0.001), GPU_B: steady(0.004)}


def test_where_the_fastest_of_a_device_was_not_read_there_is_no_most_frugal() -> None:
    found = verdict(PAIR, power={CPU: watts(read=50.0), GPU_B: watts(read=300.0)})
    assert found.by_objective == []
    priced = {"cpu": 1.0, "gpu": 2.0}
    found = verdict(PAIR, power={CPU: watts(read=50.0), GPU_B: watts(read=300.0)}, prices=priced)
    assert "cuda:0 torch fp32" in best(found, "most_frugal").unknown.message


def test_an_unread_candidate_and_two_kinds_of_sensor_are_mentioned() -> None:
    row, power = scenario(), {CPU: watts(read=50.0), GPU: watts(counted=640.0)}
    report = priced_report(PAIR, power=power)
    report.candidates[GPU_B.id].reason = Reason("beaten", "4x")
    found = decide(report, row)
    assert best(found, "most_frugal").pick == CPU.id
    sensors, unread = cost_notes(found)
    assert READINGS in sensors
    assert COUNTER in sensors
    assert "No power reading for cuda:0 torch fp32" in unread
    assert {sensors, unread} <= {fact.text.plain for fact in advice_facts(found)}
    alike = verdict(power={c: watts(read=50.0) for c in RACED})
    assert cost_notes(alike) == []


# --------------------------------------------------- a row that counts cost


def test_cost_is_the_price_of_the_seconds() -> None:
    row = scenario(objective="cost")
    (measured,) = priced_report({CPU: steady(2.0, 3)}, row=row).candidates.values()
    assert measured.rounds() == {}
    measured.price_per_hour = 1800.0
    assert measured.rounds() == pytest.approx(
        {number: step_s / 2 for number, step_s in measured.step_rounds().items()}
    )


def test_a_row_may_count_cost() -> None:
    row = scenario(objective="cost")
    found = verdict(row=row, prices={"cpu": 0.1, "gpu": 10.0})
    assert (found.choice, found.pick) == ("cpu", CPU.id)
    assert found.device_ratio == pytest.approx(0.1, rel=0.02)
    assert best(found, "fastest").pick == GPU.id
    assert "in cost" in found.reasons[0]


def test_a_candidate_without_a_price_is_not_raced_for_cost() -> None:
    assert admission.unpriced(GPU, "throughput", None) is None
    assert admission.unpriced(GPU, "cost", 1.0) is None
    reason = admission.unpriced(GPU, "cost", None)
    assert "add --price gpu=" in reason.message


# ------------------------------------------------------------------- words


def test_fastest_cheapest_and_most_frugal_stand_side_by_side() -> None:
    power = {CPU: watts(read=50.0), GPU: watts(counted=640.0)}
    raced = {CPU: steady(0.01), GPU: steady(0.0015)}
    found = verdict(raced, prices={"cpu": 0.36, "gpu": 36.0}, power=power)
    lines = dict(cost_lines(found))
    assert list(lines) == ["fastest", "cheapest", "most frugal"]
    assert lines["fastest"].startswith("cuda:0 torch fp32, 1.50 ms/step; ")
    assert ", 0.0156 per million samples; " in lines["cheapest"]
    assert " mJ/sample; " in lines["most frugal"]
    assert lines["most frugal"].endswith(" by about 1.92x")


def test_a_99th_percentile_has_one_value_everywhere() -> None:
    row = scenario(objective="latency_p99")
    calm, burst = [[0.010] * 100 for _ in range(6)], [0.010] * 60 + [0.080] * 40
    report = priced_report(
        {CPU: [*calm, burst], CPU_B: [[0.050] * 100] * 7}, row=row, prices={"cpu": 1.0}
    )
    found, first = decide(report, row), report.candidates[CPU.id]
    p99_s = report.statistics(first).p99_s
    assert first.value == p99_s == 0.080  # one round of seven was disturbed
    assert best(found, "fastest").pick == CPU_B.id
    assert best(found, "fastest").value == 0.050
    assert found.pick_ratio == pytest.approx(0.080 / 0.050)
    assert found.pick_ratio_ci95 is not None and found.pick_ratio_ci95[0] < 1


@pytest.mark.parametrize(
    ("items", "one"), [("samples", "sample"), ("launches", "launch"), ("bytes", "byte")]
)
def test_one_of_many(items: str, one: str) -> None:
    assert one_of(items) == one


@given(PRICES, st.sampled_from(["throughput", "time_to_result", "cost", "latency_p99"]))
def test_a_verdict_with_prices_follows_again_from_its_document(prices, objective: str) -> None:
    row = scenario(objective=objective)
    report = priced_report(RACED, prices=prices, power={CPU: watts(read=50.0)}, row=row)
    found = decide(report, row)
    report.rows["row"].verdict = found
    written = msgspec.json.encode(report.document())
    document = msgspec.json.decode(written, type=type(report.document()))
    assert decide(report_of(document), row) == found


@pytest.mark.parametrize(
    ("objective", "measure"),
    [("latency", "fastest"), ("cost", "cheapest"), ("energy", "most_frugal")],
)
def test_the_best_by_the_objective_of_the_row_is_its_pick(objective: str, measure: str) -> None:
    """Three that drifted, each slower than the next; but one has been shown to be slower."""
    row, third = scenario(objective=objective), case("cpu-c")
    built = priced_report(
        {CPU: steady(1.0), CPU_B: steady(1.0), third: steady(1.0)}, row=row, prices={"cpu": 1.0}
    )
    early, middle, late = range(3), range(10, 13), range(20, 23)
    times = {
        CPU: {**dict.fromkeys(early, 1.0), **dict.fromkeys(middle, 1.1)},
        CPU_B: {**dict.fromkeys(early, 1.05), **dict.fromkeys(late, 1.0)},
        third: {**dict.fromkeys(middle, 1.0), **dict.fromkeys(late, 1.2)},
    }
    for each, rounds in times.items():
        built.candidates[each.id].blocks = [block(each, n, [s] * 5) for n, s in rounds.items()]
        for measured in built.candidates[each.id].blocks:
            measured.metrics[ENERGY] = 10 * measured.samples_s[0]
    built.candidates[CPU_B.id].beaten_by = CPU.id
    found = decide(built, row)
    assert (found.pick, best(found, measure).pick) == (CPU.id, CPU.id)


def test_the_next_that_left_after_two_turns_is_named_with_the_one_it_was_behind() -> None:
    built = priced_report({CPU: steady(1.0), CPU_B: steady(3.0, 2)}, prices={"cpu": 1.0})
    text = "at least 2.97x slower than cpu torch fp32 t8 in its best of two turns"
    built.candidates[CPU_B.id].reason = Reason("far_slower", text)
    shown = dict(cost_lines(decide(built, scenario())))
    assert shown["fastest"].endswith(f"; cpu torch fp32 t8 was eliminated early ({text})")
