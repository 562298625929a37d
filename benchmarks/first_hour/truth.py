"""Ground truth on a GPU, without workbench's clocks: `... first_hour.truth SECTION`.

One JSON line for each fact.  Clocks, compute mode and persistence are read and never changed.
"""

import itertools
import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

STATE = "clocks.sm,power.draw.instant,temperature.gpu,clocks_event_reasons.active"
MODES = (
    "compute_mode,persistence_mode,mig.mode.current,pcie.link.gen.current,pcie.link.width.current"
)
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp64")
SIZES = (4096, 8192)
MIB = (8, 128, 1024)  # sizes of an array; the first fits into L2
LINK_MIB = 128
WIDTH = 4096  # units of a layer whose weights fit into L2
LONG = 1 << 25  # elements that keep the device busy for longer than their launch takes
STEPS = 2000  # enough for the quantiles
BURST_S, SUSTAINED_S, REST_S = 0.2, 4.0, 1.0
LEAD_IN_S = 0.05  # in which the clocks rise, as in a turn of workbench

Step = Callable[[], Any]


def say(what: str, **facts: Any) -> None:
    print(json.dumps({"what": what, **facts}), flush=True)


def smi(fields: str = STATE) -> str:
    """The answer of nvidia-smi, or the reason that there is none."""
    words = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(words, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:200]
    return (found.stdout.strip() or found.stderr.strip())[:200]


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:200]


def quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50_us": 1e6 * ordered[len(ordered) // 2],
        "p99_us": 1e6 * ordered[int(0.99 * len(ordered))],
    }


def wall(step: Step, count: int) -> list[float]:
    """Seconds of each step by the host's clock."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return times


def on_device(step: Step, count: int) -> float:
    """Seconds a step by the device's clock."""
    import torch

    step()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(count):
        step()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1e-3 / count


# ------------------------------------------------------------ what is there


def probe() -> None:
    """Whether torch can compute on a GPU at all, and on which."""
    try:
        import torch

        torch.cuda.init()
        torch.ones(8, 8, device="cuda").sum().item()
        found = torch.cuda.get_device_properties(0)
    except Exception as error:
        say("probe", name=None, reason=first_line(error))
        return
    say("probe", name=found.name, capability=f"{found.major}.{found.minor}")


def env() -> None:
    import torch

    found = torch.cuda.get_device_properties(0)
    say(
        "torch",
        version=torch.__version__,
        cuda=torch.version.cuda,
        archs=torch.cuda.get_arch_list(),
    )
    say(
        "device",
        name=found.name,
        sms=found.multi_processor_count,
        l2_mib=found.L2_cache_size / 2**20,
        memory_gib=found.total_memory / 2**30,
    )
    say("smi", state=smi(), modes=smi(MODES))
    shm = os.statvfs("/dev/shm")
    say(
        "host",
        kernel=os.uname().release,
        proc_children=Path(f"/proc/self/task/{os.getpid()}/children").exists(),
        shm_free_mb=shm.f_bavail * shm.f_frsize / 1e6,
        cores=len(os.sched_getaffinity(0)),
        python_h=Path(sysconfig.get_path("include"), "Python.h").exists(),
    )
    try:
        import onnxruntime
    except ImportError as error:
        say("onnxruntime", error=first_line(error))
    else:
        providers = onnxruntime.get_available_providers()
        say("onnxruntime", version=onnxruntime.__version__, providers=providers)


START = """
import json, time
marks = [time.perf_counter()]
def mark(): marks.append(time.perf_counter())
import torch; mark()
a = torch.ones(8, 8, device="cuda"); torch.cuda.synchronize(); mark()
a @ a; torch.cuda.synchronize(); mark()
x, w = torch.ones(1, 3, 64, 64, device="cuda"), torch.ones(32, 3, 3, 3, device="cuda")
torch.conv2d(x, w, padding=1); torch.cuda.synchronize(); mark()
names = ("import_s", "context_s", "first_product_s", "first_convolution_s")
print(json.dumps(dict(zip(names, (b - a for a, b in zip(marks, marks[1:]))))))
"""


def startup() -> None:
    """The parts of a worker's start; the first one of a machine reads a cold disk."""
    for which in ("cold", "warm"):
        found = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True)
        lines = found.stdout.splitlines()
        say(
            "start",
            which=which,
            **(json.loads(lines[-1]) if lines else {"error": found.stderr[-300:]}),
        )
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], env=hidden)
    say("start", which="cpu", import_s=time.perf_counter() - began)


def switches() -> None:
    """Whether torch's own readers work after workbench has switched TF32."""
    import torch

    from workloads._shared.torch_task import set_tf32

    for enabled in (True, False):
        set_tf32(enabled)
        raised = []
        for read in (torch.get_float32_matmul_precision, lambda: torch.backends.cudnn.allow_tf32):
            try:
                read()
            except Exception as error:
                raised.append(first_line(error))
        say("switches", tf32=enabled, raised=raised)


# ------------------------------------------------------------------- clocks


def overhead() -> None:
    """The cost of timing a short step with events, and the depth of the launch queue."""
    import torch

    one, stream = torch.zeros(1, device="cuda"), torch.cuda.current_stream()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def timed() -> None:
        events[0].record(stream)
        one.add_(1).cpu()
        events[1].record(stream)
        torch.cuda.synchronize()

    torch.cuda.synchronize()
    bare, full = (quantiles(wall(step, STEPS)) for step in (lambda: one.add_(1).cpu(), timed))
    say("timing", bare=bare, timed=full, added_us=full["p50_us"] - bare["p50_us"])
    big = torch.zeros(LONG, device="cuda")
    for launches in (50, 400, 900, 1200, 3000):
        big.add_(1)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(launches):
            big.add_(1)
        issued_s = time.perf_counter() - began
        torch.cuda.synchronize()
        whole_s = time.perf_counter() - began
        each = {"issue_us": 1e6 * issued_s / launches, "device_us": 1e6 * whole_s / launches}
        say("queue", launches=launches, **each)


# -------------------------------------------------------------------- rates


def product(n: int, precision: str) -> Step:
    """One product of random matrices; zeros would draw less power and run faster."""
    import torch

    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    a, b = (torch.randn(n, n, device="cuda") for _ in range(2))
    if precision == "fp8":
        a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
        one = torch.ones((), device="cuda")
        out = torch.empty(n, n, device="cuda", dtype=torch.bfloat16)
        options = {"scale_a": one, "scale_b": one, "use_fast_accum": True, "out": out}
        return lambda: torch._scaled_mm(a, b, **options)
    if precision == "int8":
        a, b = (40 * a).to(torch.int8), (40 * b).to(torch.int8).t()
        out = torch.empty(n, n, device="cuda", dtype=torch.int32)
        return lambda: torch._int_mm(a, b, out=out)
    a, b = (each.to(kinds.get(precision, torch.float32)) for each in (a, b))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def rate(step: Step, flops: float, seconds: float) -> float:
    """TFLOP/s by the device's clock during so many seconds of load."""
    import torch

    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    step()
    torch.cuda.synchronize()
    start.record()
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(8):
            step()
        count += 8
        stop.record()
        stop.synchronize()
    return flops * count / float(start.elapsed_time(stop)) * 1e3 / 1e12


def fastest(step: Step, flops: float) -> float:
    """TFLOP/s of the fastest tenth of the steps in a burst, as in a ceiling of workbench."""
    import torch

    def mark() -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < LEAD_IN_S:
        step()
        torch.cuda.synchronize()
        count += 1
    marks = [mark()]
    for _ in range(round(count * BURST_S / LEAD_IN_S)):
        step()
        marks.append(mark())
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) for a, b in itertools.pairwise(marks))
    return flops / float(times[len(times) // 10]) * 1e3 / 1e12


def products() -> None:
    for n in SIZES:
        for precision in PRECISIONS:
            if precision == "fp64" and n > SIZES[0]:
                continue
            try:
                step = product(n, precision)
                time.sleep(REST_S)  # each burst begins on a card that has cooled down
                best = fastest(step, 2.0 * n**3)
                time.sleep(REST_S)
                idle = smi()
                burst, sustained = (rate(step, 2.0 * n**3, s) for s in (BURST_S, SUSTAINED_S))
            except Exception as error:
                say("product", n=n, precision=precision, error=first_line(error))
                continue
            reached = {"burst": burst, "sustained": sustained, "fastest": best}
            say("product", n=n, precision=precision, **reached, before=idle, after=smi())


def memory() -> None:
    import torch

    for mib in MIB:
        a, b, c = (torch.randn(mib << 18, device="cuda") for _ in range(3))
        copy_s = on_device(lambda a=a, b=b: a.copy_(b), 30)
        triad_s = on_device(lambda a=a, b=b, c=c: torch.add(b, c, alpha=3.0, out=a), 30)
        moved = a.nbytes / 1e12
        say("memory", mib=mib, copy_tb_s=2 * moved / copy_s, triad_tb_s=3 * moved / triad_s)
    layer = {"device": "cuda", "dtype": torch.bfloat16}
    weights = [torch.randn(WIDTH, WIDTH, **layer) for _ in range(12)]
    for m in (1, 16, 64):
        x = torch.randn(m, WIDTH, **layer)
        hot_s = on_device(lambda x=x: x @ weights[0], 200)
        cold_s = on_device(lambda x=x: [x @ each for each in weights], 20) / len(weights)
        say("thin product", m=m, hot_us=1e6 * hot_s, cold_us=1e6 * cold_s)
    link()


def link() -> None:
    import torch

    size = LINK_MIB << 18
    pageable, device = torch.empty(size), torch.empty(size, device="cuda")
    pinned = pageable.pin_memory()
    ways = {
        "to_device_pageable": lambda: device.copy_(pageable),
        "to_device_pinned": lambda: device.copy_(pinned, non_blocking=True),
        "to_host_pageable": lambda: pageable.copy_(device),
        "to_host_pinned": lambda: pinned.copy_(device, non_blocking=True),
    }

    def seconds(copy: Step) -> float:
        copy()
        torch.cuda.synchronize()
        return median(wall(lambda: (copy(), torch.cuda.synchronize()), 10))

    say("link", **{name: pageable.nbytes / seconds(copy) / 1e9 for name, copy in ways.items()})


# ------------------------------------------------------------------- faults

MEMORY_FAULT = """
import torch
a = torch.ones(8, 8, device="cuda")
try: torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
except Exception as error: print(type(error).__name__, str(error)[:80])
print("after:", float((a @ a).sum()))
"""
STICKY_FAULT = """
import torch
a = torch.ones(8, 8, device="cuda")
try: a[torch.tensor([99], device="cuda")]; torch.cuda.synchronize()
except Exception as error: print(type(error).__name__, str(error).splitlines()[0][:120])
try: print("after:", float((a @ a).sum()))
except Exception as error: print("after:", type(error).__name__, str(error).splitlines()[0][:120])
"""


def faults() -> None:
    for what, text in (("out of memory", MEMORY_FAULT), ("device assert", STICKY_FAULT)):
        found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        after = next((x for x in found.stdout.splitlines() if x.startswith("after: ")), "")
        say(
            what,
            code=found.returncode,
            after=after.removeprefix("after: "),
            said=found.stdout[:400],
        )


if __name__ == "__main__":
    globals()[sys.argv[1]]()
