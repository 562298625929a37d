"""Joules by the counters of the processor's packages, and what counts as energy or memory."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import case, context, report, scenario, steady
from fakes import CPU_A, ManualClock

from workbench.engine import blocks
from workbench.engine.blocks import BlockRunner, mean_power_w
from workbench.engine.schedule import PreparedCase
from workbench.machine.host.readings import package_energy_j
from workbench.pool.answers import Block
from workbench.pool.pool import Answer
from workbench.pool.worker_process import WorkerKey
from workbench.report.candidate import ENERGY
from workbench.report.report import Report
from workbench.stats.objectives import OBJECTIVES, OF_MODELS as ASKED


def powercap(root: Path, **counters: int | None) -> Path:
    """A sysfs with these RAPL zones; None: one that cannot be read."""
    for name, value in counters.items():
        zone = root / "sys/class/powercap" / name.replace("_", ":").replace("intel:", "intel-")
        zone.mkdir(parents=True)
        if value is not None:
            (zone / "energy_uj").write_text(f"{value}\n")
    return root


def test_packages_add_up_and_their_parts_do_not_count_twice(tmp_path: Path) -> None:
    root = powercap(
        tmp_path,
        intel_rapl_0=2_500_000,
        intel_rapl_1=1_500_000,
        **{"intel_rapl_0_0": 900_000, "intel_rapl_0_1": 100_000},
    )
    assert package_energy_j(root) == ([2.5, 1.5], "")


def test_where_there_is_no_counter_it_says_so(tmp_path: Path) -> None:
    energy_j, why = package_energy_j(tmp_path)
    assert energy_j is None
    assert "no RAPL energy counter" in why


def test_a_counter_that_only_root_may_read(tmp_path: Path) -> None:
    energy_j, why = package_energy_j(powercap(tmp_path, intel_rapl_0=1, intel_rapl_1=None))
    assert energy_j is None  # half of the machine would be half of the truth
    assert "only root" in why


class Counter:
    """A clock and a counter, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, energy_j: float | None = 100.0) -> None:
        self.energy_j, self.at_s = energy_j, 50.0
        monkeypatch.setattr(blocks, "package_energy_j", lambda: (self.counters(), "why not"))
        monkeypatch.setattr(blocks.time, "monotonic", lambda: self.at_s)

    def counters(self) -> list[float] | None:
        return None if self.energy_j is None else [7.0, self.energy_j]

    def turn(self, joules: float, seconds: float, device: str = "cpu") -> list[float]:
        """The mean power of a block that uses so much energy, if it is known."""
        with mean_power_w(device) as power_w:
            self.at_s += seconds
            if self.energy_j is not None:
                self.energy_j += joules
        return power_w


def test_the_power_of_a_block_is_its_energy_over_its_time(monkeypatch) -> None:
    assert Counter(monkeypatch).turn(joules=20.0, seconds=2.0) == [10.0]


def test_a_step_takes_its_share_of_that_power(monkeypatch) -> None:
    counter = Counter(monkeypatch)

    def ask(*_: object, **__: object) -> Answer[Block]:
        counter.turn(joules=20.0, seconds=2.0)
        return Answer(Block([0.01, 0.02, 0.03], [], None, None, {}, False, 0.0, 0.0, 0.0), False)

    shared = context(SimpleNamespace(ask=ask), ManualClock(), Report())
    of_row = {"plan": SimpleNamespace(scenario=scenario()), "context": shared}
    budget = SimpleNamespace(turn_s=lambda *_: 2.0, block_s=lambda *_: 2.0, **of_row)
    runner = BlockRunner(budget, None)
    found = runner._ask_block(PreparedCase(CPU_A, WorkerKey("cpu", "torch")), [])
    assert found.figures == {ENERGY: pytest.approx(0.2)}


@pytest.mark.parametrize(
    ("energy_j", "turn"),
    [
        (100.0, {"joules": 0.0, "seconds": 1.0}),  # it stood still
        (100.0, {"joules": -99.0, "seconds": 1.0}),  # it wrapped around
        (100.0, {"joules": 4500.0, "seconds": 150.0}),  # it wraps at 70 kJ, and may have done so
        (100.0, {"joules": 5.0, "seconds": 1.0, "device": "cuda:0"}),  # packages know no GPU
        (None, {"joules": 0.0, "seconds": 1.0}),
    ],
)
def test_a_counter_that_tells_nothing_gives_no_figure(monkeypatch, energy_j, turn) -> None:
    assert Counter(monkeypatch, energy_j).turn(**turn) == []


def test_what_goes_wrong_in_a_block_passes_through(monkeypatch) -> None:
    Counter(monkeypatch)
    with pytest.raises(KeyError), mean_power_w("cpu"):
        raise KeyError


def test_what_a_user_may_ask_for_can_be_counted() -> None:
    assert set(ASKED) < set(OBJECTIVES)


def test_a_candidate_counts_the_rounds_whose_figure_is_known() -> None:
    a = case("cpu-a")
    (measured,) = report({a: steady(1.0, 3)}, row=scenario(objective="energy")).candidates.values()
    assert measured.rounds() == {}
    measured.blocks[0].metrics[ENERGY] = 2.0
    measured.blocks[2].metrics[ENERGY] = 2.5
    assert measured.rounds() == {0: 2.0, 2: 2.5}


def test_memory_is_the_same_in_every_round() -> None:
    a = case("cpu-a")
    (measured,) = report({a: steady(1.0, 3)}, row=scenario(objective="memory")).candidates.values()
    assert measured.rounds() == {}
    measured.memory_peak_bytes = 1 << 20
    assert measured.rounds() == dict.fromkeys(range(3), 1 << 20)
