"""A few steps under a backend's own profiler: their timeline, and the longest operators."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.contract import Operator, Profile, WorkloadError

from .session import CPU, open_session, provider_of

LONGEST = 20  # operators
KERNEL_TIME = "_kernel_time"  # ends the name of an event: the run of a node's kernel


def by_torch(task: Any, steps: int) -> Profile:
    """Profile `steps` of a `TorchTask` with torch.profiler, as one range named like the case.
    Operators are torch's on a CPU, kernels and copies on a GPU.  WorkloadError "no_profiler" if the
    profiler saw nothing on the GPU."""
    from torch.profiler import ProfilerActivity, profile, record_function

    own = getattr(ProfilerActivity, task.device.type.upper(), ProfilerActivity.CPU)  # MPS has none
    on_gpu = own != ProfilerActivity.CPU
    activities = [ProfilerActivity.CPU, *([own] if on_gpu else [])]
    with profile(activities=activities) as profiler, record_function(task.case.id):
        for _ in range(steps):
            task.step()
        task.finish()
    operators = _operators(profiler.key_averages(), task.case.id, on_gpu)
    if not operators:
        text = "torch's profiler saw nothing on the GPU"
        hint = "another profiler may hold CUPTI: stop it, or use nsys profile alone"
        raise WorkloadError(text, code="no_profiler", hint=hint)
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        file = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(file))
        events = json.loads(file.read_bytes())["traceEvents"]
    # Events without a process or device span the whole profile and carry no information.
    events = [event for event in events if isinstance(event.get("pid"), int)]
    return _profile(events, operators, "gpu" if on_gpu else "cpu")


def _operators(rows: Any, case: str, on_gpu: bool) -> list[Operator]:
    """The relevant rows of torch's table."""
    from torch.autograd import DeviceType

    found = []
    for row in rows:
        if row.key == case or (row.device_type != DeviceType.CPU) != on_gpu:
            continue
        if on_gpu and row.is_user_annotation:  # it spans kernels, which are counted themselves
            continue
        spent_us = row.self_device_time_total if on_gpu else row.self_cpu_time_total
        found.append(Operator(row.key, row.count, spent_us * 1e-6))
    return found


def by_onnxruntime(task: Any, steps: int) -> Profile:
    """Profile `steps` of an `OnnxTask` in a new session, after one run that does not count.  On a
    GPU a node's time is that of its launch, so there are no operators, and the total is that of the
    runs.  Times of nodes left to the CPU include no waits (WaitOnEPStep is separate)."""
    case = task.case
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        session = open_session(task.model, case, Path(folder, "profile"), shared=task.shared)
        for _ in range(1 + steps):
            session.run(None, next(task.feeds))
        events = end_profile(session)
    counted_from = sorted(event["ts"] for event in events if event["name"] == "model_run")[1]
    events = [event for event in events if event["ts"] >= counted_from]
    on_host, spent_s, fallback_s = case.computes_on == "cpu", defaultdict(list), 0.0
    for _, event in kernels(events):
        if on_host:
            spent_s[event["args"]["op_name"]].append(event["dur"] * 1e-6)
        if event["args"].get("provider") == CPU != provider_of(case):
            fallback_s += event["dur"] * 1e-6
    operators = [Operator(name, len(each), sum(each)) for name, each in spent_s.items()]
    found = _profile(events, operators, "cpu", fallback_s)
    runs_us = sum(event["dur"] for event in events if event["name"] == "model_run")
    return found if on_host else replace(found, total_s=runs_us * 1e-6)


def _profile(
    events: list[Any], operators: list[Operator], device: str, fallback_s: float = 0.0
) -> Profile:
    operators.sort(key=lambda operator: operator.self_s, reverse=True)
    total_s = sum(operator.self_s for operator in operators)
    return Profile(events, operators[:LONGEST], total_s, device, fallback_s)


def end_profile(session: Any) -> list[Any]:
    """End the profile of an ONNX Runtime session; returns its events."""
    found: list[Any] = json.loads(Path(session.end_profiling()).read_bytes())
    return found


def kernels(events: list[Any]) -> Iterator[tuple[str, Any]]:
    """Each run of a kernel, with its node's name."""
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(KERNEL_TIME):
            yield event["name"].removesuffix(KERNEL_TIME), event
