"""Runs of the real engine on a simulated machine: its clock, workers and sensors are made up.

Every event comes from the engine, its races and its advisor; only step times, errors and losses
are invented.  A request gives the same events on any computer.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from builders import ceilings as known_ceilings

from workbench import catalog
from workbench.contract import Case, Work, kind_of
from workbench.engine import (
    blocks,
    ceiling_store,
    engine as engine_module,
    opening,
    race,
    telemetry,
)
from workbench.engine.context import Listener
from workbench.engine.engine import Engine, EventStream
from workbench.machine.nvidia.nvml import GpuSample
from workbench.planning import ceiling_rows, scenarios
from workbench.planning.plan import RowPlan
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.pool.control import Cancelled
from workbench.pool.pool import Answer, WorkerFailed
from workbench.pool.worker_process import WorkerKey
from workbench.records import events as ev
from workbench.records.machine import GpuReading, HostReading, Machine, Software
from workbench.records.reason import Reason, Warning
from workbench.report.report import Report
from workloads._shared.torch_task import ON_CUDA_ONLY

# FLOP/s on all cores or on the GPU, by backend and precision.
Rates = Mapping[tuple[str, str], float]
EPYC: Rates = {
    ("numpy", "fp32"): 0.97e12,
    ("torch", "fp32"): 1.05e12,
    ("torch", "bf16"): 2.4e12,
    ("torch", "fp16"): 2.0e10,
    ("numpy", "fp64"): 0.49e12,
    ("torch", "fp64"): 0.52e12,
    ("onnxruntime", "fp32"): 1.0e12,
    ("onnxruntime", "int8"): 2.6e12,
}
XEON: Rates = {key: rate / 4 for key, rate in EPYC.items()} | {
    ("torch", "bf16"): 1.1e12,
    ("torch", "fp16"): 0.5e12,
}
H200: Rates = {
    ("torch", "fp32"): 5.1e13,
    ("torch", "tf32"): 3.5e14,
    ("torch", "bf16"): 6.6e14,
    ("torch", "fp16"): 6.7e14,
    ("torch", "fp64"): 5.6e13,
    ("onnxruntime", "fp32"): 4.8e13,
}
LAUNCHES = {"train_cnn": 160, "infer_cnn": 150, "train_mlp": 1500, "conv_layers": 40}  # a step
LAUNCH_S = {"numpy": 1e-6, "torch": 2.4e-6, "onnxruntime": 0.6e-6}
CUDA_LAUNCH_S = 5.1e-6
# Seconds a step of the forest, whose FLOPs are not counted.
FOREST_S = {"numpy": 2.21e-3, "onnxruntime": 3.9e-3, "torch": 5.13e-3}
CUDA_FOREST_S = 2.17e-3
ERRORS = {
    "fp64": 1e-15,
    "fp32": 2e-6,
    "tf32": 4e-4,
    "fp16": 1e-3,
    "bf16": 4e-3,
    "int8": 8e-3,
    "fp8": 0.03,
}
IMPORT_S = {"numpy": 0.1, "onnxruntime": 0.3, "torch": 0.9}
MOST_SAMPLES = 6  # in a block, unless the engine asks for more


class SimulatedControl:
    """Stands for `Control`: only the workers move its clock, and the user stops the run at
    `cancel_at_s`."""

    front_end = None

    def __init__(self, cancel_at_s: float) -> None:
        self.at_s, self.cancel_at_s = 0.6, cancel_at_s

    def now(self) -> float:
        return round(self.at_s, 4)

    def check(self) -> None:
        if self.at_s >= self.cancel_at_s:
            raise Cancelled("cancelled by the user")

    def raising(self, _at: float) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True, eq=False)
class SimulatedMachine:
    """A machine as detection finds it, with the speed of its devices and its faults."""

    machine: Machine
    software: Software
    cpu: Rates = field(default_factory=lambda: XEON)
    gpu: Rates = field(default_factory=lambda: H200)
    failures: Mapping[str, Reason] = field(default_factory=dict)  # key: the end of a case's id
    noise: Mapping[str, float] = field(default_factory=dict)  # key: workload; log-scale deviation
    disturbances: Mapping[str, Sequence[Warning]] = field(default_factory=dict)  # key: row
    memory_bytes: float = 141e9  # GPU memory that a search for the largest batch may fill

    def step_s(self, case: Case, work: Work) -> float:
        """True seconds a step: launches and arithmetic, one after the other."""
        on_gpu = case.device.startswith("cuda")  # a simulated GPU is the CPU, scaled by the engine
        if work.flops is None:
            return CUDA_FOREST_S if on_gpu else FOREST_S[case.backend]
        rates = self.gpu if on_gpu else self.cpu
        rate = rates.get((case.backend, case.precision), rates[case.backend, "fp32"])
        if case.threads is not None:
            rate *= case.threads / self.machine.cpu.effective_cores
        if case.quantization == "dynamic":
            rate /= 5
        launch_s = CUDA_LAUNCH_S if on_gpu else LAUNCH_S[case.backend]
        slower = 0.8 if case.mode == "nhwc" else 1.0
        launches = LAUNCHES.get(case.workload, 1) / (8 if case.mode == "graph" else 1)
        return slower * (launches * launch_s + work.flops / rate)

    def failure(self, case: Case) -> Reason | None:
        return next((why for end, why in self.failures.items() if case.id.endswith(end)), None)


class SimulatedPool:
    """Stands for `Pool`: answers each request at once, and moves the clock by what it takes."""

    def __init__(
        self,
        simulated: SimulatedMachine,
        control: SimulatedControl,
        emit: Callable[[ev.AnyEvent], None],
    ) -> None:
        self.simulated, self.control, self.emit = simulated, control, emit
        self.random = random.Random(20261121)
        self.scratch = Path("/nonexistent")
        self._held: defaultdict[WorkerKey, set[str]] = defaultdict(set)
        self.import_s: dict[WorkerKey, float] = {}
        self.longest_gpu_start_s = 0.0
        self.cases: dict[str, Case] = {}
        self.blocks: dict[str, int] = {}  # case id to the number of its blocks so far
        self._alive: dict[WorkerKey, int] = {}  # worker to its process id

    # ------------------------------------------------------- as the engine sees it

    def starting(self, keys: Sequence[WorkerKey]) -> AbstractContextManager[None]:
        return nullcontext()

    def start(self, key: WorkerKey, deadline_s: float) -> None:
        if key in self._alive:
            return
        took_s = IMPORT_S.get(key.backend, 0.5) + (0.5 if key.device.startswith("cuda") else 0.0)
        self.control.at_s += took_s
        self.import_s[key] = took_s
        if not kind_of(key.device).on_host:
            self.longest_gpu_start_s = max(self.longest_gpu_start_s, took_s)
        self._alive[key] = 4200 + len(self.import_s)
        self.emit(
            ev.WorkerStarted(
                at_s=self.control.now(),
                worker=key.name,
                pid=self._alive[key],
                import_s=took_s,
                versions={},
            )
        )

    def is_alive(self, key: WorkerKey) -> bool:
        return key in self._alive

    def held(self, key: WorkerKey) -> set[str]:
        return self._held[key]

    def end(self, key: WorkerKey, reason: Reason | None = None) -> None:
        if self._alive.pop(key, None) is not None:
            self._held.pop(key, None)
            self.emit(ev.WorkerEnded(at_s=self.control.now(), worker=key.name, reason=reason))

    def process_ids(self) -> list[int]:
        return list(self._alive.values())

    def folder_next_to(self, target: Path) -> Path:
        """No worker leaves a folder."""
        return target.with_name(".hidden")

    def end_all(self, *, at_once: bool) -> None:
        for key in list(self._alive):
            self.end(key)

    def ask(self, key: WorkerKey, deadline_s: float, kind: Any, **request: Any) -> Answer[Any]:
        self.control.check()
        try:
            return Answer(msgspec.convert(getattr(self, request["op"])(request), kind), False)
        except WorkerFailed as failure:
            if failure.reason.code == "worker_died":
                self.end(key, failure.reason)
            raise

    # ---------------------------------------------------------------- the requests

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        case: Case = request["case"]
        if (why := self.simulated.failure(case)) is not None:
            raise WorkerFailed(why)
        if case.mode in ON_CUDA_ONLY and not case.device.startswith("cuda"):
            text = f"mode {case.mode} needs a CUDA device, and {case.device} computes on the CPU"
            raise WorkerFailed(Reason("unsupported", text, "choose another --mode here"))
        self.cases[case.id] = case
        step_s, on_gpu = self.step_s(case), case.device.startswith("cuda")
        setup = {"build_s": 0.012, "transfer_s": 0.034 if on_gpu else None}
        setup["compile_s"] = 0.61 if on_gpu else None
        self.control.at_s += 0.02 + (0.65 if on_gpu else 0.0) + 3 * step_s
        return {
            "setup": setup,
            "transfer_out_s": 0.0081 if on_gpu else None,
            "accuracy": self.accuracy(case),
            "warmup": {
                "n": 12,
                "seconds": 0.1,
                "first_s": 9 * step_s,
                "steady": True,
                "step_s": step_s,
                "iterations": max(1, round(2e-3 / step_s)),
            },
            "memory_peak_bytes": self.memory_bytes(case),
            "call_overhead_s": 1e-7,
        }

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        case = self.cases[request["case"]]
        step_s, number = self.step_s(case), self.blocks.get(case.id, 0)
        self.blocks[case.id] = number + 1
        noise = self.simulated.noise.get(case.workload, 0.012)
        block_s = step_s * self.random.lognormvariate(0.0, noise)
        fitting = min(MOST_SAMPLES, round(request["seconds"] / max(step_s, 2e-3)))
        count = max(1, request["min_samples"], fitting)
        samples = [block_s * self.random.lognormvariate(0.0, noise) for _ in range(count)]
        self.control.at_s += max(request["seconds"], sum(samples))
        trains = case.workload.startswith("train")
        learns = 0.86 ** (number * (0.9 if case.precision == "bf16" else 1.0))
        return {
            "samples_s": samples,
            "lead_in_s": samples[:2],
            "loss": 2.3 * learns + self.random.uniform(0.0, 0.06) if trains else None,
            "clocks": None,
            "figures": {"waiting_fraction": 0.12} if case.workload == "train_cnn" else {},
            "gap": False,
            **dict.fromkeys(("began_s", "settled_s"), time.monotonic() - sum(samples)),
            "ended_s": time.monotonic(),
        }

    def probe_small(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"case_s": self.step_s(request["case"]), "other_s": self.step_s(request["other"])}

    def attempt(self, request: dict[str, Any]) -> dict[str, Any]:
        """Two steps at one batch size, if they fit into memory."""
        case, needed = request["case"], 40 * self.work(request["case"]).memory_bytes
        self.control.at_s += 0.5
        if needed > self.simulated.memory_bytes:
            text = f"CUDA ran out of memory at batch {case.batch:,}"
            raise WorkerFailed(Reason("no_memory", text, "try a smaller --batch"))
        return {"step_s": self.step_s(case), "memory_peak_bytes": int(needed)}

    def profile(self, request: dict[str, Any]) -> dict[str, Any]:
        shares = {"aten::convolution_backward": 0.52, "aten::mkldnn_convolution": 0.27}
        shares["aten::native_batch_norm"] = 0.081
        total_s = request["steps"] * self.step_s(self.cases[request["case"]])
        self.control.at_s += 2 * total_s
        operators = [
            {"name": name, "calls": 12 >> place, "self_s": share * total_s}
            for place, (name, share) in enumerate(shares.items())
        ]
        timeline = [{"name": "step", "ph": "X", "ts": 0.0, "dur": total_s * 1e6}]
        return {
            "operators": operators,
            "total_s": total_s,
            "fallback_s": 0.0,
            "events": timeline if request["events"] else [],
        }

    def release(self, request: dict[str, Any]) -> dict[str, Any]:
        return {}

    # ------------------------------------------------------------- what is made up

    def work(self, case: Case) -> Work:
        return catalog.load(case.workload).work(case)

    def step_s(self, case: Case) -> float:
        return self.simulated.step_s(case, self.work(case))

    def memory_bytes(self, case: Case) -> int | None:
        return None

    def accuracy(self, case: Case) -> dict[str, Any]:
        return {
            "metric": "relative_error",
            "value": ERRORS[case.precision],
            "reference": "float64",
            "limit": 0.1,
            "passed": True,
        }


class SimulatedSampler:
    """Stands for `GpuSampler`: a reading of each GPU twice a second."""

    def __init__(self, indices: Sequence[int], vendor: str) -> None:
        self._indices, self._read_s = indices, -1.0

    def drain(self) -> Iterator[GpuSample]:
        now = time.monotonic()
        if now - self._read_s >= 0.5:
            self._read_s = now
            busy = {"sm_clock_mhz": 1965.0, "power_w": 612.0, "temperature_c": 58.0}
            gpus = [GpuReading(index=index, **busy) for index in self._indices]
            yield GpuSample(now, gpus, None)

    def close(self) -> None:
        pass


class SimulatedHost:
    """Stands for `HostReader`."""

    def read(self) -> HostReading:
        return HostReading(97.0, 3100.0, None, None, 2**34, {"power_w": "only root may read it"})


class SimulatedMonitor:
    """Stands for `DisturbanceMonitor`: what disturbed each row is known beforehand."""

    def __init__(self, disturbances: Mapping[str, Sequence[Warning]]) -> None:
        self._disturbances = disturbances

    paused = staticmethod(nullcontext)

    def warnings(self, subject: str) -> Sequence[Warning]:
        return self._disturbances.get(subject, ())


def _no_rows(*_: object, **__: object) -> list[RowPlan]:
    return []


def run(
    request: Request,
    simulated: SimulatedMachine,
    *,
    cancel_at_s: float = float("inf"),
    change: Callable[[list[RowPlan]], None] = lambda rows: None,
    pool: type[SimulatedPool] = SimulatedPool,
) -> list[ev.AnyEvent]:
    """The events of a whole run; `change` may alter its rows before it begins."""
    control, report, found = SimulatedControl(cancel_at_s), Report(), []
    rows = resolve(request, scenarios.load())
    change(rows)
    known = known_ceilings("cpu", peak=2e12, bandwidth=3e11)

    def make_pool(_: object, *, control: SimulatedControl, listener: Listener) -> SimulatedPool:
        return pool(simulated, control, listener)

    replaced = [
        (engine_module, "new_run_id", lambda: "20261121-153012-4f3a"),
        (engine_module, "now_utc", lambda: f"2026-11-21T15:30:{int(control.now()) % 60:02}.000Z"),
        (opening, "Pool", make_pool),
        (ceiling_store, "load", lambda mark: known),
        (ceiling_store, "save", lambda found: None),
        # What `known` lacks is not measured aside.
        *([] if request.ceilings else [(ceiling_rows, "requested_rows", _no_rows)]),
        (EventStream, "_keep", lambda self, event: None),
        (opening, "detect", lambda *_, **__: (simulated.machine, simulated.software)),
        (blocks, "package_energy_j", lambda: (None, "only root may read it")),
        (race, "DisturbanceMonitor", lambda *_: SimulatedMonitor(simulated.disturbances)),
        (telemetry, "GpuSampler", SimulatedSampler),
        (telemetry, "HostReader", SimulatedHost),
        (time, "monotonic", control.now),  # the engine times itself and the lab by it
        (time, "process_time", lambda: 0.01 * control.now()),
    ]
    with ExitStack() as replacing:
        for owner, name, stand_in in replaced:
            replacing.enter_context(patch.object(owner, name, stand_in))
        Engine(request, rows, control, report, found.append).run()
    return found
