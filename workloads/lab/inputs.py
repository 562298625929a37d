"""A user's own inputs: the samples in an .npz file, checked against the model's inputs."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.contract import WorkloadError
from workbench.files import read
from workbench.worker.libraries import Array, np

from . import bounds
from .errors import bad_input, one_line
from .shapes import Input, Shapes, Sizes, counts_batch, possible_sizes, shown

AT_MOST = 256  # samples to calibrate with, and to choose on unless a bound needs more
CHECK_SHARE = 0.4  # share of the samples kept apart to check the chosen variant
CALIBRATION_SHARE = 0.4  # share of the rest to calibrate with, unless each also chooses
ENOUGH_APART = 400  # samples in the rest, below which each calibrates and chooses
ENOUGH_FOR_BOTH = 4  # samples from which half choose and half calibrate


@dataclass
class Chosen:
    """The inputs to run a model on: samples by input name, in the model's order."""

    sizes: Sizes
    choose: list[dict[str, Array]]
    calibration: list[dict[str, Array]]
    origins: dict[str, str]  # input to the origin of its values
    source: str
    same: bool = False  # too few to separate `choose` from `calibration`
    check: list[dict[str, Array]] = field(default_factory=list)  # empty if they are too few
    folded: bool = False  # the same samples calibrate and choose, by cross-validation


def samples_in(
    file: str,
    inputs: Sequence[Input],
    shapes: Shapes,
    batch: int | None,
    fewest: int | None = None,
    seed: int = 0,
    *,
    foldable: bool = False,
) -> Chosen:
    """The samples in `file`, split at random; WorkloadError `bad_input` if they do not fit.

    An array of the input's rank holds batches along its first axis; one with an additional first
    axis holds samples along that.  A single sample of an input serves for all.  Samples to check on
    are kept apart if there are `fewest`; if few remain, and if `foldable`, these are
    cross-validated.
    """
    arrays = _arrays(Path(file), inputs)
    ports = [_as_given(port, arrays[port.name], shapes) for port in inputs]
    split = {
        port.name: _samples(port, _cast(port, arrays[port.name]), counts_batch(ports, port), batch)
        for port in ports
    }
    found = {name: list(made[0].shape) for name, made in split.items()}
    sizes = next(possible_sizes(inputs, {**shapes, **found}, batch))
    count = _count({name: len(made) for name, made in split.items()})
    samples = [
        {name: made[number if len(made) > 1 else 0] for name, made in split.items()}
        for number in range(count)
    ]
    name = Path(file).name
    origins = {port.name: f"from {one_line(name)}" for port in inputs}
    if count < ENOUGH_FOR_BOTH:
        return Chosen(sizes, samples, samples, origins, name, same=True)
    # At random, since files are often sorted by class.
    samples = [samples[place] for place in np.random.default_rng(seed).permutation(count)]
    apart = int(CHECK_SHARE * count)
    if fewest is None or apart < fewest:
        apart = 0
    check, rest = samples[:apart], samples[apart:]
    folded = foldable and bool(check) and len(rest) < ENOUGH_APART
    cut, most = count // 2, AT_MOST
    if check:  # leave as many to choose as a bound needs
        cut = min(round(CALIBRATION_SHARE * len(rest)), len(rest) - bounds.FEWEST)
        most = max(most, fewest or 0)
    calibration, choose = (rest, rest) if folded else (rest[:cut], rest[cut:])
    calibration, choose = calibration[:AT_MOST], choose[:most]
    return Chosen(sizes, choose, calibration, origins, name, check=check, folded=folded)


def _arrays(path: Path, inputs: Sequence[Input]) -> dict[str, Array]:
    """Exactly one array for every input."""
    names = [port.name for port in inputs]
    if not names:
        raise bad_input(f"the model has no inputs to fill from {path.name}", "drop --inputs")
    hint = f"write it with numpy.savez(path, **{{{names[0]!r}: array}}), an array for each input"
    try:
        with read.opened(path) as file:
            if file.read(2) != b"PK":
                raise bad_input(f"{path.name} is not an .npz file", hint)
            file.seek(0)
            entries = np.load(file, allow_pickle=False)
            if set(entries.files) != set(names):
                held = ", ".join(entries.files) or "nothing"
                message = f"{path.name} holds {held}; the model's inputs are {', '.join(names)}"
                raise bad_input(message, hint)
            return {name: np.asarray(entries[name]) for name in names}
    except MemoryError:
        raise
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error):
            message = f"{path.name} holds Python objects, which are not loaded"
            raise bad_input(message, "save arrays of numbers, each with one shape") from None
        why = getattr(error, "strerror", None) or error
        raise bad_input(f"{path.name} cannot be read: {why}", hint) from None


def _as_given(port: Input, array: Array, shapes: Shapes) -> Input:
    """The input with its given shape; one without a declared rank gets the shape of its array."""
    if port.name in shapes:
        return Input(port.name, port.type, list(shapes[port.name]))
    return port if port.axes is not None else Input(port.name, port.type, list(array.shape))


def _cast(port: Input, array: Array) -> Array:
    """`array` in the input's type; WorkloadError if more than decimal places would be lost."""
    wanted = np.dtype(port.type)
    message = f"{port.name} holds {array.dtype}, the model takes {port.type}"
    hint = f"convert it with array.astype('{port.type}'), scaled as the model expects it"
    if array.shape[:1] == (0,):
        raise bad_input(f"{port.name} is empty: its shape is {list(array.shape)}", "fill it")
    kinds = {array.dtype.kind, wanted.kind}
    if not (kinds == {"f"} or kinds <= {"i", "u"} or array.dtype == wanted):
        raise bad_input(message, hint)
    if wanted.kind in "iu" and array.size:
        limits = np.iinfo(wanted)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise bad_input(f"{message}, and the values do not fit", hint)
    with np.errstate(over="ignore"):
        made = array.astype(wanted, copy=False)
    if wanted.kind == "f" and not np.isfinite(made).all():
        text = f"{port.name} holds NaN or infinity in {port.type}"
        raise bad_input(text, "use finite numbers only")
    return made


def _samples(port: Input, array: Array, batched: bool, batch: int | None) -> list[Array]:
    """The samples in `array`; its first axis counts rows, or samples where it is additional."""
    axes = port.axes or []
    if array.ndim == len(axes) + 1:
        samples = list(array)
        if batched and batch not in (None, len(samples[0])):
            message = f"{port.name} holds samples of batch {len(samples[0])}, --batch is {batch}"
            raise bad_input(message, "drop --batch")
    elif array.ndim != len(axes):
        raise _misfit(port, array)
    elif not axes:
        samples = [array]
    else:
        dynamic = (batch or 1) if batched else len(array)
        rows = max(1, axes[0]) if isinstance(axes[0], int) else dynamic
        samples = [array[at : at + rows] for at in range(0, len(array) - rows + 1, rows)]
        if not samples:
            text = f"{port.name} has {len(array)} rows, a batch has {rows}"
            raise bad_input(text, f"add rows until there are {rows}, or choose a smaller --batch")
    for axis, size in zip(axes, samples[0].shape, strict=True):
        if isinstance(axis, int) and axis != size:
            raise _misfit(port, array)
    return [np.ascontiguousarray(sample).reshape(sample.shape) for sample in samples]


def _misfit(port: Input, array: Array) -> WorkloadError:
    text = f"{port.name} has shape {list(array.shape)}, the model takes {shown([port])}"
    hint = "the first axis may hold several batches, or an additional axis may count samples"
    return bad_input(text, hint)


def _count(counts: Mapping[str, int]) -> int:
    """The number of samples that all inputs agree on; a single sample serves for all."""
    several = {count for count in counts.values() if count > 1}
    if len(several) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        text = f"the inputs hold different numbers of samples: {listed}"
        raise bad_input(text, "use the same number of each")
    return several.pop() if several else 1
