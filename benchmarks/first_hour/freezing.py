"""Stops a process that uses a GPU: `python -m benchmarks.first_hour.freezing`."""

import json
import os
import signal
import subprocess
import sys
import time
from statistics import median
from typing import Any

from .truth import product, say, smi, wall

PAUSES_S = (0.05, 0.2, 1.0, 5.0, 20.0)
SERVER = [sys.executable, "-m", "benchmarks.first_hour.freezing", "serve"]
SETTLED = 1.05  # steps within 5 % of the final ones
MOST_QUEUED = 400  # well below the about 1000 launches that fill a queue
MOST_STEPS, LEAST_STEPS, STEPS_S = 400, 60, 0.6  # a slow card takes fewer steps in the time
KIND = "fp16"  # which tensor cores of every card since Volta multiply


def frozen() -> None:
    """The steps of a process after SIGSTOP, and the work that it had queued."""
    child = subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(line: str) -> Any:
        child.stdin.write(line + "\n")
        child.stdin.flush()
        return json.loads(child.stdout.readline())

    ask(f"steps {MOST_STEPS}")
    for pause_s in PAUSES_S:
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(pause_s)
        clock = smi("clocks.sm")
        os.kill(child.pid, signal.SIGCONT)
        steps = ask(f"steps {MOST_STEPS}")
        limit, count = SETTLED * median(steps[-50:]), len(steps)
        settled = next((i for i in range(count - 5) if max(steps[i : i + 5]) < limit), count)
        facts = {"first_ms": steps[:4], "steps": settled, "ms": sum(steps[:settled])}
        say("resumed", frozen_s=pause_s, clock_before=clock, **facts)
    issued = ask("queue 2")  # answered once all is queued
    os.kill(child.pid, signal.SIGSTOP)
    busy = []
    for _ in range(8):
        busy.append(smi("utilization.gpu,power.draw.instant"))
        time.sleep(0.5)
    os.kill(child.pid, signal.SIGCONT)
    done = json.loads(child.stdout.readline())
    say("frozen with work queued", each_half_second=busy, **issued, **done)
    child.stdin.close()
    child.wait()


def serve() -> None:
    """Answers `frozen`: `steps N` times up to N products, `queue N` queues longer ones for N s."""
    import torch

    for line in sys.stdin:
        word, number = line.split()
        if word == "steps":
            step = product(8192, KIND)  # the host's jitter is far below 5 % of it
            times: list[float] = []
            while len(times) < LEAST_STEPS or (sum(times) < STEPS_S and len(times) < int(number)):
                times += wall(lambda step=step: (step(), torch.cuda.synchronize()), 1)
            print(json.dumps([1e3 * each for each in times]), flush=True)
            continue
        step = product(12288, KIND)  # few and long: a full queue would block the host
        step()
        torch.cuda.synchronize()
        [step_s] = wall(lambda step=step: (step(), torch.cuda.synchronize()), 1)
        began = time.perf_counter()
        for _ in range(min(MOST_QUEUED, round(int(number) / step_s))):
            step()
        print(json.dumps({"issued_s": time.perf_counter() - began}), flush=True)
        torch.cuda.synchronize()
        print(json.dumps({"done_s": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else frozen()
