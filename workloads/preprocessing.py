"""Preparing photographs for a network: resized, standardised, on the network's device."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload
from workbench.worker.libraries import Image, np, onnx, torch

from ._shared import pictures
from ._shared.network import worst
from ._shared.onnx_model import GraphBuilder
from ._shared.onnx_task import OnnxTask
from ._shared.torch_task import TorchTask, to_device

BATCHES = 4  # used in turn, so that no batch is still in the cache from the last step
ANTIALIAS_OPSET = 18  # the first whose Resize has antialiasing
# Limits in grey levels of 255, after the standardisation is undone.  Modes that resize bytes round
# to whole grey levels.  The others compute positions in FP32, which is 5e-4 pixels off at 8192.
FLOAT_LIMIT = 0.05 / 255
EIGHT_BIT = ("pillow", "uint8")


class Preprocessing(Workload):
    """Photographs of uint8 to `image` x `image` by bilinear resizing with antialiasing.

    Then (pixel / 255 - mean) / std in FP32 as (batch, 3, image, image), on the network's device.
    Pillow and torch's `uint8` resize whole grey levels, the others floats.  A GPU gets its
    photographs from the host in each step; with `resident` they are already in its memory.
    """

    name = "preprocessing"
    title = "Image preprocessing"
    teaches = "Resizing on a GPU gains little once the photographs have to be copied there."
    parameters = (
        Parameter("width", 683, "width of the photographs", minimum=16, maximum=8192, unit="px"),
        Parameter("height", 512, "height of the photographs", minimum=16, maximum=8192, unit="px"),
        Parameter("image", 224, "side of the network's input", 16, 2048, unit="px"),
    )
    default_batch = 8
    quick = {"width": 400, "height": 300, "batch": 4}
    variants = (
        Variant("cpu", "numpy", "fp32", mode="pillow"),
        Variant("cpu", "torch", "fp32"),
        Variant("cpu", "torch", "fp32", mode="uint8"),
        Variant("cpu", "onnxruntime", "fp32"),
        Variant("gpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32", mode="resident"),
    )

    def work(self, case: Case) -> Work:
        batch, image = case.batch or 1, int(case.params["image"])
        pixels = 3.0 * int(case.params["width"]) * int(case.params["height"])
        result = 3.0 * image**2
        photos = batch * BATCHES * pixels
        host, held = 0.0, photos + 16 * pixels  # and one while it is generated or checked
        if case.device_kind == "gpu":
            host, held = held, photos if case.mode == "resident" else 0.0
        return Work(
            flops=None,  # limited by memory, not by arithmetic
            bytes_moved=batch * (pixels + 4 * result),
            items=batch,
            item="images",
            transfers="" if case.mode == "resident" else "step",
            # Also a batch as bytes, as floats in two layouts, and the network's input.
            memory_bytes=held + batch * (pixels + 2 * 4 * pixels + 4 * 4 * result),
            host_bytes=host,
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        width, height = int(case.params["width"]), int(case.params["height"])
        rng = np.random.default_rng(setup.seed)
        shape = (BATCHES, case.batch or 1, height, width, 3)
        photos = np.empty(shape, np.uint8)
        for batch in photos:
            batch[0] = pictures.photograph(rng, width, height)
            for place in range(1, len(batch)):  # shifted copies, which are cheap to make
                batch[place] = np.roll(batch[place - 1], int(rng.integers(1, width)), axis=1)
        made_by: dict[str, Callable[..., Task]]
        made_by = {"numpy": PillowResize, "onnxruntime": OnnxResize, "torch": TorchResize}
        return made_by[case.backend](case, setup, photos)


class ResizeTask(Task):
    """One step turns one batch into a network's input."""

    case: Case
    photos: Sequence[Any]  # uint8 (batch, height, width, 3)

    @abstractmethod
    def inputs(self, which: int) -> Any:
        """A step's result for batch number `which`, on the host: FP32 (batch, 3, image, image)."""

    def check(self) -> Accuracy:
        """The first and the last photograph against a float64 resize."""
        image = int(self.case.params["image"])
        errors = []
        for which, place in ((0, 0), (BATCHES - 1, -1)):
            exact = pictures.resample(self.photos[which][place], image, image)[None]
            difference = self.inputs(which)[place] - pictures.normalise(exact)[0]
            levels = np.abs(difference) * np.reshape(pictures.STD, (3, 1, 1))
            errors.append(levels.max())
        limit = pictures.EIGHT_BIT_LIMIT if self.case.mode in EIGHT_BIT else FLOAT_LIMIT
        reference = "float64 resize (NumPy) of 2 photographs; 1 is white"
        return Accuracy.within(worst(errors), limit, reference)


class PillowResize(ResizeTask):
    """The work in Pillow, which releases Python's lock, and NumPy; threads take whole photos."""

    def __init__(self, case: Case, _: Setup, photos: Any) -> None:
        self.case, self.photos = case, list(photos)
        self.feeds = cycle(self.photos)
        image = int(case.params["image"])
        self.made = np.full((len(photos[0]), 3, image, image), np.nan, np.float32)
        mean, std = (np.array(of, np.float32) for of in pictures.SCALES)
        self.factor, self.shift = 1 / (255 * std), -mean / std
        self.threads = ThreadPoolExecutor(case.threads or 1)

    def step(self) -> None:
        self._make(next(self.feeds))

    def _make(self, batch: Any) -> None:
        if self.case.threads == 1:
            for place, photo in enumerate(batch):
                self._one(place, photo)
        else:
            list(self.threads.map(self._one, range(len(batch)), batch))

    def _one(self, place: int, photo: Any) -> None:
        target = self.made[place]
        small = Image.fromarray(photo).resize(target.shape[1:], Image.Resampling.BILINEAR)
        pixels = np.asarray(small).transpose(2, 0, 1)
        np.multiply(pixels, self.factor[:, None, None], out=target)
        target += self.shift[:, None, None]

    def inputs(self, which: int) -> Any:
        self._make(self.photos[which])
        return self.made

    def close(self) -> None:
        self.threads.shutdown()


class OnnxResize(OnnxTask, ResizeTask):
    """The work as one graph of ONNX Runtime, from the photographs to the network's input."""

    def __init__(self, case: Case, setup: Setup, photos: Any) -> None:
        self.photos = list(photos)
        with setup.phase("build"):
            model = resize_graph(self.photos[0].shape, int(case.params["image"]))
        self.open(setup, case, model)
        self.feeds = cycle([{"input": batch} for batch in self.photos])

    def inputs(self, which: int) -> Any:
        return self.answer(self.photos[which])


def resize_graph(shape: Sequence[int], image: int) -> bytes:
    """A serialised model: uint8 of `shape` (batch, h, w, 3) to float32 (batch, 3, image, image)."""
    mean, std = (np.array(of, np.float32).reshape(3, 1, 1) for of in pictures.SCALES)
    graph, target = GraphBuilder(), (shape[0], 3, image, image)
    planes = graph.add("Transpose", "input", perm=[0, 3, 1, 2])
    small = graph.add(
        "Resize",
        *(graph.add("Cast", planes, to=onnx.TensorProto.FLOAT), "", "", graph.constant(target)),
        mode="linear",
        antialias=1,
        exclude_outside=1,  # like torch and Pillow; else edges differ (pytorch#183546)
    )
    scaled = graph.add("Mul", small, graph.constant(1 / (255 * std)))
    graph.add("Add", scaled, graph.constant(-mean / std))
    return graph.model(shape, target, element="UINT8", opset=ANTIALIAS_OPSET)


class TorchResize(TorchTask, ResizeTask):
    """The work in torch: on whole grey levels (CPU only) or on floats."""

    def __init__(self, case: Case, setup: Setup, photos: Any) -> None:
        super().__init__(case)
        self.photos = list(photos)
        self.sources = [torch.from_numpy(batch) for batch in self.photos]
        scales = [torch.tensor(of).reshape(3, 1, 1) * 255 for of in pictures.SCALES]
        self.mean, self.std = to_device(setup, case, *scales)
        if case.mode == "resident":
            self.sources = to_device(setup, case, *self.sources)
        self.feeds = cycle(self.sources)
        self.made: Any = None

    def step(self) -> None:
        self.made = self._make(next(self.feeds))

    def _make(self, batch: Any) -> Any:
        """(batch, h, w, 3) in uint8, anywhere, to (batch, 3, image, image) on the device."""
        image = int(self.case.params["image"])
        with torch.inference_mode():
            pixels = batch.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
            if self.case.mode != "uint8":
                pixels = pixels.float()
            small = torch.nn.functional.interpolate(
                pixels, (image, image), mode="bilinear", antialias=True
            )
            made = torch.empty(small.shape, dtype=torch.float32, device=self.device)
            return torch.sub(small, self.mean, out=made).div_(self.std)

    def inputs(self, which: int) -> Any:
        return self._make(self.sources[which]).cpu().numpy()


WORKLOAD = Preprocessing()
