"""Made-up outputs of a first hour on an NVIDIA H200: what the reading of the code expects."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.first_hour.of_card import RATES
from benchmarks.first_hour.parts import PARTS

H200 = "NVIDIA H200"
ROW_OF = {
    "training": "train_cnn",
    "realtime": "infer_cnn",
    "floating_point": "matmul",
    "prototyping": "train_mlp",
    "convolution": "conv_layers",
    "branching": "forest",
}
Facts = list[dict[str, Any]]


def measured(workload: str, precision: str = "fp32", **more: Any) -> dict[str, Any]:
    """One measurement with the keys that the findings read."""
    case = {
        "workload": workload,
        "device": more.pop("device", "cuda:0"),
        "backend": more.pop("backend", "torch"),
        "precision": precision,
        "mode": more.pop("mode", None),
        "params": more.pop("params", {}),
        "tuning": {},
    }
    return {
        "id": f"{workload}/{case['device']}/{case['backend']}/{precision}",
        "case": case,
        "status": "ok",
        "reason": None,
        "scenario": None,
        "median_s": 1e-3,
        "work": {"bytes_moved": 1e6},
        "setup": {"import_s": 6.0, "build_s": 0.2},
        "warmup": {"first_s": 0.05},
        "accuracy": {"value": 2e-6},
        "telemetry": {"counted_power_w": None},
        "clocks": None,
        "figures": {},
        "unprofiled": None,
        **more,
    }


def table(**changed: Any) -> dict[str, Any]:
    """The document of a run of the six rows."""
    choices = dict.fromkeys(ROW_OF, "gpu") | {"prototyping": "cpu", "branching": "cpu"}
    return {
        "run": {
            "duration_s": 60.5,
            "budget_s": 60.0,
            "overhead": {"measured_s": 36.0},
            "started_at": "2026-11-23T10:00:00.000Z",
        },
        "tool": {"command": "workbench"},
        "machine": {
            "hostname": "vm",
            "cpu": {"effective_cores": 16, "numa_nodes": 1},
            "gpus": [{"worker_cores": None}],
        },
        "warnings": [],
        "ceilings": {
            "devices": [{"device": "cpu"}, {"device": "cuda:0", "peak_ops_per_s": {"bf16": 7e14}}]
        },
        "verdicts": [
            {"scenario": row, "choice": device, "device_ratio": 3.0}
            for row, device in choices.items()
        ],
        "measurements": [
            measured(workload, scenario=row, median_s=225e-6, telemetry={"counted_power_w": 640.0})
            for row, workload in ROW_OF.items()
        ],
        **changed,
    }


def cases(*measurements: dict[str, Any]) -> dict[str, Any]:
    return {"measurements": list(measurements)}


def facts() -> dict[str, Facts]:
    """The lines of each step that prints facts."""
    products = [
        {
            "what": "product",
            "n": n,
            "precision": precision,
            "burst": sum(burst) / 2,
            "sustained": sum(sustained) / 2,
            "fastest": sum(burst) / 2,
        }
        for n in (4096, 8192)
        for precision, (burst, sustained) in RATES.items()
    ]
    start = {"import_s": 2.0, "context_s": 0.6, "first_convolution_s": 0.8}
    ways = {"eager": 220.0, "graph": 60.0, "compile": 120.0, "reduce-overhead": 90.0}
    link = dict.fromkeys(("to_device_pinned", "to_host_pinned"), 52.0)
    return {
        "env": [
            {"what": "torch", "version": "2.11.0", "cuda": "13.0"},
            {"what": "device", "l2_mib": 60.0},
            {"what": "smi", "modes": "Default, Enabled, Disabled, 5, 16"},
        ],
        "startup": [{"what": "start", "which": "warm", **start}],
        "overhead": [
            {"what": "timing", "added_us": 9.0},
            {"what": "queue", "launches": 50, "issue_us": 4.0},
            {"what": "queue", "launches": 3000, "issue_us": 38.0},
        ],
        "products": products,
        "memory": [
            {"what": "memory", "mib": 1024, "copy_tb_s": 4.3, "triad_tb_s": 4.2},
            {"what": "thin product", "m": 16, "hot_us": 8.0, "cold_us": 12.0},
            {"what": "link", **link, "to_device_pageable": 9.0},
        ],
        "faults": [
            {"what": "out of memory", "after": "512.0"},
            {"what": "device assert", "after": "AcceleratorError CUDA error: device-side assert"},
        ],
        "switches": [{"what": "switches", "tf32": on, "raised": []} for on in (True, False)],
        "frozen": [
            *(
                {"what": "resumed", "frozen_s": pause_s, "steps": 2, "ms": 9.0}
                for pause_s in (0.05, 1.0, 20.0)
            ),
            {
                "what": "frozen with work queued",
                "each_half_second": ["100, 690", "100, 695", "99, 690", "40, 300", "0, 130"],
                "issued_s": 0.01,
            },
        ],
        "net": [
            {"what": "net", "way": way, "kind": "float32", "p50_us": p50_us}
            for way, p50_us in ways.items()
        ],
    }


def documents() -> dict[str, dict[str, Any]]:
    """The document of each step that prints one."""
    peaks = {precision: sum(burst) / 2 * 1e12 for precision, (burst, _) in RATES.items()}
    ceiling = {"device": "cuda:0", "peak_ops_per_s": peaks}
    ceiling |= {"launch_s": 4e-6, "step_latency_s": 1e-5, "sustained_ops_per_s": {"bf16": 7.3e14}}
    ort = measured("infer_cnn", backend="onnxruntime")
    clocks = {"issue_s": 2e-3, "device_s": 9e-3}
    waiting = {"figures": {"waiting_fraction": 0.4}}
    links = {"to_device": 52e9, "both": 95e9}
    detected = {
        "software": {
            "python": "3.12.3",
            "packages": {"onnxruntime": {"version": "1.31.1", "detail": "GPU build"}},
        },
        "machine": {"gpus": [{"driver_version": "580.159.04"}]},
    }
    return {
        "detect": detected,
        "quick": table(),
        "table": table(),
        "table again": table(),
        "thorough": table(),
        "ceilings": table(ceilings={"devices": [{"device": "cpu"}, ceiling]}),
        "train_gpt": cases(
            measured("train_gpt", clocks=clocks), measured("train_gpt", mode="compile")
        ),
        "transfer": cases(
            *(
                measured(
                    "transfer",
                    mode="pinned",
                    params={"direction": way},
                    work={"bytes_moved": rate * 1e-3},
                )
                for way, rate in links.items()
            )
        ),
        "gemm": cases(
            measured("gemm", "bf16", params={"m": 1}, work={"bytes_moved": 33.5e6}, median_s=9e-6)
        ),
        "train_cnn": cases(
            measured("train_cnn", params={"loaders": 1}, median_s=1.5e-3, **waiting),
            measured("train_cnn", params={"loaders": 4}, median_s=0.8e-3, **waiting),
        )
        | {"machine": {"cpu": {"effective_cores": 16}}},
        "scaling": cases(measured("scaling")),
        "trace": cases(measured("conv_layers", "tf32")),
        "all": cases(ort),
        "alone": cases(measured("matmul", "bf16", telemetry={"counted_power_w": 640.0})),
        "largest batch": {"largest_batches": [{"ended_by": "memory", "batch": 2048}]},
    }


def passed() -> dict[str, str]:
    return dict.fromkeys(("tests", "mode tests"), "===== 31 passed in 80 s =====\n")


def write(folder: Path, card: str | None = H200, changed: Mapping[str, Any] | None = None) -> None:
    """The files of all parts on `card`; `changed` replaces the facts or the document of a step."""
    said: dict[str, Any] = {**facts(), **documents(), **passed()}
    said = copy.deepcopy(said) | dict(changed or {})
    for number, steps in PARTS.items():
        done = {}
        for step in steps:
            record: dict[str, Any] = {"code": 0, "timed_out": False, "limit_s": 60, "wall_s": 1.0}
            record["command"] = "python -m " + " ".join(step.words)
            output = said.get(step.name)
            if step.output == "recording":
                record["file"] = f"{step.name}.json"
                text = output if isinstance(output, str) else json.dumps(output)
                (folder / record["file"]).write_text(text)
            else:
                key = {"lines": "facts", "text": "text"}.get(step.output, "document")
                record[key] = output
            if step.name == "trace":
                record["trace_bytes"] = 4096
            done[step.name] = record
        part = {"part": number, "card": card, "no_gpu": None, "at": "2026-11-23T10:00:00+00:00"}
        (folder / f"part-{number}.json").write_text(json.dumps(part | {"steps": done}))


def changed(step: str, path: str, value: Any) -> dict[str, Any]:
    """The output of a step with `value` at a path such as "1/figures"; lists are by position."""
    output: Any = {**facts(), **documents()}[step]
    *before, last = path.split("/")
    at: Any = output
    for name in before:
        at = at[int(name) if isinstance(at, list) else name]
    at[int(last) if isinstance(at, list) else last] = value
    return {step: output}
