"""Sizes for a model's inputs: given by the user, fixed in the model, or suggested by names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from .errors import bad_input, bad_model
from .load import SHAPES_HINT, TYPES

Axis = int | str | None
Shapes = Mapping[str, Sequence[int]]  # by the name of the input
LARGEST_INPUTS = 2**30  # bytes of one sample of all inputs
TRIALS = 48  # most sets of sizes to try
# Sizes to try for axes whose names suggest none, or a wrong one.
SIZES = (224, 128, 512, 576, 48, 64, 32, 256, 16, 320, 640, 1)
CHANNELS = (3, 1)
PICTURE, LATENT = 224, 64  # sides in pixels; the second with other channels than pictures have
SUM = " + "  # in the name of an axis
_CHANNELS_LAST = (1, 3, 4)  # sizes of a fixed last axis that holds channels
_NAMELESS = re.compile(r"\W*|-?\d+|none|unk_*\d*", re.IGNORECASE)
_BATCH = re.compile(r"batch|^(n|b|bs)$", re.IGNORECASE)
SECOND = 16000  # audio, in samples
# Sizes by the names that exporters use for an axis, the clearest names first.
_BY_NAME = (
    (re.compile(r"channel|^c$", re.IGNORECASE), 3),
    (re.compile(r"height|width|^[hw]$|image|pixel", re.IGNORECASE), PICTURE),
    (re.compile(r"audio|wav", re.IGNORECASE), SECOND),
    (re.compile(r"total", re.IGNORECASE), 144),  # the next two together
    (re.compile(r"past|cache", re.IGNORECASE), 16),
    (re.compile(r"seq|len|tok|time|frame|^[tsl]$", re.IGNORECASE), 128),
)
_WAVES = re.compile(r"audio|wav|speech|^input_values$", re.IGNORECASE)  # inputs of audio
_STATE = re.compile(r"state|hidden|^[hc](_?\d|n|_in)?$", re.IGNORECASE)  # state of a recurrent net
_RATE = re.compile(r"^sr$|samp\w*_?rate", re.IGNORECASE)
AUDIO = 512  # samples, where an input shows that the model takes audio
FEATURES = (1, 80, 3000)  # Whisper takes 30 s only: batch, mel bands, frames
_BY_RANK = {4: (1, 3, PICTURE, PICTURE), 5: (1, 3, 16, 112, 112), 3: (1, 128, 64), 2: (1, 128)}


@dataclass
class Input:
    """One input as the model declares it; `axes` is None without a declared rank."""

    name: str
    type: str
    axes: list[Axis] | None


@dataclass
class Sizes:
    """The batch, and the shape of every input."""

    batch: int | None
    shapes: dict[str, list[int]]


def ports(values: Sequence[Any]) -> list[Input]:
    """Inputs or outputs of the graph as declared; a negative size counts as dynamic."""
    found = []
    for value in values:
        tensor = value.type.tensor_type
        axes = [_axis(dim) for dim in tensor.shape.dim] if tensor.HasField("shape") else None
        found.append(Input(value.name, TYPES.get(tensor.elem_type, "unknown"), axes))
    return found


def _axis(dim: Any) -> Axis:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return None if _NAMELESS.fullmatch(dim.dim_param) else dim.dim_param


def shown(inputs: Sequence[Input]) -> str:
    """The inputs and their shapes, for messages: `x [batch, 3, ?, ?], sr []`."""
    return ", ".join(
        f"{port.name} [{', '.join('?' if axis is None else str(axis) for axis in port.axes)}]"
        if port.axes is not None
        else f"{port.name} of any shape"
        for port in inputs
    )


def possible_sizes(inputs: Sequence[Input], given: Shapes, batch: int | None) -> Iterator[Sizes]:
    """Sets of sizes worth trying, the likeliest first; WorkloadError if there is none."""
    _check_given(inputs, given)
    keys = batch_keys(inputs)
    known = {
        _key(port, axis): size
        for port in inputs
        for axis, size in enumerate(given.get(port.name, ()))
    }
    inputs = [
        replace(port, axes=list(given[port.name])) if port.name in given else port
        for port in inputs
    ]
    for port in inputs:
        if port.axes is None:
            hint = f"pass it: --shape {port.name}=1,3,224,224"
            raise bad_model(f"input {port.name} has no declared shape", hint)
        if 0 in port.axes and port.name not in given:  # a cache may be empty
            place = f"input {port.name} has an axis of size 0: {shown([port])}"
            raise bad_model(place, "export it with a dynamic axis, or without that input")
    used = _batch(inputs, keys, known, batch)
    known = {**dict.fromkeys(keys, used or 1), **known}
    fits = False
    for sizes in _sizes(inputs, known, used or 1):
        shapes = {
            port.name: [
                axis if isinstance(axis, int) else sizes[_key(port, place)]
                for place, axis in enumerate(port.axes or ())
            ]
            for port in inputs
        }
        if 8 * sum(map(prod, shapes.values())) <= LARGEST_INPUTS:
            fits = True
            yield Sizes(used, shapes)
    if not fits:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise bad_model(f"the inputs are too large to generate: {listed}", SHAPES_HINT)


def _check_given(inputs: Sequence[Input], given: Shapes) -> None:
    by_name = {port.name: port for port in inputs}
    the_inputs = f"the inputs are {shown(inputs)}" if inputs else "the model has no inputs"
    for name, shape in given.items():
        option = f"--shape {name}={','.join(map(str, shape))}"
        if name not in by_name:
            raise bad_input(f"{option}: there is no such input", the_inputs)
        axes = by_name[name].axes
        if axes is None:
            continue
        if len(axes) != len(shape):
            raise bad_input(f"{option} has {len(shape)} axes, the input {len(axes)}", the_inputs)
        for place, (axis, size) in enumerate(zip(axes, shape, strict=True)):
            if isinstance(axis, int) and axis != size:
                raise bad_input(f"{option}: axis {place} is fixed at {axis}", the_inputs)


def _key(port: Input, place: int) -> Any:
    """The key of a size: axes of the same name share one, axes without a name do not."""
    axis = port.axes[place] if port.axes is not None else None
    return axis if isinstance(axis, str) else (port.name, place)


def batch_keys(inputs: Sequence[Input]) -> list[Any]:
    """The keys of batch axes: an axis with the batch in its name, else a dynamic first axis, but
    not one of few axes that is named like a sequence."""
    found: dict[Any, None] = {}
    for port in inputs:
        axes = port.axes or []
        named = [axis for axis in axes if isinstance(axis, str) and _BATCH.search(axis)]
        if named:
            found[named[0]] = None
        elif axes and not isinstance(axes[0], int) and (len(axes) > 3 or not _by_name(axes[0])):
            found[_key(port, 0)] = None
    return list(found)


def counts_batch(inputs: Sequence[Input], port: Input) -> bool:
    """Whether the first axis of `port` is the batch."""
    return bool(port.axes) and _key(port, 0) in batch_keys(inputs)


def _batch(
    inputs: Sequence[Input], keys: Sequence[Any], known: Mapping[Any, int], batch: int | None
) -> int | None:
    """The batch to run; a fixed one is the first axis of the first input with two or more."""
    shaped = next((known[key] for key in keys if key in known), None)
    if shaped is not None:
        if batch is not None and batch != shaped:
            message = f"--batch {batch} and --shape contradict each other: its batch is {shaped}"
            raise bad_input(message, "pass one of the two")
        return shaped
    if keys:
        return 1 if batch is None else batch
    first = next((p.axes[0] for p in inputs if p.axes is not None and len(p.axes) > 1), None)
    fixed = first if isinstance(first, int) else None
    if batch is not None and batch != fixed:
        is_fixed = "has no batch axis" if fixed is None else f"has a batch fixed at {fixed}"
        text = f"the model {is_fixed}: it cannot run with --batch {batch}"
        hint = "export it with a dynamic first axis (torch.onnx.export: dynamic_axes)"
        raise bad_input(text, hint)
    return fixed


def _sizes(
    inputs: Sequence[Input], known: Mapping[Any, int], batch: int
) -> Iterator[dict[Any, int]]:
    """Values for dynamic axes: a guess, then SIZES where names are unclear, then anywhere."""
    guess, by_name, open_axes, channels = dict(known), [], [], []
    audio = any(_RATE.search(port.name) for port in inputs)
    for port in inputs:
        axes = port.axes or []
        channels_last = len(axes) == 4 and axes[3] in _CHANNELS_LAST
        is_latent = len(axes) == 4 and isinstance(axes[1], int) and axes[1] not in CHANNELS
        usual = dict(enumerate((1, 224, 224, 3) if channels_last else _BY_RANK.get(len(axes), ())))
        for place, axis in enumerate(axes):
            key = _key(port, place)
            if isinstance(axis, int) or key in guess:
                continue
            named = _of_audio(port, place) or _by_name(axis)
            size = AUDIO if audio and len(axes) == 2 else named or usual.get(place, 16)
            guess[key] = LATENT if is_latent and not channels_last and size == PICTURE else size
            if axis is None and place == 1 and len(axes) == 3 and _STATE.search(port.name):
                guess[key] = batch
            elif named is not None:
                by_name.append(key)
            elif len(axes) == 4 and place == 1 and not channels_last:
                channels.append(key)
            else:
                open_axes.append(key)
    tried: list[dict[Any, int]] = []
    everywhere = [*open_axes, *by_name]
    groups = [], open_axes, everywhere, *([key] for key in everywhere)
    for keys, count, size in product(groups, CHANNELS, SIZES):
        varied = {**guess, **dict.fromkeys(keys, size), **dict.fromkeys(channels, count)}
        sums = {key: _sum(key, varied) for key in varied if key not in known and SUM in key}
        sizes = {**varied, **{key: size for key, size in sums.items() if size is not None}}
        if sizes not in tried:
            tried.append(sizes)
            yield sizes
        if len(tried) == TRIALS:
            return


def _of_audio(port: Input, place: int) -> int | None:
    """The size of an axis by the name of its input, if that holds audio."""
    axes = port.axes or []
    if len(axes) == 3 and port.name == "input_features":
        return FEATURES[place]
    is_last = place == len(axes) - 1 and axes[1:-1] in ([], [1]) and port.type.startswith("float")
    return SECOND if is_last and _WAVES.search(port.name) else None


def _by_name(axis: Axis) -> int | None:
    if not isinstance(axis, str):
        return None
    return next((size for pattern, size in _BY_NAME if pattern.search(axis)), None)


def _sum(axis: str, sizes: Mapping[Any, int]) -> int | None:
    """The size of an axis such as "past_sequence_length + sequence_length"; None: unknown."""
    parts = [int(e) if e.isdecimal() else sizes.get(e, _by_name(e)) for e in axis.split(SUM)[:4]]
    known = [size for size in parts if size is not None]
    return sum(known) if len(known) == len(parts) else None
