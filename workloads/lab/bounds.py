"""Upper bounds of a variant's error on unseen inputs from the same source.

The inputs that choose a variant and those that check it are split at random.  So a variant over the
limit is recommended only if both bounds are too low for it: with a chance of 0.05 x 0.025, or of
0.025 for the mixed variant, which is fitted to the inputs that choose.  The chance of any such
error stays below 0.05 for up to twenty variants.
"""

import math
from collections.abc import Sequence

from workbench.stats.paired import student_t_quantile
from workbench.worker.libraries import Array, np

from . import agreement
from .agreement import Part
from .samples import Samples

CHOOSE, CHECK = 0.05, 0.025  # chance of a bound that is too low
SURE = 0.9  # the least that the largest of many probabilities reaches
FEW = 20  # effective number of inputs that make the error of probabilities; fewer allow no bound
FEWEST = 40  # inputs from which on the bound of a relative error holds where errors are skewed


def fewest(metric: str, limit: float, chance: float = CHECK, *, labels: bool = False) -> int | None:
    """The number of inputs from which on a bound can meet `limit`; None: no number can.  `labels`:
    an output holds labels, so that its error is a share."""
    if metric == "relative_error" and not labels:
        return FEWEST
    if limit <= 0:
        return None
    return max(FEWEST, 1 if limit >= 1 else math.ceil(math.log(chance) / math.log1p(-limit)))


def promised(
    answers: Samples,
    references: Samples,
    metric: str,
    limit: float | None,
    chance: float | None,
    parts: Sequence[Sequence[Part]] = (),
) -> float | None:
    """As `upper`; None without limit or chance, or with too few inputs for a bound within it."""
    if limit is None or chance is None:
        return None
    least = fewest(metric, limit, chance, labels=any(map(agreement.holds_labels, references[0])))
    is_enough = least is not None and len(answers) >= least
    return upper(answers, references, metric, chance, parts) if is_enough else None


def upper(
    answers: Samples,
    references: Samples,
    metric: str,
    chance: float,
    parts: Sequence[Sequence[Part]] = (),
) -> float | None:
    """The upper bound of the worst output's error, which is too low with `chance` at most; None if
    few inputs make the error of an output."""
    worst = 0.0
    outputs = zip(zip(*answers, strict=True), zip(*references, strict=True), strict=True)
    for place, output in enumerate(outputs):
        pairs = list(zip(*output, strict=True))
        if metric == "relative_error" and not agreement.holds_labels(pairs[0][1]):
            for _, piece in agreement.pieces(pairs, parts[place] if parts else ()):
                found = [reference for _, reference in piece]
                if _is_made_by_few(found):
                    return None
                off, whole, *_ = np.array([agreement.sums(*pair) for pair in piece]).T
                is_label = not off.any() and _counts(found)
                bound = _binomial(0, len(off), chance) if is_label else _ratio(off, whole, chance)
                worst = max(worst, bound)
        elif agreement.has_classes(pairs[0][1]):
            # A sample with several labels or rows counts by the share of those that differ.  Even
            # if none did, a share of unseen ones may.
            changed = math.ceil(sum(agreement.differing(*pair) for pair in pairs) - 1e-9)
            worst = max(worst, _binomial(changed, len(pairs), chance))
    return worst


def _counts(references: Sequence[Array]) -> bool:
    """Whether an output holds whole numbers, such as those of classes, and not always the same.
    That none was seen to change does not say that none will."""
    is_whole = all(np.array_equal(each, np.rint(each)) for each in references)
    return is_whole and not all(np.array_equal(each, references[0]) for each in references)


def _is_made_by_few(references: Sequence[Array]) -> bool:
    """Whether an output holds probabilities that are near 0 or 1 for most inputs.  The others make
    nearly all of the error, since p is off by p (1 - p) times the error of its logit."""
    ends = [(each.min(initial=0), each.max(initial=0)) for each in references]
    if min(low for low, _ in ends) < 0 or not SURE <= max(high for _, high in ends) <= 1:
        return False
    spread = np.array([np.square(p * (1 - p), dtype=float).sum() for p in references])
    return bool(spread.sum() ** 2 < FEW * np.square(spread).sum())


def _ratio(off: Array, whole: Array, chance: float) -> float:
    """The bound of the root of E[off] / E[whole]: Student's t for a ratio of means (W. Cochran,
    Sampling Techniques, 1977, section 6.4), corrected for skewness, and a part for the tail.

    Inputs that are too rare to be among these with certainty, such as those beyond a calibrated
    range, count as the worst one.
    """
    if not off.any() or not whole.any():
        return float(off.any())
    count, mean = len(off), whole.mean()
    found = off.mean() / mean
    residuals = off - found * whole
    deviation = residuals.std(ddof=1)
    skewness = (residuals**3).mean() / deviation**3 / math.sqrt(count) if deviation else 0.0
    quantile = _skewed(student_t_quantile(1 - chance, count - 1), skewness)
    rare = (1 - chance ** (1 / count)) * off.max() / mean
    return math.sqrt(found + quantile * deviation / math.sqrt(count) / mean + rare)


def _skewed(quantile: float, skewness: float) -> float:
    """The quantile of a mean's upper bound, larger where few large values make the mean (P. Hall,
    J. R. Statist. Soc. B 54, 1992); `skewness` is that of values over the root of their number."""
    if not skewness:
        return quantile
    return float(1 - np.cbrt(1 - skewness * (quantile + skewness / 6))) * 3 / skewness


def _binomial(differing: int, count: int, chance: float) -> float:
    """The upper bound of a share (C. Clopper and E. Pearson, Biometrika 26, 1934)."""
    if differing >= count:
        return 1.0
    low, high = differing / count, 1.0
    for _ in range(40):  # halves the interval each time
        share = (low + high) / 2
        below = sum(  # a float holds these for up to 1029 inputs; more never check
            math.comb(count, k) * share**k * (1 - share) ** (count - k)
            for k in range(differing + 1)
        )
        low, high = (share, high) if below > chance else (low, share)
    return high
