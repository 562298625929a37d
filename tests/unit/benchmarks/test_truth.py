"""The ground truth runs on a CPU that stands for a GPU, and the judge understands all it says."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import first_hour_outputs as outputs
import pytest

from benchmarks.first_hour import freezing, serving, truth
from benchmarks.first_hour.evidence import Evidence
from benchmarks.first_hour.judge import judge


class Event:
    """Stands for a CUDA event, by the host's clock."""

    def __init__(self, **_: Any) -> None:
        self.at_s = 0.0

    def record(self, _: Any = None) -> None:
        self.at_s = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: Event) -> float:
        return max(1e-6, 1e3 * (other.at_s - self.at_s))


@pytest.fixture
def cpu_as_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A torch whose device "cuda" is the CPU, without graphs and compiler."""
    import torch
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if getattr(func, "__name__", "") == "pin_memory":
                return args[0]
            named = {k: "cpu" if v == "cuda" else v for k, v in (kwargs or {}).items()}
            return func(
                *("cpu" if isinstance(a, str) and a == "cuda" else a for a in args), **named
            )

    card = SimpleNamespace(
        name=outputs.H200,
        major=9,
        minor=0,
        multi_processor_count=132,
        L2_cache_size=60 << 20,
        total_memory=140 << 30,
    )
    stand_ins = {
        "Event": Event,
        "init": lambda: None,
        "synchronize": lambda *_: None,
        "current_stream": lambda: SimpleNamespace(synchronize=lambda: None),
        "get_device_properties": lambda _: card,
        "get_arch_list": lambda: ["sm_90"],
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    small = {"SIZES": (16, 32), "MIB": (1, 1024), "LINK_MIB": 1, "WIDTH": 16, "LONG": 8, "STEPS": 3}
    small |= {"BURST_S": 1e-4, "SUSTAINED_S": 1e-4, "REST_S": 0.0, "LEAD_IN_S": 1e-4}
    for name, value in small.items():
        monkeypatch.setattr(truth, name, value)
    monkeypatch.setattr(serving, "WARM_STEPS", 1)
    real = torch.randn
    most = 1 << 20  # elements: an array of a GiB stays small
    monkeypatch.setattr(
        torch, "randn", lambda *shape, **more: real(*(min(n, most) for n in shape), **more)
    )
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with OnCpu():
        yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def said(section: Any, capsys: pytest.CaptureFixture) -> list[dict[str, Any]]:
    section()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.usefixtures("cpu_as_gpu")
def test_the_judge_can_read_what_the_ground_truth_says(tmp_path, capsys) -> None:
    sections = (truth.env, truth.overhead, truth.products, truth.memory, serving.net)
    facts = {section.__name__: said(section, capsys) for section in sections}
    for fact in facts["products"]:  # 8192 and 4096 on a card
        fact["n"] = {16: 4096, 32: 8192}[fact["n"]]
    outputs.write(tmp_path, changed=facts)
    found = {each.id: each for each in judge(Evidence(tmp_path))}
    unread = {each.id: each.reason for each in found.values() if "cannot be read" in each.answer}
    assert unread == {}
    silent = {each.id for each in found.values() if "said nothing" in each.answer}
    assert silent == set()
    with_figures = ("products bf16 burst", "memory triad", "W5 cause", "link to host", "W1 cause")
    for name in (*with_figures, "W2 cause", "W6", "M1 eager", "M1 compile", "card L2"):
        assert found[name].figure is not None, found[name].answer
    assert found["card L2"].answer == "confirmed: 60"
    assert found["M1 graph"].answer.startswith("not tried: net: ")  # there are no graphs here


@pytest.mark.usefixtures("cpu_as_gpu")
def test_the_probe_names_the_card_or_the_reason(monkeypatch, capsys) -> None:
    import torch

    assert said(truth.probe, capsys)[0]["name"] == outputs.H200

    def fail() -> None:
        raise RuntimeError("CUDA error: busy or unavailable\nmore")

    monkeypatch.setattr(torch.cuda, "init", fail)
    (fact,) = said(truth.probe, capsys)
    assert (fact["name"], fact["reason"]) == (None, "RuntimeError: CUDA error: busy or unavailable")


SERVER = """
import json, sys
for line in sys.stdin:
    word, number = line.split()
    steps = [3.0, 2.0] + [1.0] * (int(number) - 2)
    print(json.dumps(steps if word == "steps" else {"issued_s": 0.01}), flush=True)
    if word == "queue":
        print(json.dumps({"done_s": 4.4}), flush=True)
"""


@pytest.mark.parametrize(("step_s", "taken"), [(1e-4, 400), (5e-3, 120), (0.2, 60)])
def test_a_slow_card_takes_fewer_steps(step_s: float, taken: int, monkeypatch, capsys) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(freezing, "product", lambda n, kind: lambda: None)
    monkeypatch.setattr(freezing, "wall", lambda step, count: [step_s] * count)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"steps {freezing.MOST_STEPS}\n"))
    (steps,) = said(freezing.serve, capsys)
    assert len(steps) == pytest.approx(taken, abs=1)


def test_a_frozen_process_is_followed(tmp_path, monkeypatch, capsys) -> None:
    used = iter(["100, 690"] * 4 + ["0, 120"] * 4)
    monkeypatch.setattr(freezing, "SERVER", [sys.executable, "-c", SERVER])
    monkeypatch.setattr(freezing.time, "sleep", lambda _: None)
    monkeypatch.setattr(
        freezing, "smi", lambda fields: next(used) if "utilization" in fields else "1980"
    )
    facts = said(freezing.frozen, capsys)
    assert [fact["steps"] for fact in facts if fact["what"] == "resumed"] == [2] * 5
    outputs.write(tmp_path, changed={"frozen": facts})
    found = {each.id: each.answer for each in judge(Evidence(tmp_path))}
    assert found["frozen 1 s"] == "confirmed: 2"
    assert found["frozen 20 s"] == "confirmed: 5"
    assert found["frozen queue"] == "confirmed: ran on"
