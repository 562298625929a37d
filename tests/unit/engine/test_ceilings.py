"""Ceilings: derived from a run, kept under its fingerprint, shown."""

import re
from types import SimpleNamespace
from typing import Any

import machines
import pytest
import simulated_run
from builders import ceilings as sample, changed, events, machine, scenario
from msgspec.structs import replace

from workbench import catalog
from workbench.contract import Case, Work
from workbench.engine import ceiling_store, ceilings
from workbench.engine.workers import NO_TURN
from workbench.export.view.ceilings import ceilings_text
from workbench.planning import ceiling_rows
from workbench.planning.request import Request
from workbench.records import events as ev
from workbench.records.document import Ceilings
from workbench.records.machine import Cache, Machine, Package, Software
from workbench.records.reason import NO_TIME, Reason, Warning
from workbench.report.report import Report

LLC = Cache(3, "unified", 1 << 25, 1)
HERE = replace(machine(), cpu=replace(machine().cpu, caches=[LLC]))
SOFTWARE = Software("3.11", "python", {"torch": Package("2.13.0", "CPU build")}, {})


def product(precision: str, device: str = "cpu") -> Case:
    threads = 8 if device == "cpu" else None
    return Case("matmul", device, "torch", precision, threads=threads, params={"n": 2048})


def bandwidth(kernel: str, mib: float) -> Case:
    return Case(
        "bandwidth", "cpu", "torch", "fp32", threads=8, params={"kernel": kernel, "mib": mib}
    )


def launch(wait: str) -> Case:
    return Case("launch", "cpu", "torch", "fp32", threads=8, params={"wait": wait})


def measured(works: dict[Case, tuple[Work, float]], **more) -> Report:
    """A run in which each case takes a constant time for its work."""
    blocks = {c: [[seconds] * 12] for c, (_, seconds) in works.items()}
    work = {c.id: work for c, (work, _) in works.items()}
    built = events(blocks, row=scenario(precisions=("fp32",)), **more)
    built = changed(built, ev.RacePlanned, work=work)
    return Report.of(changed(built, ev.HardwareDetected, machine=HERE))


RUN = measured(
    {
        product("fp32"): (Work(1.7e10, 5e7, 1, "products", 5e7), 0.1),
        product("bf16"): (Work(1.7e10, 5e7, 1, "products", 5e7), 0.05),
        bandwidth("copy", 256.0): (Work(None, 2 * 2.0**28, 2.0**29, "bytes", 2.0**29), 0.05),
        bandwidth("triad", 256.0): (
            Work(1e8, 3 * 2.0**28, 3 * 2.0**28, "bytes", 3 * 2.0**28),
            0.05,
        ),
        bandwidth("triad", 4.0): (Work(2e6, 3 * 2.0**22, 3 * 2.0**22, "bytes", 3 * 2.0**22), 1e-4),
        launch("no"): (Work(1, 4, 1, "launches", 4), 2e-6),
        launch("yes"): (Work(1, 4, 1, "launches", 4), 3e-6),
    }
)


def test_ceilings_are_what_each_kind_of_work_reached() -> None:
    found = ceilings.of_report(RUN, "abc")
    (device,) = found.devices
    assert found.fingerprint == "abc"
    assert device.peak_ops_per_s == pytest.approx({"fp32": 1.7e11, "bf16": 3.4e11})
    assert device.memory == pytest.approx({"copy": 2.0**29 / 0.05, "triad": 3 * 2.0**28 / 0.05})
    assert device.memory_bytes_per_s == pytest.approx(3 * 2.0**28 / 0.05)
    assert device.cache_bytes == 1 << 25
    assert device.cache_bytes_per_s == pytest.approx(3 * 2.0**22 / 1e-4)
    assert (device.launch_s, device.step_latency_s) == (2e-6, 3e-6)


def test_a_ceiling_is_the_rate_of_the_fastest_tenth() -> None:
    slow = measured({product("fp32"): (Work(1e10, 5e7, 1, "products", 5e7), 0.2)})
    (candidate,) = slow.candidates.values()
    candidate.blocks[0].samples_s[:3] = [0.1, 0.1, 0.1]  # the others take longer
    (device,) = ceilings.of_report(slow, "abc").devices
    assert device.peak_ops_per_s == pytest.approx({"fp32": 1e11})


def test_nothing_measured_gives_no_ceilings() -> None:
    empty = Report.of(events({product("fp32"): []}))
    assert ceilings.of_report(empty, "abc") is None


def test_a_faster_result_raises_its_ceiling_and_a_slower_one_does_not() -> None:
    low = ceilings.raised(sample("cpu", peak=1e11), RUN)
    assert low.devices[0].peak_ops_per_s == pytest.approx({"fp32": 1.7e11, "bf16": 3.4e11})
    high = sample("cpu", peak=1e12)
    assert ceilings.raised(high, RUN) == high


def test_an_impossible_result_raises_no_ceiling_and_gives_none() -> None:
    work = Work(1.7e10, 5e7, 1, "products", 5e7)
    impossible = measured({product("fp32"): (work, 1e-6)})  # 17 PFLOP/s
    low = sample("cpu", peak=1e11)
    assert ceilings.raised(low, impossible) == low
    [candidate] = impossible.candidates.values()
    candidate.state = "failed"
    assert ceilings.of_report(impossible, "abc").devices[0].peak_ops_per_s == {}


@pytest.mark.parametrize(("workload", "ranks"), [("conv_layers", 1), ("scaling", 8)])
def test_neither_convolutions_nor_many_gpus_raise_the_peak_of_one(workload, ranks) -> None:
    low = sample("cuda:0", peak=1e13)
    for name, count, raises in ((workload, ranks, False), ("matmul", 1, True)):
        case = Case(name, "cuda:0", "torch", "fp32")
        work = Work(1e12, None, 1, "products", 1.0, ranks=count)
        report = measured({case: (work, 0.05)}, gpus=["cuda:0"])  # 20 TFLOP/s
        assert (ceilings.raised(low, report) != low) == raises


def with_gpu(l2_cache_bytes: int | None = 50 << 20) -> Machine:
    here = machine("cuda:0")
    gpu = replace(here.gpus[0], l2_cache_bytes=l2_cache_bytes)
    return replace(here, cpu=HERE.cpu, gpus=[gpu])


def kept_or_measured(
    monkeypatch: pytest.MonkeyPatch,
    kept,
    seconds,
    *,
    budget_s=60.0,
    cut=(),
    emulated=(),
    warn=(),
    threads=(),
):
    """The ceilings of a run with `kept` ones, those it measured (by field) and those it saved.

    A step takes `seconds` in any case; time ran out for the fields in `cut`, and before the turn of
    those in `emulated`.
    """
    asked, saved = [], []
    monkeypatch.setattr(ceiling_store, "save", saved.append)

    def race(rows, share):
        cases = [case for row in rows for case in row.cases]
        asked.extend(f"{case.device} {ceilings._field(case)}" for case in cases)
        work = {c: (catalog.load(c.workload).work(c), seconds) for c in cases}
        report = measured(work, gpus=sorted({c.device for c in cases} - {"cpu"}))
        report.machine = with_gpu()
        for case in cases:
            if ceilings._field(case) in cut:
                report.candidates[case.id].reason = NO_TURN
            if ceilings._field(case) in emulated:
                report.candidates[case.id].blocks.clear()
                report.candidates[case.id].reason = Reason(NO_TIME, "this CPU has no FP16")
        report.warnings.extend(warn)
        return report

    request = Request(budget_s=budget_s, threads=threads)
    context: Any = SimpleNamespace(request=request, machine=with_gpu())
    lacking = ceilings.missing(kept, context)
    found = ceilings.completed(kept, lacking, "abc", context, race)
    return found, asked, saved


def fields(found: Ceilings) -> set[str]:
    return {f"{d.device} {precision}" for d in found.devices for precision in d.peak_ops_per_s}


def test_only_what_is_missing_is_measured_and_kept_with_the_rest(monkeypatch) -> None:
    kept = sample("cpu", "cuda:0", peak=1e9)  # FP32 and BF16; no fast path for FP16
    found, asked, saved = kept_or_measured(monkeypatch, kept, 0.01)
    products = {field for field in asked if "bandwidth" not in field}
    assert products == {
        "cpu fp64", "cpu int8", "cuda:0 tf32", "cuda:0 fp8", "cuda:0 int8", "cuda:0 fp64",
    }  # fmt: skip
    assert saved == [found]
    assert fields(found) == products | fields(kept)
    assert found.devices[0].peak_ops_per_s["fp32"] == 1e9, "as it was kept"
    assert found.devices[1].cache_bytes == 50 << 20 and found.devices[1].cache_bytes_per_s
    again, asked, saved = kept_or_measured(monkeypatch, found, 0.01)
    assert (again, asked, saved) == (found, [], [])


def test_a_ceiling_that_was_cut_short_is_measured_again_and_the_others_are_kept(
    monkeypatch,
) -> None:
    found, _, saved = kept_or_measured(monkeypatch, None, 0.01, cut=("fp8", "fp64"))
    assert saved == [found]
    assert {"cuda:0 bf16", "cuda:0 int8", "cpu fp32"} <= fields(found)
    assert not {"cuda:0 fp8", "cuda:0 fp64", "cpu fp64"} & fields(found)
    _, asked, _ = kept_or_measured(monkeypatch, found, 0.01)
    assert set(asked) == {"cuda:0 fp8", "cuda:0 fp64", "cpu fp64"}


def test_a_precision_that_the_cpu_emulates_and_time_ran_out_for_is_measured_next_time(
    monkeypatch,
) -> None:
    found, _, _ = kept_or_measured(monkeypatch, None, 0.01, emulated=("fp64",))
    _, asked, _ = kept_or_measured(monkeypatch, found, 0.01)
    assert set(asked) == {"cpu fp64", "cuda:0 fp64"}


def test_a_bandwidth_that_was_cut_short_once_is_measured_once_more(monkeypatch) -> None:
    """`workbench ceilings` keeps its reasons as well, and a bandwidth had one for ever."""
    found, _, _ = kept_or_measured(monkeypatch, None, 0.01)
    cpu, gpu = found.devices
    rows = ceiling_rows.requested_rows(Request(devices=("cpu",)), HERE, brief=True)
    field = ceilings._field(rows[1].cases[-1])
    cut = replace(cpu, cache_bytes_per_s=None)
    kept = replace(found, devices=[cut, gpu])
    found, asked, _ = kept_or_measured(monkeypatch, kept, 0.01)
    assert asked == [f"cpu {field}"]
    assert found.devices[0].cache_bytes_per_s and not found.devices[0].unavailable
    assert kept_or_measured(monkeypatch, found, 0.01)[1] == []


def test_fewer_threads_than_the_machine_has_set_no_ceilings_for_later_runs(monkeypatch) -> None:
    found, _, saved = kept_or_measured(monkeypatch, None, 0.01, threads=(1,))
    assert found is not None and saved == []
    kept = sample("cpu", peak=1e9)
    assert kept_or_measured(monkeypatch, kept, 0.01, threads=(1,)) == (kept, [], [])
    fast = measured({product("fp32"): (Work(2e9, None, 1, "products", 1.0), 1e-2)})
    fast.ceilings = kept
    for lasting in (None, kept):
        monkeypatch.setattr(ceiling_store, "load", lambda mark, lasting=lasting: lasting)
        monkeypatch.setattr(ceiling_store, "save", saved.append)
        for asked in (Request(ceilings=True, threads=(1,)), Request(threads=(1,))):
            context: Any = SimpleNamespace(request=asked, report=fast)
            assert ceilings.measured_or_raised("abc", context) is not None
            assert saved == ([] if lasting is None else [ceilings.raised(kept, fast)])
            saved.clear()


def test_a_device_that_an_earlier_run_left_out_gets_its_ceilings(monkeypatch) -> None:
    found, asked, _ = kept_or_measured(monkeypatch, sample("cpu"), 0.01)
    assert "cuda:0 bf16" in asked and "cpu bf16" not in asked
    assert [device.device for device in found.devices] == ["cpu", "cuda:0"]


def test_disturbed_ceilings_serve_their_run_only_and_short_runs_measure_none(monkeypatch) -> None:
    noise = Warning("busy_machine", "others compute", "wait", "matmul")
    found, _, saved = kept_or_measured(monkeypatch, None, 0.01, warn=[noise])
    assert found is not None and saved == []
    kept = sample("cpu")
    assert kept_or_measured(monkeypatch, kept, 0.01, budget_s=20.0) == (kept, [], [])


def test_a_warning_that_every_run_here_has_does_not_keep_ceilings_from_later_runs(
    monkeypatch,
) -> None:
    quota = Warning("cgroup_throttled", "the container's quota held it back", "raise it", "matmul")
    found, _, saved = kept_or_measured(monkeypatch, None, 0.01, warn=[quota])
    assert saved == [found]
    assert kept_or_measured(monkeypatch, found, 0.01, warn=[quota])[1] == []


class Throttled(simulated_run.SimulatedPool):
    """A GPU that its power limit slows down to 80 % after half a second of load."""

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        found = super().block(request)
        if request["seconds"] > 0.5 and request["case"].startswith("matmul"):
            found["samples_s"] = [second / 0.8 for second in found["samples_s"]]
        return found


def test_workbench_ceilings_tells_burst_from_sustained() -> None:
    here, software = machines.gpu_server()
    simulated = simulated_run.SimulatedMachine(here, software)
    events = simulated_run.run(Request(ceilings=True), simulated, pool=Throttled)
    [known] = [event.ceilings for event in events if isinstance(event, ev.CeilingsKnown)]
    cpu, gpu = known.devices
    assert not cpu.sustained_ops_per_s
    assert {"bf16", "fp16"} <= set(gpu.sustained_ops_per_s) <= set(gpu.peak_ops_per_s)
    for precision, rate in gpu.sustained_ops_per_s.items():
        assert rate == pytest.approx(0.8 * gpu.peak_ops_per_s[precision], rel=0.05)
    text = ceilings_text(known)
    assert "burst: fastest 10% of samples" in text
    [line] = [line for line in text.splitlines() if line.startswith("BF16 sustained, 5 s")]
    assert "TFLOP/s" in line
    [end] = [event for event in events if isinstance(event, ev.RunFinished)]
    assert end.duration_s < 60.0


def test_the_fingerprint_changes_with_what_ceilings_depend_on() -> None:
    plain = ceiling_store.fingerprint(HERE, SOFTWARE)
    assert plain == ceiling_store.fingerprint(HERE, SOFTWARE)
    fewer = replace(HERE, cpu=replace(HERE.cpu, effective_cores=4))
    cpu = replace(HERE.cpu, usable_physical_cores=4)
    halved = replace(HERE, cpu=cpu)
    other = replace(SOFTWARE, environment={"OPENBLAS_CORETYPE": "Haswell"})
    newer = replace(SOFTWARE, packages={"torch": Package("2.14.0")})
    marks = {
        plain,
        ceiling_store.fingerprint(fewer, SOFTWARE),
        ceiling_store.fingerprint(HERE, other),
        ceiling_store.fingerprint(HERE, newer),
        ceiling_store.fingerprint(halved, SOFTWARE),
        ceiling_store.fingerprint(replace(HERE, mps=True), SOFTWARE),
    }
    assert len(marks) == 6
    busier = replace(HERE, memory=replace(HERE.memory, available_bytes=1))
    assert ceiling_store.fingerprint(busier, SOFTWARE) == plain
    for job in ("1", "2"):
        names = ("SLURM_JOB_ID", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS")
        in_job = replace(SOFTWARE, environment=dict.fromkeys(names, job))
        assert ceiling_store.fingerprint(HERE, in_job) == plain


def test_what_lacks_a_device_or_was_cut_short_is_not_whole() -> None:
    here = with_gpu()
    found = sample("cpu", "cuda:0")
    cpu, gpu = found.devices
    gpu = replace(gpu, name=here.gpus[0].name)
    for devices, whole in (
        ([cpu, gpu], True),
        ([cpu], False),
        ([gpu], False),
    ):
        kept = replace(found, devices=devices)
        assert ceiling_store.is_whole(kept, here) is whole
    alone = replace(found, devices=[cpu])
    assert ceiling_store.is_whole(alone, HERE)
    assert not ceiling_store.is_whole(replace(alone, complete=False), HERE)


def test_ceilings_are_kept_and_damage_is_no_crash() -> None:
    kept = sample("cpu")
    assert ceiling_store.load(kept.fingerprint) is None
    ceiling_store.save(kept)
    assert ceiling_store.load(kept.fingerprint) == kept
    file = ceiling_store.folder() / f"{kept.fingerprint}.json"
    content = file.read_bytes()
    absurd = re.sub(rb'("peak_ops_per_s":{"\w+":)', rb'\g<1>1e300,"x":', content)
    assert absurd != content
    for damaged in (b"{", content.replace(b"Test", b"\xff"), absurd):
        file.write_bytes(damaged)
        assert ceiling_store.load(kept.fingerprint) is None


def test_the_text_holds_each_figure_and_the_reason_for_a_gap() -> None:
    text = ceilings_text(sample("cpu", "cuda:0", peak=2e11))
    assert "FP32" in text
    assert "200 GFLOP/s" in text
    assert "cpu fp16: no fast path" in text
    assert "ridge point       20.0 FLOP/byte  20.0 FLOP/byte" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "INT8" not in text  # no device has one


def measured_again(monkeypatch, kept: Ceilings, *, again: bool, warn=(), late=False):
    """The ceilings that `workbench ceilings` shows and keeps, and its warnings.

    The run measures 50 TFLOP/s on the CPU, and with `late` has no time for BF16.
    """
    saved: list[Ceilings] = []
    monkeypatch.setattr(ceiling_store, "load", lambda _: kept)
    monkeypatch.setattr(ceiling_store, "save", saved.append)
    monkeypatch.setattr(ceilings, "_with_sustained", lambda found, _: found)
    work = Work(5e10, 5e7, 1, "products", 5e7)
    report = measured(
        {product("fp32"): (work, 1.0), product("bf16"): (work, 1.0), launch("no"): (work, 2e-6)}
    )
    report.rows["matmul"] = report.rows.pop("row")
    if late:
        candidate = report.candidates[product("bf16").id]
        candidate.blocks.clear()
        candidate.reason = NO_TURN
    report.warnings.extend(warn)
    request = Request(ceilings=True, again=again)

    def record(kind: Any, **fields: Any) -> None:
        report.apply(kind(50.0, **fields))

    context: Any = SimpleNamespace(request=request, report=report, record=record)
    found = ceilings.measured_or_raised("abc", context)
    assert found is not None and saved in ([found], [])
    return found, report.warnings


@pytest.mark.parametrize(
    ("again", "codes", "lowers"),
    [
        (False, (), False),
        (True, (), True),
        (True, ("busy_machine",), False),
        (True, ("clock_low",), True),  # this machine's own
    ],
)
def test_only_an_undisturbed_second_measurement_lowers_a_ceiling(
    monkeypatch, again, codes, lowers
) -> None:
    kept = sample("cpu", peak=1e11)
    warn = [Warning(code, "others compute", "wait", "matmul") for code in codes]
    found, _ = measured_again(monkeypatch, kept, again=again, warn=warn)
    (device,) = found.devices
    assert device.peak_ops_per_s == {
        "fp32": 5e10 if lowers else 1e11,
        "bf16": 5e10 if lowers else 2e11,
    }
    assert device.launch_s == (2e-6 if again else 1e-6), "its row ran undisturbed"


def test_what_was_not_measured_this_time_is_named_with_the_time_of_the_old_value(
    monkeypatch,
) -> None:
    before = "2026-11-20T09:00:00.000Z"
    kept = replace(sample("cpu", peak=1e10), measured_at=before)
    found, warnings = measured_again(monkeypatch, kept, again=True, late=True)
    assert found.devices[0].peak_ops_per_s == {"fp32": 5e10, "bf16": 2e10}
    (warning,) = warnings
    assert warning.message == "not measured this time, as time ran out: cpu bf16"
    first, _ = measured_again(monkeypatch, None, again=False, late=True)
    assert "bf16" not in first.devices[0].unavailable
    assert not first.complete, "so the next run measures it"
    assert found.since == before
    first, *_ = ceilings_text(found).splitlines()
    assert first.startswith("measured 2026-11-20 09:00 to 2026-11-21 00:00 UTC")


def test_a_reason_goes_once_its_ceiling_is_measured(monkeypatch) -> None:
    (cpu,) = sample("cpu", peak=1e10).devices
    crashed = {ceilings._field(launch(wait)): "it crashed" for wait in ("no", "yes")}
    kept = replace(sample("cpu", peak=1e10), devices=[replace(cpu, unavailable=crashed)])
    found, _ = measured_again(monkeypatch, kept, again=True)
    assert [*found.devices[0].unavailable] == [ceilings._field(launch("yes"))]


def test_first_ceilings_that_were_disturbed_are_measured_again_next_time(monkeypatch) -> None:
    noise = Warning("busy_machine", "others compute", "wait", "matmul")
    for warn, complete in (((), True), ([noise], False)):
        found, _ = measured_again(monkeypatch, None, again=False, warn=warn)
        assert (found.complete, found.since) == (complete, None)
