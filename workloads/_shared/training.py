"""Parts of every training, most of them in torch: the step, its check, batches of finite data."""

import multiprocessing
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from workbench.contract import COMPILED, Accuracy, Case, Setup, Task, Variant, WorkloadError
from workbench.worker.libraries import np, torch

from .network import relative_error, worst
from .torch_task import STREAMING, TorchTask, arithmetic, compiled, to_device

Gradient = tuple[float, list[Any]]  # a loss, and an array for each parameter
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where torch passes batches between processes
IGNORED = -100  # target that torch's cross_entropy leaves out of loss and gradient

VARIANTS = (
    *(Variant("cpu", "torch", "fp32", mode=mode) for mode in (None, "fused", "compile")),
    Variant("cpu", "torch", "bf16"),
    *(Variant("gpu", "torch", precision) for precision in ("fp32", "tf32", "bf16", "fp16")),
    *(Variant("gpu", "torch", precision, mode="fused") for precision in ("fp32", "tf32", "bf16")),
    *(Variant("gpu", "torch", "bf16", mode=mode) for mode in COMPILED),
)
CONVOLVING = (  # for networks of convolutions
    *VARIANTS,
    Variant("cpu", "torch", "bf16", mode="nhwc"),
    Variant("gpu", "torch", "bf16", mode="nhwc"),
    Variant("gpu", "torch", "fp16", mode="nhwc"),
    Variant("gpu", "torch", "bf16", mode="cudnn-benchmark"),
)


def train_step(network: Callable[[Any], Any], optimiser: Any, inputs: Any, targets: Any) -> Any:
    """One step in the weights' own type; returns the loss before it, still on the device."""
    optimiser.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(network(inputs), targets)
    loss.backward()
    optimiser.step()
    return loss.detach()


class RepeatedTraining(Task):
    """A training that starts anew at its end, so that each step belongs to one in progress."""

    left: int  # steps until it starts again

    @abstractmethod
    def start(self) -> None:
        """Begin anew with the initial weights; sets `left`."""

    @abstractmethod
    def train(self) -> None:
        """One optimiser step on the next batch; sets `latest_loss`."""

    def step(self) -> None:
        if not self.left:
            self.start()
        self.left -= 1
        self.train()


class TrainingTask(TorchTask):
    """One step is one optimiser step on one batch: forward, backward, update.

    BF16 and FP16 mean mixed precision (Micikevicius et al. 2018): weights and updates in FP32,
    products under autocast; FP16 also scales the loss.  The modes of torch.compile compile the
    network, "fused" updates all weights in one kernel, "nhwc" keeps a pixel's channels together.
    """

    network: Any
    optimiser: Any

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(arithmetic(case))
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.mixed is torch.float16)
        # Before each step the scaler asks the device whether a gradient overflowed.
        self.waits = self.waits or self.scaler.is_enabled()

    @abstractmethod
    def batch(self) -> Any:
        """The next batch, on the host or the device: inputs and targets."""

    def make_ready(self, setup: Setup, network: Any, optimiser: Any, **settings: Any) -> None:
        """Move the network to the device and make its optimiser, of the class `optimiser`."""
        (self.network,) = to_device(setup, self.case, self.laid_out(network))
        self.forward = self.network
        with setup.phase("build"):
            if "fused" in self.modes:
                settings["fused"] = True
            self.optimiser = optimiser(self.network.parameters(), **settings)

    def compile(self, setup: Setup, batch: Any) -> None:
        """Compile forward and backward for batches like this one, if the case is compiled."""
        if self.case.compile_mode is None:
            return
        self.activate()  # the code depends on the settings for threads and TF32
        args, keywords = self.arguments(batch)
        with untouched(self.network):
            with self._autocast():
                mode = self.case.compile_mode
                self.forward = compiled(setup, self.network, mode, *args, **keywords)
            with setup.phase("compile"):
                self._backward(batch)
                self.finish()

    def step(self) -> None:
        self.update(self.batch())

    def update(self, batch: Any) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        self.latest_loss = self._backward(batch)
        self.scaler.step(self.optimiser)
        self.scaler.update()

    def arguments(self, batch: Any) -> tuple[Any, Any]:
        """The positional arguments and the keywords of the network, on the device."""
        return (self.moved(batch[0]),), {}

    def loss_on(self, batch: Any) -> Any:
        """The loss on a batch, by `forward`."""
        (inputs,), _ = self.arguments(batch)
        targets = self.moved(batch[1])
        return torch.nn.functional.cross_entropy(self.forward(inputs), targets)

    def _autocast(self) -> Any:
        return torch.autocast(self.device.type, dtype=self.mixed, enabled=self.mixed is not None)

    def _backward(self, batch: Any) -> Any:
        """The loss on a batch; leaves the (scaled) gradients in the weights."""
        with self._autocast():
            loss = self.loss_on(batch)
        self.scaler.scale(loss).backward()
        return loss.detach()

    def gradient(self, batch: Any, *, seed: int = 0, frozen: bool = False) -> Gradient:
        """Loss and gradient; an overflow in FP16 lowers the loss scale, as in training."""
        while True:
            torch.manual_seed(seed)
            with untouched(self.network, frozen=frozen):
                loss, scale = self._backward(batch), self.scaler.get_scale()
                parts = [part / scale for part in gradients(self.network)]
            if scale <= 1 or all(bool(part.isfinite().all()) for part in parts):
                return float(loss.item()), [part.cpu().numpy() for part in parts]
            self.scaler.update(scale / 2)


def gradients(network: Any) -> list[Any]:
    """The gradients of all weights in FP32, zeros if there is none."""
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    found = [torch.zeros_like(w) if w.grad is None else w.grad.to_dense() for w in weights]
    return [each.float() for each in found]


@contextmanager
def untouched(network: Any, *, frozen: bool = False) -> Iterator[None]:
    """Restore statistics and modes and clear gradients after the block, which runs in evaluation
    mode if `frozen`."""
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]
    parts = [(part, dict(vars(part))) for part in network.modules()]
    if frozen:
        network.eval()
        for part in network.modules():
            if isinstance(part, torch.nn.RNNBase):  # cuDNN differentiates it in training mode only
                part.training, part.dropout = True, 0.0
    try:
        yield
    finally:
        for part, before in parts:
            vars(part).update(before)
        network.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def exact_gradient(network: Any, inputs: Any, targets: Any) -> Gradient:
    """Loss and gradient of an FP32 network on the CPU by eager torch in float64."""
    network = network.double()
    inputs = inputs.cpu().double() if inputs.is_floating_point() else inputs.cpu()
    loss = torch.nn.functional.cross_entropy(network(inputs), targets.cpu())
    loss.backward()
    return float(loss.item()), [p.grad.numpy() for p in network.parameters()]


def compare_losses(
    found: Sequence[float], network: Any, optimiser: Any, inputs: Any, targets: Any, limit: float
) -> Accuracy:
    """The largest error of the losses before each step, against the same training of `network` on
    the CPU by eager torch in float64: relative to the largest loss, or to 1 if all are smaller.
    Few samples are soon learned, and FP32 has few digits of a loss near zero."""
    network, inputs, targets = network.double(), inputs.cpu().double(), targets.cpu()
    updates = optimiser(network.parameters())
    expected = [train_step(network, updates, inputs, targets).item() for _ in found]
    scale = max(1.0, *expected)
    errors = [abs(loss - exact) / scale for loss, exact in zip(found, expected, strict=True)]
    reference = f"float64 torch on the CPU, losses of the first {len(found)} steps"
    return Accuracy.within(worst(errors), limit, reference)


def compare(
    found: Gradient, network: Any, inputs: Any, targets: Any, what: str, limit: float
) -> Accuracy:
    """The largest relative error among the loss and the gradients of `what`, against those of an
    FP32 `network` on the CPU by eager torch in float64.  Each matrix or kernel counts on its own.
    All vectors (biases, scales) count together, since a single one may be close to zero."""
    expected = exact_gradient(network, inputs, targets)
    pairs = list(zip(found[1], expected[1], strict=True))
    errors = [relative_error(*pair) for pair in pairs if pair[1].ndim > 1]
    vectors = zip(*(pair for pair in pairs if pair[1].ndim == 1), strict=True)
    errors += [relative_error(*map(np.concatenate, vectors)), abs(found[0] / expected[0] - 1)]
    reference = f"float64 torch on the CPU, loss and gradient of {what}"
    return Accuracy.within(worst(errors), limit, reference)


def shuffled_batches(count: int, batch: int, seed: int, device: Any) -> Iterator[Any]:
    """Endless batches of a finite data set: the rows (batch) of the next one, on `device`.  Each
    epoch has its own order, the same on every device.  A last, smaller batch is skipped."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(count, generator=generator)[: count - count % batch]
        if device.type in STREAMING:
            order = order.pin_memory()  # a copy from pageable memory waits for the queue
        yield from order.to(device, non_blocking=True).split(batch)


def loader(data: Any, sampler: Any, workers: int, *, pin: bool, **settings: Any) -> Any:
    """A DataLoader over a data set of whole batches, with these `settings` of its `workers`.
    Forked children share the memory of the data, and wait without a limit: a task may be frozen."""
    from torch.utils.data import DataLoader

    if sys.platform == "linux":
        settings["multiprocessing_context"] = multiprocessing.get_context("fork")
    given = {"sampler": sampler, "num_workers": workers, "pin_memory": pin}
    if workers:
        given |= settings
    return DataLoader(data, batch_size=None, **given)


def require_shared_memory(loaders: int, ahead: int, batch_bytes: float) -> None:
    """WorkloadError if the batches that loaders make ahead do not fit into the shared memory
    through which they pass; torch would end in a bus error.  Containers often have only 64 MB."""
    if not loaders or not os.path.isdir(SHARED_MEMORY):  # noqa: PTH112 - one question
        return
    needed, found = loaders * ahead * batch_bytes, os.statvfs(SHARED_MEMORY)
    free = found.f_bavail * found.f_frsize
    if needed > free:
        needs = f"{loaders} loaders need {needed / 1e6:.0f} MB of shared memory"
        hint = "use fewer loaders, a smaller prefetch or batch, or docker run --shm-size=1g"
        text = f"{needs}, {SHARED_MEMORY} has {free / 1e6:.0f} MB"
        raise WorkloadError(text, code="shared_memory", hint=hint)


def require_batch(case: Case, count: int, what: str) -> None:
    """WorkloadError if the batch is larger than a data set of `count`."""
    if (case.batch or 1) > count:
        text = f"a batch of {case.batch} is larger than the {count} {what}"
        raise WorkloadError(text, code="bad_input", hint="choose a smaller --batch")
