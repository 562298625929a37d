"""The facts about a user's model that are known before timing, and the inputs to check it on."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.libraries import Array, np

from .._shared.onnx_model import LARGEST_MODEL
from . import agreement, bounds, graph, quantise, samples
from .errors import bad_model, clear_errors, one_line
from .inputs import CHECK_SHARE, Chosen, samples_in
from .load import Loaded, Original, load
from .samples import Samples
from .shapes import Axis, Input, Shapes, Sizes, batch_keys, ports as ports_of, possible_sizes
from .values import Maker

SAMPLES = 8  # random inputs to check on, and as many to calibrate with
FEWEST = 2
RANDOM_S = 2.0  # longest time of running all random inputs
GIVEN_S, USUAL = 10.0, 64  # longest time to run a part of the user's inputs, and its usual number
PART, FOLDED_PART = 1 / 4, 1 / 8  # the longest time as a share of that to inspect; less with folds
QUICK_S = 0.5  # in which more than USUAL may run; not longer, since each variant runs them too
FOLDABLE = 16 * 2**20  # bytes of the largest model whose variants are made again in each fold
MOST_CHECK, CHECK_BYTES = 1024, 384 * 2**20  # most samples that check, and bytes of their arrays
RANGE_HINT = "random inputs may be out of its range: pass real ones with --inputs data.npz"
LARGEST_VARIATION = 1e-4  # relative, between two runs of a model on the same input
RANDOM_HINT = "export it without random operators, or with the noise as an input"
TRIALS_S = 6.0  # longest search for sizes that run


def inspect(
    model: str,
    folder: str,
    shapes: Shapes,
    inputs: str | None,
    batch: int | None,
    seed: int,
    given: str | None = None,
    metric: str = "relative_error",
    limit: float | None = None,
    seconds: float = math.inf,
) -> dict[str, Any]:
    """Read the model, write inputs and its answers to `folder`; returns the fields of ModelFacts.

    `given` is a folder that has inputs and reference outputs already.  With a `limit`, inputs are
    kept apart to check it, if there are enough and the model runs on them in part of the
    `seconds`.  WorkloadError `bad_model` if the model cannot be read or run, `bad_input` if inputs
    or shapes do not fit it.
    """
    with clear_errors(f"{one_line(Path(model).name)} cannot be used"):
        loaded = load(model)
        original, why = Original(loaded), None
        # Inputs of the user's are kept apart to check if they are at least so many.
        fewest = None if limit is None else bounds.fewest(metric, limit, labels=original.labels)
        ports = ports_of(graph.free_inputs(loaded.proto))
        if given is not None:
            chosen = _from_folder(ports, Path(given))
        elif inputs is not None:
            for foldable in (loaded.size_bytes <= FOLDABLE, False):
                chosen = samples_in(inputs, ports, shapes, batch, fewest, seed, foldable=foldable)
                why = _keep_affordable(chosen, original, fewest, seconds)
                if why is None or not chosen.folded:  # without folds they take less time
                    break
        else:
            possible = possible_sizes(ports, shapes, batch)
            chosen = _random(original, loaded.proto, ports, possible, seed)
        reference, step_s = _reference(original, chosen, loaded.proto, is_random=inputs is None)
        _write(chosen, reference, Path(folder), given)
        is_sure = batch or given or batch_keys(ports) or chosen.sizes.batch == 1
        if not (is_sure or any(each.shape[:1] == (chosen.sizes.batch,) for each in reference[0])):
            chosen.sizes.batch = None  # a fixed first axis that no output has is no batch
        return {
            **_facts(loaded, ports, chosen, dict(zip(original.outputs, reference[0], strict=True))),
            "uncompared": original.uncompared,
            "step_s": step_s,
            "needed_inputs": None if fewest is None or why else math.ceil(fewest / CHECK_SHARE),
            "no_promise": why,
        }


def _reference(
    original: Original, chosen: Chosen, model: Any, *, is_random: bool
) -> tuple[Samples, float]:
    """The answers of the model as given, and the seconds of a run; WorkloadError if no variant can
    be compared with them."""
    began = time.perf_counter()
    reference = [original.run(each) for each in [*chosen.choose, *chosen.check]]
    step_s = (time.perf_counter() - began) / len(reference)
    if (output := _undefined(original.outputs, reference)) is not None:
        hint = RANGE_HINT if is_random else "pass other inputs"
        raise bad_model(f"the original model answers NaN or infinity in {output}", hint)
    if graph.may_be_random(model) and _varies(original, chosen.choose[0], reference[0]):
        message = "the model answers differently each time, so no variant can be judged"
        raise bad_model(message, RANDOM_HINT)
    return reference, step_s


def _write(chosen: Chosen, reference: Samples, folder: Path, answered: str | None) -> None:
    """Write the inputs and their reference outputs in place of earlier ones."""
    count = len(chosen.choose)
    references = samples.read(Path(answered, samples.REFERENCE)) if answered else reference[:count]
    for file, kept in (
        (samples.INPUTS, [list(sample.values()) for sample in chosen.choose]),
        (samples.CALIBRATION, [list(sample.values()) for sample in chosen.calibration]),
        (samples.CHECK, [list(sample.values()) for sample in chosen.check]),
        (samples.REFERENCE, references),
        (samples.CHECK_REFERENCE, reference[count:]),
    ):
        (folder / file).unlink(missing_ok=True)
        if kept:
            samples.write(folder / file, kept)
    for stale in (folder / samples.FOLDS, *folder.glob(f"*{samples.CHECKED}")):
        stale.unlink(missing_ok=True)
    if chosen.folded:
        (folder / samples.FOLDS).touch()


def _random(
    original: Original, model: Any, ports: Sequence[Input], possible: Iterable[Sizes], seed: int
) -> Chosen:
    """Random inputs in the first of the `possible` sizes that run."""
    first: WorkloadError | None = None
    began, maker = time.monotonic(), Maker(model, ports)
    for sizes in possible:
        trial, *parts = [np.random.default_rng([seed, part]) for part in (0, 0, 1)]
        try:
            run_s, answers = _run_s(original, maker.sample(sizes.shapes, trial))
        except WorkloadError as error:
            first = first or error
            if time.monotonic() - began > TRIALS_S:
                break
            continue
        if _undefined(original.outputs, [answers]):  # perhaps it takes a root of its inputs
            maker = Maker(model, ports, positive=True)
        count = max(FEWEST, min(SAMPLES, int(RANDOM_S / 2 / run_s))) if ports else 1
        choose, calibration = (
            [maker.sample(sizes.shapes, part) for _ in range(count)] for part in parts
        )
        return Chosen(sizes, choose, calibration, maker.origins, "random", same=not ports)
    raise first or bad_model("no sizes of its inputs were found with which it runs")


def _keep_affordable(
    chosen: Chosen, original: Original, fewest: int | None, seconds: float
) -> str | None:
    """Keep as many samples as run in time; returns why none can check variants, if so."""
    first = chosen.choose[0]
    run_s, answers = _run_s(original, first)
    size = sum(array.nbytes for array in [*first.values(), *answers])
    least, most = fewest or 0, min(MOST_CHECK, CHECK_BYTES // max(1, size))
    part_s = min(GIVEN_S, seconds * (FOLDED_PART if chosen.folded else PART))
    room, quick = (min(most, int(each / run_s)) for each in (part_s, min(QUICK_S, part_s)))
    usual, why = max(FEWEST, quick, min(room, USUAL)), None
    if least > most:
        room_text = f"at most {most} ({CHECK_BYTES >> 20} MiB)"
        why = f"it needs {least} held-out inputs, and {room_text} can be held out"
    elif least > room:
        why = f"the model is too slow to be run on {least} held-out inputs in {part_s:.3g} s"
        why += "; raise --budget" if part_s < GIVEN_S else ""
    chosen.check = [] if why else chosen.check[: max(least, quick)]
    count = max(usual, least) if chosen.check else usual
    chosen.choose = chosen.choose[:count]
    chosen.calibration = chosen.choose if chosen.folded else chosen.calibration[:usual]
    return why


def _from_folder(ports: Sequence[Input], folder: Path) -> Chosen:
    """All samples of a folder; the first axis is the batch if all inputs share it."""
    names = [port.name for port in ports]
    choose, calibration = (
        [dict(zip(names, each, strict=True)) for each in samples.read(folder / file)]
        for file in (samples.INPUTS, samples.CALIBRATION)
    )
    run_shapes = {name: list(array.shape) for name, array in choose[0].items()}
    first = {shape[0] for shape in run_shapes.values() if shape}
    sizes = Sizes(first.pop() if len(first) == 1 else None, run_shapes)
    same = len(calibration) == 1
    return Chosen(sizes, choose, calibration, dict.fromkeys(names, "given"), "given", same=same)


def _run_s(original: Original, sample: Mapping[str, Array]) -> tuple[float, list[Array]]:
    """The duration of a run and its answers; the first run warms up, unless it takes over 1 s."""
    for _ in range(2):
        began = time.perf_counter()
        answers = original.run(sample)
        took_s = time.perf_counter() - began
        if took_s > 1:
            break
    return max(took_s, 1e-6), answers


def _undefined(names: Sequence[str], reference: Samples) -> str | None:
    """The first output that nothing can be compared with: one with NaN, or with infinity only.
    Single infinities are fine, such as those behind a mask."""
    for name, arrays in zip(names, zip(*reference, strict=True), strict=True):
        for array in (each for each in arrays if each.dtype.kind == "f" and each.size):
            if np.isnan(array).any() or np.isinf(array).all():
                return name
    return None


def _varies(original: Original, sample: Mapping[str, Array], answers: Sequence[Array]) -> bool:
    """Whether another run on `sample` gives other answers."""
    again = original.run(sample)
    try:
        outputs = agreement.compare(original.outputs, [again], [answers])
    except WorkloadError:  # their shapes differ
        return True
    return agreement.summary(outputs, "relative_error") > LARGEST_VARIATION


def _facts(
    loaded: Loaded, ports: Sequence[Input], chosen: Chosen, answers: Mapping[str, Array]
) -> dict[str, Any]:
    model, unquantisable = loaded.proto, None
    if loaded.size_bytes > LARGEST_MODEL:  # the quantisers write one protocol buffer
        gigabytes = f"{loaded.size_bytes / 2**30:.1f} GiB"
        message = f"it has {gigabytes} of weights; the quantisers take 2 at most"
        unquantisable = {"code": "too_large", "message": message, "hint": None}
    return {
        "file": one_line(loaded.path.name),
        "sha256": loaded.sha256,
        "size_bytes": loaded.size_bytes,
        "ir_version": model.ir_version,
        "opset": graph.opset(model) or 0,
        "producer": one_line(f"{model.producer_name} {model.producer_version}"),
        "precision": graph.precision(model),
        "parameters": graph.parameters(model),
        "operators": {one_line(name): n for name, n in graph.operators(model).items()},
        "control_flow": graph.control_flow(model),
        "quantised": graph.is_quantised(model),
        "inputs": [
            _port(port, port.type, port.axes)
            | {"run_shape": chosen.sizes.shapes[port.name], "values": chosen.origins[port.name]}
            for port in ports
        ],
        "outputs": [
            _port(port, _type_of(answers[port.name]), port.axes or [None] * answers[port.name].ndim)
            for port in ports_of([o for o in model.graph.output if o.name in answers])
        ],
        "batch": chosen.sizes.batch,
        "samples": len(chosen.choose),
        "calibration_samples": len(chosen.calibration),
        "check_samples": len(chosen.check),
        "folds": quantise.FOLDS if chosen.folded else 0,
        "same_samples": chosen.same,
        "inputs_from": one_line(chosen.source),
        "unquantisable": unquantisable,
        # Below 4 ONNX Runtime takes them for constants.
        "weights_are_inputs": model.ir_version >= 4 and len(ports) < len(model.graph.input),
    }


def _type_of(array: Array) -> str:
    return "str" if array.dtype.kind == "U" else str(array.dtype)


def _port(port: Input, kind: str, axes: list[Axis] | None) -> dict[str, Any]:
    shape = [one_line(axis) if isinstance(axis, str) else axis for axis in axes or []]
    return {"name": one_line(port.name), "type": kind, "shape": shape}
