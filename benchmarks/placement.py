"""Whether a process is slow all its life, and whether the placement of its memory is the reason.

`python benchmarks/placement.py [PROCESSES SECONDS]` starts processes (default 12), plain, with huge
pages and without MKL's buffers in turns, and keeps all of them alive.  Each draws the operands of a
product (n = 1024, FP32) and of a triad (3 x 32 MB) twice.  They are timed in turns for SECONDS
(default 36), so that the machine's own changes hit all of them alike: a process that is slow for
life is slow in each round.  Prints the figures of docs/accuracy.md.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

WAYS: dict[str, dict[str, str]] = {
    "plain": {},
    "huge pages": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"},
    "packed anew": {"MKL_DISABLE_FAST_MM": "1"},  # MKL keeps no buffer from call to call
}
SAMPLES = {"product": 4, "triad": 4}  # in each turn, by work
Times = dict[tuple[str, int], list[float]]  # by work and draw, one value for each round


def serve() -> None:
    """Answer each line on stdin with the fastest sample of each draw of each work."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))

    def product() -> Callable[[], Any]:
        a, b, c = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.empty(1024, 1024)
        return lambda: torch.matmul(a, b, out=c)

    def triad() -> Callable[[], Any]:
        a, b, c = torch.ones(1 << 23), torch.ones(1 << 23), torch.zeros(1 << 23)
        return lambda: torch.add(b, c, alpha=3.0, out=a)

    drawn = {"product": [product(), product()], "triad": [triad(), triad()]}
    for _ in sys.stdin:
        best = {work: [math.inf, math.inf] for work in drawn}
        for work, steps in drawn.items():
            for draw, step in enumerate(steps):
                step()
                for _ in range(SAMPLES[work]):
                    began = time.perf_counter()
                    step()
                    best[work][draw] = min(best[work][draw], time.perf_counter() - began)
        print(json.dumps(best), flush=True)


def measured(count: int, seconds: float) -> list[tuple[str, Times]]:
    ways = [way for way, _ in zip(cycle(WAYS), range(count), strict=False)]
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env={**os.environ, **WAYS[way]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for way in ways
    ]
    found: list[tuple[str, Times]] = [(way, defaultdict(list)) for way in ways]

    def turn(number: int) -> dict[str, list[float]]:
        worker = workers[number]
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
        return json.loads(worker.stdout.readline())

    try:
        for number in range(count):  # started and warm before the first round
            turn(number)
        until, forwards = time.monotonic() + seconds, True
        while time.monotonic() < until:
            for number in range(count) if forwards else reversed(range(count)):
                for work, draws in turn(number).items():
                    for draw, value in enumerate(draws):
                        found[number][1][work, draw].append(math.log(value))
            forwards = not forwards
    finally:
        for worker in workers:
            worker.kill()
    return found


def table(found: Sequence[tuple[str, Times]]) -> str:
    """Deviations from the median of each round: `for life` is what stays of a process, `of a draw`
    of its two draws; the error is what chance alone would leave."""
    rows = [
        "| memory | work | processes | for life, max/min | standard deviation | error | of a draw |"
    ]
    rows += ["|---|---|---|---|---|---|---|"]
    for work in SAMPLES:
        rounds = len(found[0][1][work, 0])
        level = [
            statistics.median(times[work, draw][i] for _, times in found for draw in (0, 1))
            for i in range(rounds)
        ]
        for way in WAYS:
            lives, errors, draws = [], [], []
            for own, times in found:
                if own != way:
                    continue
                off = [
                    [x - common for x, common in zip(times[work, draw], level, strict=True)]
                    for draw in (0, 1)
                ]
                both = [(one + two) / 2 for one, two in zip(*off, strict=True)]
                lives.append(statistics.median(both))
                far = statistics.median(abs(x - lives[-1]) for x in both)
                errors.append(1.25 * 1.4826 * far / math.sqrt(rounds))
                draws.append((statistics.median(off[0]) - statistics.median(off[1])) / 2)
            between = math.sqrt(statistics.fmean(x * x for x in draws))
            rows.append(
                f"| {way} | {work} | {len(lives)} | {math.exp(max(lives) - min(lives)):.3f} | "
                f"{statistics.stdev(lives):.2%} | {statistics.median(errors):.2%} | {between:.2%} |"
            )
            print(
                way, work, " ".join(f"{x:+.1%}" for x in lives), f"{rounds} rounds", file=sys.stderr
            )
    return "\n".join(rows)


def main() -> None:
    words = sys.argv[1:]
    if words == ["--serve"]:
        serve()
    else:
        count, seconds = map(int, words or (12, 36))
        print(table(measured(count, seconds)))


if __name__ == "__main__":
    main()
