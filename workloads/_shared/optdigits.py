"""The real handwritten digits: 1,797 grey images of 8x8 pixels, 0 to 16 (assets/digits/SOURCE.md).

Every fifth image of the file is held out, from the first: 360 test, the other 1,437 train.
"""

from typing import Any

from workbench import assets
from workbench.worker.libraries import np

SIDE = 8
LARGEST_DIGIT = 64  # pixels
TRAINING = 1_437


def load() -> tuple[Any, Any]:
    """FP32 images (1797, 8, 8) in 0..1 and their labels (1797) 0..9, those to train on first."""
    rows = np.loadtxt(assets.path("digits/digits.csv.gz"), np.float32, delimiter=",")
    held_out = np.arange(len(rows)) % 5 == 0
    rows = np.concatenate([rows[~held_out], rows[held_out]])
    return rows[:, :64].reshape(-1, SIDE, SIDE) / np.float32(16), rows[:, 64].astype(np.int64)


def coloured(images: Any, side: int, rng: Any) -> Any:
    """Coloured pictures of digits: (count, 8, 8) in 0..1 to FP32 (count, 3, side, side).

    Each digit is shifted, scaled (a random crop) and painted in a light colour on a dark one;
    above 64 pixels it repeats like a wallpaper.  With noise, pixels are whole numbers from 0 to
    255 as a camera gives them, then standardised to (pixel - 128) / 64.
    """
    count, tile = len(images), min(side, LARGEST_DIGIT)
    grid = (np.arange(tile, dtype=np.float32) + 0.5) * SIDE / tile - SIDE / 2

    def placed() -> Any:
        """Weights (count, side, 8) of linear interpolation, zero off the image."""
        zoom = rng.uniform(0.85, 1.25, (count, 1))
        shift = rng.uniform(-1.0, 1.0, (count, 1))
        centres = grid * zoom + shift + (SIDE - 1) / 2
        distance = np.abs(centres[..., None] - np.arange(SIDE))
        weights = np.maximum(0, 1 - distance).astype(np.float32)
        return np.take(weights, np.arange(side) % tile, axis=1)

    ink = placed() @ images @ placed().transpose(0, 2, 1)
    paper = rng.uniform(0, 60, (count, 3, 1, 1)).astype(np.float32)
    pen = rng.uniform(195, 255, (count, 3, 1, 1)).astype(np.float32)
    pixels = paper + (pen - paper) * ink[:, None]
    pixels += rng.integers(-12, 13, pixels.shape, dtype=np.int8)
    np.rint(pixels, out=pixels).clip(0, 255, out=pixels)
    return (pixels - 128) / 64
