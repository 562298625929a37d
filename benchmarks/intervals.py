"""Whether the stated 95 % intervals of a ratio hold on simulated noise, and how wide they are.

`python -m benchmarks.intervals rounds [TRIALS]`: rounds that follow a first-order process, with the
product's factor and with one for drift that was left out (docs/decisions/025-tails-and-drift.md).
`python -m benchmarks.intervals tails [TRIALS] [KIND...]`: 99th percentiles of autocorrelated
latencies with stalls of 4 ms in some blocks, against the paired percentiles of single blocks.
`python -m benchmarks.intervals looks [TRIALS]`: how often races of two equal candidates end with a
lead, by how they are looked at (docs/decisions/004-race.md).
Prints Markdown.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any
from unittest.mock import patch

import numpy as np

from workbench.stats import ratios, samples as stats
from workbench.stats.paired import Ratio, paired_ratio
from workbench.stats.tails import tail_of, tail_ratio

ROUNDS, CORRELATIONS = (4, 6, 8, 12, 20, 40), (0.0, 0.3, 0.5, 0.7)
# Share of the blocks that stall, and of the samples that do in these and in the others.
KINDS = {"none": (0, 0, 0), "rare": (0.1, 0.02, 0.001), "often": (0.3, 0.08, 0.01)}
LAYOUTS = ((3, 100), (5, 100), (15, 34), (5, 200), (10, 100), (8, 250), (20, 100), (20, 250))
STEPS_S, STALL_S = (3e-4, 3.9e-4), 4e-3
ENDS = (4, 5, 6, 8, 10, 14, 20, 28, 40)  # rounds for which a race has time
DRIFT = 0.55  # correlation of neighbouring rounds that `proposed` assumes
SAME_STATE = 0.3  # probability that a block is in the state of the one before


def proposed(values: Sequence[float]) -> float:
    """A factor that tests for drift first.

    Values whose lag-1 autocorrelation is not above that of independent ones keep their error.  The
    others have that of a first-order process whose rho is 0.55 or the r found, with the variance of
    its innovations (Prais and Winsten 1954), with a ramp between the two.
    """
    n = len(values)
    alike = stats.autocorrelation(values) if n > stats.MIN_PAIRS else 0.0
    if alike == 0:
        return 1.0
    rho, r = max(alike, DRIFT), alike - 1 / n
    drifting = n * (1 + rho * rho - 2 * rho * r) / ((1 - rho) * (n - (n - 2) * rho))
    certain = min(1.0, alike / max(0.05, DRIFT - 1.6 / math.sqrt(n)))
    return math.sqrt(1 + certain * max(drifting - 1, 0))


def process(rng: np.random.Generator, n: int, correlation: float) -> list[float]:
    steps = rng.normal(0, 0.02, n)
    for i in range(1, n):
        steps[i] = correlation * steps[i - 1] + math.sqrt(1 - correlation**2) * steps[i]
    return [math.exp(step) for step in steps]


def rounds(trials: int) -> None:
    print("| rounds | correlation | holds | proposed holds | its width over ours, median | mean |")
    print("|---|---|---|---|---|---|")
    for n in ROUNDS:
        for correlation in CORRELATIONS:
            rng = np.random.default_rng(2026)
            ours, theirs, widths = 0, 0, []
            for _ in range(trials):
                values, ones = process(rng, n, correlation), [1.0] * n
                found = paired_ratio(values, ones)
                with patch.object(stats, "drift_factor", proposed):
                    other = paired_ratio(values, ones)
                assert found is not None and other is not None
                ours += found.low <= 1 <= found.high
                theirs += other.low <= 1 <= other.high
                widths.append(math.log(other.high / other.low) / math.log(found.high / found.low))
            print(
                f"| {n} | {correlation} | {ours / trials:.1%} | {theirs / trials:.1%} "
                f"| {median(widths):.2f} | {fmean(widths):.2f} |",
                flush=True,
            )


def looks(trials: int) -> None:
    print("| rounds | all looks | with a last look | a plain interval at every look |")
    print("|---|---|---|---|")
    kinds = {"independent": 0.0, "correlated by 0.5": 0.5}
    for kind, correlation in kinds.items():
        rng = np.random.default_rng(2026)
        found = np.zeros(3)
        for _ in range(trials):
            n = int(rng.choice(ENDS))
            values, ones = process(rng, n, correlation), dict.fromkeys(range(n), 1.0)
            seen, early, plain = {}, False, False
            for number, value in enumerate(values):
                seen[number] = value
                if len(seen) >= stats.MIN_PAIRS and not early:
                    early = differs(ratios.decisive_ratio(seen, ones))
                    plain |= differs(ratios.ratio_between(seen, ones))
            last = early or differs(ratios.decisive_ratio(seen, ones, is_last=True))
            found += early, last, plain
        shares = " | ".join(f"{share:.2%}" for share in found / trials)
        print(f"| {kind} | {shares} |", flush=True)


def differs(ratio: Ratio | None) -> bool:
    return ratio is not None and not ratio.low <= 1 <= ratio.high


def latencies(rng: np.random.Generator, kind: str, blocks: int, size: int) -> list[Any]:
    """Samples of two candidates, which share the speed of a round but not its stalls."""
    often, stalling, calm = KINDS[kind]
    speed, found = rng.normal(0, 0.03, (blocks, 1)), []
    for step_s in STEPS_S:
        stalls = rng.random(blocks) < often
        for i in range(1, blocks):
            stalls[i] = stalls[i - 1] if rng.random() < SAME_STATE else stalls[i]
        noise = rng.normal(size=(blocks, size))
        for j in range(1, size):
            noise[:, j] = 0.5 * noise[:, j - 1] + math.sqrt(0.75) * noise[:, j]
        own = rng.normal(0, 0.01, (blocks, 1)) + 0.04 * rng.standard_t(3, (blocks, size))
        hit = rng.random((blocks, size)) < np.where(stalls, stalling, calm)[:, None]
        stall_s = STALL_S * rng.uniform(0.5, 1.5, (blocks, size))
        found.append(step_s * np.exp(speed + 0.05 * noise + own) + hit * stall_s)
    return found


def tails(trials: int, kinds: Iterable[str]) -> None:
    print("| stalls | blocks | holds | half-width | by single blocks: holds | half-width |")
    print("|---|---|---|---|---|---|")
    for kind in kinds:
        long_run = latencies(np.random.default_rng(9), kind, 6000, 400)
        truth = np.quantile(long_run[0], 0.99) / np.quantile(long_run[1], 0.99)
        for blocks, size in LAYOUTS:
            rng = np.random.default_rng(5)
            held, widths = [0, 0], ([], [])
            for _ in range(trials):
                both = latencies(rng, kind, blocks, size)
                by_block = [np.quantile(each, 0.99, axis=1).tolist() for each in both]
                logs = np.log(by_block[0]) - np.log(by_block[1])
                first, second = (tail_of(each.tolist()) for each in both)
                assert first is not None and second is not None
                found = tail_ratio(first, second, logs.tolist(), 0.95)
                alone = paired_ratio(by_block[0], by_block[1])
                assert alone is not None
                for i, ratio in enumerate((found, alone)):
                    held[i] += bool(ratio.low <= truth <= ratio.high)
                    widths[i].append(math.sqrt(ratio.high / ratio.low))
            each = zip(held, widths, strict=True)
            columns = (f"{hits / trials:.1%} | x{median(width):.2f}" for hits, width in each)
            print(f"| {kind} | {blocks} x {size} | {' | '.join(columns)} |", flush=True)


def main() -> None:
    part, *words = sys.argv[1:] or ["rounds"]
    trials = int(words[0]) if words else 300
    if part == "rounds":
        rounds(trials)
    elif part == "looks":
        with patch.object(ratios, "RUN_TO_RUN", 0.0):
            looks(trials)
    else:
        tails(trials, words[1:] or KINDS)


if __name__ == "__main__":
    main()
