"""Photographs, generated or the user's own, cut for training, and the reference for resizing.

Generated ones are kept as encoded bytes in memory, not as files.  A decoder gets the same bytes as
from a file in the page cache, forked loaders share them, and a killed worker leaves no files.
"""

import io
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.libraries import Image, np

from .network import CLASSES

Source = bytes | Path

# Statistics of ImageNet's pixels in 0..1, as torchvision's pretrained models expect.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SCALES = (MEAN, STD)
# Pillow rounds to whole grey levels after each of its two passes, half a level each.  The rest is
# a margin for weights of 16 to 22 bits (Pillow's Resample.c, torch's UpSampleKernel.cpp).
EIGHT_BIT_LIMIT = 1.1 / 255
LONG_SIDES = (400, 600)  # pixels; ImageNet's pictures are about 500 x 375
OCTAVES = 7
SENSOR_NOISE = 3.0  # grey levels
FORMATS = ("jpeg", "png")
# "Going Deeper with Convolutions" (Szegedy et al., CVPR 2015): shares of the area, aspect ratios.
AREAS, ASPECTS, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
DECODED = 16  # files of a folder that are decoded beforehand, to find a wrong folder early


def photograph(rng: Any, width: int, height: int) -> Any:
    """A generated photograph: uint8 (height, width, 3).

    It compresses like a real one.  It has random structures of all sizes, whose amplitude falls
    with their frequency as in natural images (Field, "Relations between the statistics of natural
    images", 1987), colours that change more slowly than brightness, and sensor noise.
    """

    def structures(octaves: int) -> Any:
        total = np.zeros((height, width), np.float32)
        for octave in range(1, octaves + 1):
            grid = rng.standard_normal((2**octave, 2**octave), dtype=np.float32)
            smooth = Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC)
            total += np.asarray(smooth) * np.float32(1.6**-octave)
        return total * np.float32(60 / total.std())

    noise = rng.standard_normal((height, width), dtype=np.float32)
    light = 118 + structures(OCTAVES) + np.float32(SENSOR_NOISE) * noise
    pixels = np.stack([light + np.float32(0.3) * structures(3) for _ in range(3)], axis=-1)
    np.rint(pixels, out=pixels).clip(0, 255, out=pixels)
    return pixels.astype(np.uint8)


@lru_cache(maxsize=1)  # shared by the candidates of one worker
def encoded(count: int, kind: str, seed: int) -> tuple[bytes, ...]:
    """`count` photographs of different sizes and both orientations, in one of FORMATS."""
    rng = np.random.default_rng(seed)
    files = []
    for _ in range(count):
        side = int(rng.integers(*LONG_SIDES, endpoint=True))
        shape = (side, side * 3 // 4) if rng.random() < 0.7 else (side * 3 // 4, side)
        file = io.BytesIO()
        Image.fromarray(photograph(rng, *shape)).save(file, kind, quality=92)
        files.append(file.getvalue())
    return tuple(files)


def in_folder(name: str, seed: int) -> tuple[Path, ...]:
    """The user's pictures under folder `name`, shuffled and without hidden files.  WorkloadError
    "bad_input" if there is none, or if one of the first cannot be decoded."""

    def refuse(error: OSError) -> None:
        raise bad_input(f"{error.filename}: {error.strerror}")

    folder = Path(name).expanduser()
    found = sorted(
        Path(parent, name)
        for parent, _, names in os.walk(folder, onerror=refuse)
        for name in names
        if not name.startswith(".")
    )
    if not found:
        raise bad_input(f"{folder} has no files")
    order = np.random.default_rng(seed).permutation(len(found))
    pictures = tuple(found[place] for place in order)
    for picture in pictures[:DECODED]:
        decode(picture)
    return pictures


def decode(source: Source) -> Any:
    """A Pillow image in RGB; WorkloadError "bad_input" names a file that cannot be decoded."""
    name = source if isinstance(source, Path) else "a generated photograph"
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            return image.convert("RGB")
    except MemoryError:
        raise
    except Exception as error:  # on a damaged file Pillow's plugins raise almost any error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise bad_input(f"{name} cannot be decoded: {reason}") from None


def bad_input(message: str) -> WorkloadError:
    hint = "repair or remove the file, or choose another folder: --set images=FOLDER"
    return WorkloadError(message, code="bad_input", hint=hint)


def resample(pixels: Any, height: int, width: int) -> Any:
    """The reference: (h, w, 3) to (height, width, 3) in float64, bilinear with antialiasing."""
    rows, columns = bilinear(pixels.shape[0], height), bilinear(pixels.shape[1], width)
    return np.stack([rows @ plane @ columns.T for plane in np.moveaxis(pixels, -1, 0)], axis=-1)


def normalise(pixels: Any) -> Any:
    """The reference: (batch, h, w, 3) of 0..255 to (batch, 3, h, w) standardised, in float64."""
    return ((pixels / 255.0 - MEAN) / STD).transpose(0, 3, 1, 2)


def bilinear(size: int, target: int) -> Any:
    """The weights (target, size) of bilinear resizing with antialiasing: a triangle, as wide as the
    source pixels that a target pixel covers, but at least one to each side, and normalised."""
    scale = size / target
    centres = (np.arange(target) + 0.5) * scale
    distance = np.abs(np.arange(size) + 0.5 - centres[:, None]) / max(scale, 1.0)
    weights = np.maximum(0.0, 1.0 - distance)
    return weights / weights.sum(axis=1, keepdims=True)


class RandomCrops:
    """A data set of random parts of pictures; sample `n` is cut in the same way in every loader."""

    def __init__(self, sources: Sequence[Source], image: int, seed: int) -> None:
        self.sources, self.image, self.seed = sources, image, seed

    def __getitem__(self, samples: range) -> Any | str:
        """The batch of these samples: uint8 (batch, image, image, 3) and labels (batch).  If a file
        cannot be read, returns the error message: an exception from a loader would reach the parent
        with a traceback as its message."""
        try:
            pixels = np.stack([self.picture(sample) for sample in samples])
        except WorkloadError as error:
            return str(error)
        return pixels, np.array([self.label(sample) for sample in samples])

    def label(self, sample: int) -> int:
        """A class from the number of the file, so that folders need no labels."""
        return sample % len(self.sources) % CLASSES

    def picture(self, sample: int, *, exact: bool = False) -> Any:
        """A random part, (image, image, 3), resized by Pillow, or exactly in float64."""
        whole = decode(self.sources[sample % len(self.sources)])
        box, flip = self.cut(sample, *whole.size)
        part, side = whole.crop(box), (self.image, self.image)
        if exact:
            pixels = resample(np.asarray(part), *side)
        else:
            pixels = np.asarray(part.resize(side, Image.Resampling.BILINEAR))
        return pixels[:, ::-1] if flip else pixels

    def cut(self, sample: int, width: int, height: int) -> tuple[tuple[int, int, int, int], bool]:
        """Left, top, right, bottom of a random part, and whether it is flipped."""
        rng = np.random.default_rng((self.seed, sample))
        flip = bool(rng.random() < 0.5)
        for _ in range(TRIES):
            area = rng.uniform(*AREAS) * width * height
            aspect = np.exp(rng.uniform(*np.log(ASPECTS)))
            w, h = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
            if 0 < w <= width and 0 < h <= height:
                left, top = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
                return (left, top, left + w, top + h), flip
        return (0, 0, width, height), flip
