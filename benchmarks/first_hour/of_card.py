"""Findings on the card itself: ground truth by its own clocks, without workbench."""

import re
from functools import partial
from math import inf
from typing import Any

from .evidence import Evidence, NotTried, number
from .findings import (
    H100,
    H200,
    HOPPER,
    SHEET,
    Expected,
    Finding,
    Findings,
    Range,
    Word,
    datasheet,
    hopper,
)

# TFLOP/s of Hopper's SXM cards at 8192 (FP64: 4096), in a burst of 0.2 s and over 4 s.
RATES: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "fp32": ((48, 55), (45, 53)),
    "tf32": ((380, 450), (330, 430)),
    "bf16": ((760, 820), (680, 790)),
    "fp16": ((720, 820), (680, 790)),  # 758 to 760 in zzc0721/torch-performance-test-data
    "fp8": ((1250, 1600), (1150, 1500)),
    "int8": ((1000, 1700), (1000, 1700)),
    "fp64": ((50, 63), (50, 63)),
}
PINNED = hopper(40, 57, "GB/s")  # PCIe 5.0 x16; virtual machines reach less than bare metal's 50
OF_MEMORY = (0.83, 0.94)  # shares of the datasheet's bandwidth: 4.0 to 4.5 of an H200's 4.8 TB/s

finding = Findings()


def of_memory() -> dict[str, Expected]:
    found: dict[str, Expected] = {}
    for card in HOPPER:
        low, high = (each * datasheet(card)["memory_bytes_per_s"] / 1e12 for each in OF_MEMORY)
        found[card] = Range(round(low, 2), round(high, 2), "TB/s")
    return found


def fact(name: str, what: str, expected: Any, *at: str, **named: Any) -> None:
    """A finding that is one number of one fact: step, fact, key."""
    step, said, key = at

    def read(seen: Evidence) -> float:
        return number(seen.fact(step, said, **named)[key])

    finding.append(Finding(name, what, expected, read))


def product(precision: str, key: str, seen: Evidence) -> float:
    n = 4096 if precision == "fp64" else 8192
    return number(seen.fact("products", "product", n=n, precision=precision)[key])


for precision, ranges in RATES.items():
    for key, (low, high) in zip(("burst", "sustained"), ranges, strict=True):
        what, expected = f"{precision} product, {key}", hopper(low, high, "TFLOP/s")
        read = partial(product, precision, key)
        finding.append(Finding(f"products {precision} {key}", what, expected, read))


@finding("W6 cause", "bf16 burst over sustained", hopper(1, 1.2))
def throttled(seen: Evidence) -> float:
    return product("bf16", "burst", seen) / product("bf16", "sustained", seen)


# From 0.3 on, since a card of 70 W reaches no more of its peak.
@finding("clock", "fastest product over its datasheet figure", Range(0.3, 1.25), source=SHEET)
def over_the_datasheet(seen: Evidence) -> float:
    peaks = datasheet(seen.card).get("peak_ops_per_s", {})
    if not peaks:
        raise NotTried("no datasheet figure for this card")
    return max(product(name, "burst", seen) * 1e12 / peak for name, peak in peaks.items())


fact("memory copy", "copy in memory", of_memory(), "memory", "memory", "copy_tb_s", mib=1024)
fact("memory triad", "triad in memory", of_memory(), "memory", "memory", "triad_tb_s", mib=1024)
by_card = {H200: Range(59, 61, "MiB"), H100: Range(49, 51, "MiB")}
fact("card L2", "L2 cache", by_card, "env", "device", "l2_mib")


@finding("W5 cause", "thin product, weights cold over hot", hopper(1.2, 2))
def thin(seen: Evidence) -> float:
    times = seen.fact("memory", "thin product", m=16)
    return number(times["cold_us"]) / number(times["hot_us"])


for name, what, key in (
    ("link to device", "pinned copy to the GPU", "to_device_pinned"),
    ("link to host", "pinned copy to the host", "to_host_pinned"),
):
    fact(name, what, PINNED, "memory", "link", key)
slow = hopper(4, 15, "GB/s")
fact("link pageable", "pageable copy to the GPU", slow, "memory", "link", "to_device_pageable")
for name, what, expected, key in (
    ("start import", "import of torch, warm", Range(1, 4, "s"), "import_s"),
    ("start context", "first use of the GPU", Range(0.3, 1.5, "s"), "context_s"),
    ("S3 cause", "first convolution of a process", Range(0.3, 3, "s"), "first_convolution_s"),
):
    fact(name, what, expected, "startup", "start", key, which="warm")
cost = Range(6, 14, "us")
fact("W1 cause", "timing a short step with events", cost, "overhead", "timing", "added_us")


@finding("W2 cause", "issue time in a full queue over an empty one", Range(3, inf))
def queue_fills(seen: Evidence) -> float:
    few, many = (seen.fact("overhead", "queue", launches=n)["issue_us"] for n in (50, 3000))
    return number(many) / number(few)


for way, low, high in (
    ("eager", 180, 280),
    ("graph", 45, 90),
    ("compile", 90, 160),
    ("reduce-overhead", 60, 120),
):
    name, what = f"M1 {way}", f"the real-time row's net, {way}"
    fact(name, what, hopper(low, high, "us"), "net", "net", "p50_us", way=way, kind="float32")


@finding("fault memory", "a product after running out of memory", Word("512.0"))
def goes_on(seen: Evidence) -> str:
    return str(seen.fact("faults", "out of memory")["after"])


@finding("fault assert", "a product after a device assert", Word("CUDA error"))
def sticky(seen: Evidence) -> str:
    after = str(seen.fact("faults", "device assert")["after"])
    return "CUDA error" if "CUDA error" in after else after


def settled(key: str, least_s: float, most_s: float, seen: Evidence) -> float:
    facts = seen.facts("frozen", "resumed")
    return max(number(each[key]) for each in facts if least_s <= each["frozen_s"] <= most_s)


finding("frozen 1 s", "steps until settled after up to 1 s", Range(0, 3))(
    partial(settled, "steps", 0, 1)
)
finding("frozen 20 s", "time until settled after 5 to 20 s", Range(0, 50, "ms"))(
    partial(settled, "ms", 5, 20)
)


@finding("frozen queue", "queued work of a frozen process", Word("ran on"))
def ran_on(seen: Evidence) -> str:
    found = seen.fact("frozen", "frozen with work queued")
    used = [float(str(line).partition(",")[0]) for line in found["each_half_second"]]
    if number(found["issued_s"]) > 0.3:
        return "the queue was full"
    return "ran on" if max(used[:4]) > 90 and used[-1] < 5 else f"utilisation {used} %"


def tests_pass(seen: Evidence, step: str) -> str:
    summaries = re.findall(r"^.*\d+ (?:passed|failed|error).*$", seen.step(step)["text"], re.M)
    if not summaries:
        raise NotTried(f"{step}: no summary was printed")
    bad = re.search(r"failed|error", summaries[-1])
    return summaries[-1].strip("= ") if bad else "all passed"


PASSED = Word("all passed")
finding("tests", "the tests marked cuda", PASSED)(partial(tests_pass, step="tests"))
finding("mode tests", "CUDA graphs and compiled modes", PASSED)(
    partial(tests_pass, step="mode tests")
)
