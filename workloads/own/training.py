"""Training steps of a user's module: wait for a batch, forward, loss, backward, update.

`recipe` says which of the user's functions take part.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from workbench.contract import Accuracy, Case, Setup, WorkloadError
from workbench.worker.code import Code

from .._shared.torch_task import TorchTask, arithmetic, compiled, set_tf32, synchronize
from .._shared.waiting import mark, waiting_fraction
from .recipe import DEFAULT_BATCH, Recipe
from .reference import LARGER, MULTIPLE, TOLERANCES, folder_of
from .subject import Example, Subject, subject
from .target import user_errors
from .tree import mapped, tensors

if TYPE_CHECKING:
    Forward = Callable[[tuple[Any, ...], dict[str, Any]], Any]
    Gradient = tuple[float, dict[str, Any]]  # the loss; by weight, FP32 tensors on the host

LAYOUTS = {4: "channels_last", 5: "channels_last_3d"}  # by number of axes
KEPT = "training.pt"  # reference, and the batch that it belongs to
SAME = 1e-6  # distance up to which two gradients count as equal
REDUCED = 0.05  # tolerance of gradients in a reduced precision


def prepare(case: Case, setup: Setup, code: Code) -> Training:
    return Training(case, setup, code, subject(code))


class Training(TorchTask):
    """One step is one optimiser step, or `params["batches"]` of them.

    Loaders that work in step deliver their batches together, so with data only whole rounds of
    them have comparable times.  BF16 and FP16 mean autocast; FP16 also scales the loss.
    """

    def __init__(self, case: Case, setup: Setup, code: Code, one: Subject) -> None:
        import torch

        super().__init__(case)
        self.code, self.one, self.seed = code, one, setup.seed
        self.modes = (case.mode or "").split("+")
        self.rounds = int(case.params.get("batches", 1))
        self.pin = bool(case.tuning.get("pin")) and self.on_gpu
        self.mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(arithmetic(case))
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.mixed is torch.float16)
        self.marks: list[list[Any]] = []  # one list for each step since `activate`
        synchronize(self.device)
        with setup.phase("transfer" if self.on_gpu else "build"), user_errors(one.name):
            self.module = training_mode(one.on(self.device))
            synchronize(self.device)
        with setup.phase("build"):
            self.recipe = Recipe(one)
            self.waits = self.scaler.is_enabled() or self.recipe.data is not None
            if "nhwc" in self.modes:
                for weight in self.module.parameters():
                    weight.data = self._laid_out(weight.data)
            self.optimiser = self.recipe.optimiser(
                weights(self.module), fused="fused" in self.modes
            )
            self.forward: Forward = caller(self.module)
            self.batches = self._batches()
        try:
            if "compile" in self.modes:
                self._compile(setup)
        except BaseException:
            self.close()
            raise

    def _batches(self) -> Iterator[Any]:
        if self.recipe.data is None:
            return itertools.repeat(self.recipe.sample(self.case.batch, self.seed))
        workers = int(self.case.tuning.get("workers", 0))
        return self.recipe.batches(self.case.batch or DEFAULT_BATCH, workers, self.pin, self.seed)

    def _compile(self, setup: Setup) -> None:
        self.activate()  # the code depends on the settings for threads and TF32
        batch = self._moved(next(self.batches))
        call = self.recipe.arguments(batch)
        with user_errors(self.one.name), untouched(self.module):
            with self._autocast():
                self.forward = compiled(setup, self.forward, call.args, call.kwargs)
            with setup.phase("compile"):
                self._backward(batch)
                self.finish()

    def activate(self) -> None:
        super().activate()
        self.marks.clear()

    def step(self) -> None:
        marks = []
        with user_errors(self.one.name):
            for _ in range(self.rounds):
                marks.append(mark(self.device))
                batch = next(self.batches)
                marks.append(mark(self.device))
                self.latest_loss = self._backward(self._moved(batch))
                self.scaler.step(self.optimiser)
                self.scaler.update()
                self.optimiser.zero_grad(set_to_none=True)
            marks.append(mark(self.device))
        if self.recipe.data is not None:
            self.marks.append(marks)

    def metrics(self) -> dict[str, float]:
        """`waiting_fraction`: the share of the time in which the device waits for a batch."""
        return waiting_fraction(self.device, self.marks)

    def close(self) -> None:
        getattr(self.batches, "close", int)()  # ends the loader's processes

    def _autocast(self) -> Any:
        import torch

        return torch.autocast(self.device.type, dtype=self.mixed, enabled=self.mixed is not None)

    def _moved(self, batch: Any) -> Any:
        """The batch on the device; a copy of the example, since a call may change its inputs."""
        fresh = self.recipe.data is None

        def moved(_: str, tensor: Any) -> Any:
            there = tensor.to(self.device, non_blocking=self.pin, copy=fresh)
            return self._laid_out(there) if "nhwc" in self.modes else there

        return mapped(batch, moved)

    def _laid_out(self, tensor: Any) -> Any:
        import torch

        name = LAYOUTS.get(tensor.dim())
        return tensor if name is None else tensor.to(memory_format=getattr(torch, name))

    def _backward(self, batch: Any) -> Any:
        """The loss on a batch; leaves the (scaled) gradients in the weights."""
        with self._autocast():
            loss = loss_on(self.recipe, self.forward, batch)
        self.scaler.scale(loss).backward()
        return loss.detach()

    # ----------------------------------------------------------- check

    def check(self) -> Accuracy:
        """Compare loss and gradients of one batch at the initial weights, without chance."""
        kept = self._reference()
        sample = self.recipe.sample(self.case.batch, self.seed)
        batch = mapped(sample, lambda path, tensor: kept["batch"].get(path, tensor))
        with user_errors(self.one.name), untouched(self.module, frozen=kept["frozen"]):
            found = self._gradient(batch)
        error = distance(found, (kept["loss"], kept["gradients"]))
        limit = self.code.max_error
        if limit is None:
            tolerance = TOLERANCES.get(self.case.precision)
            multiple = LARGER if tolerance is None else MULTIPLE
            limit = multiple * kept["floor"] + (tolerance or REDUCED)
        # Always passed: the advisor times what is over its limit once, and never picks it.
        return Accuracy("relative_error", error, kept["source"], limit, True)

    def _gradient(self, batch: Any) -> Gradient:
        """Loss and gradients; an overflow in FP16 lowers the loss scale, as in training."""
        import torch

        while True:
            torch.manual_seed(self.seed)
            loss, scale = float(self._backward(self._moved(batch))), self.scaler.get_scale()
            found = loss, gradients(self.module, scale)
            if scale <= 1 or is_finite(found):
                return found
            self.module.zero_grad(set_to_none=True)
            self.scaler.update(scale / 2)

    def _reference(self) -> dict[str, Any]:
        """The reference, computed by the first worker that needs it."""
        import torch

        file = folder_of(self.code, self.case.batch) / KEPT
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with user_errors(self.one.name):
                found = self._computed()
            torch.save(found, file)
        kept: dict[str, Any] = torch.load(file, weights_only=True)
        return kept

    def _computed(self) -> dict[str, Any]:
        sample = self.recipe.sample(self.case.batch, self.seed)
        if self.on_gpu:
            set_tf32(False)
        eager = self._eager(sample, frozen=True)
        if not is_finite(eager):
            raise WorkloadError(f"loss or gradients of {self.one.name} overflow", code="bad_input")
        exact, source = eager, "gradients of eager FP32"
        try:
            exact, source = self._eager(sample, double=True), "gradients of eager float64"
        except Exception:  # some modules name their types
            exact = eager
        # A compiled module is compiled again for evaluation mode, unless that makes no difference.
        frozen = distance(self._eager(sample, frozen=False), eager) > SAME
        self.activate()
        return {
            "batch": tensors(sample),
            "loss": exact[0],
            "gradients": exact[1],
            "floor": distance(eager, exact),
            "frozen": frozen,
            "source": source,
        }

    def _eager(self, batch: Any, *, frozen: bool = True, double: bool = False) -> Gradient:
        """Loss and gradients of a fresh copy."""
        import torch

        module = training_mode(self.one.on(self.device))

        def moved(_: str, tensor: Any) -> Any:
            kind = torch.float64 if double and tensor.is_floating_point() else tensor.dtype
            return tensor.to(self.device, kind, copy=True)

        torch.manual_seed(self.seed)
        with untouched(module.double() if double else module, frozen=frozen):
            loss = loss_on(self.recipe, caller(module), mapped(batch, moved))
            loss.backward()
            return float(loss.detach()), gradients(module)


def examine(code: Code, one: Subject) -> dict[str, Any]:
    """What is known about a training before it is timed.

    Returns fields of CodeFacts, of which `batch` is None without data; `inputs` is an Example.
    WorkloadError "bad_input" where there is no loss to minimise.
    """
    recipe, module = Recipe(one), training_mode(one.copy())
    sample = recipe.sample(None, code.seed)
    call = recipe.arguments(sample)
    optimiser, impossible = recipe.optimiser(weights(module)), {}
    for _ in range(2):  # the first allocates
        began = time.perf_counter()
        batch = mapped(sample, lambda _, tensor: tensor.clone())
        with user_errors(one.name):
            loss = loss_on(recipe, caller(module), batch)
            loss.backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        if not math.isfinite(value := float(loss.detach())):
            raise WorkloadError(f"the loss of {one.name} is {value}", code="bad_input")
        step_s = time.perf_counter() - began
    try:
        recipe.optimiser(weights(module), fused=True)
    except WorkloadError as error:
        impossible["fused"] = str(error)
    return {
        "notes": list(_notes(recipe)),
        "data": recipe.data,
        "loss": recipe.loss and ("output, batch" if recipe.judges_batch else "output"),
        "inputs": Example(call.args, call.kwargs),
        "batch": DEFAULT_BATCH if recipe.data else None,
        "step_s": step_s,
        "impossible": impossible,
    }


def _notes(recipe: Recipe) -> Iterator[str]:
    yield "loss and gradients of one step are checked; where training ends up is not"
    if recipe.optimizer is None:
        yield "it defines no optimizer, so torch.optim.AdamW with its usual settings is used"
    if recipe.data is None:
        yield "it defines no dataset or loader, so each step has the same inputs and no wait"
    elif recipe.data == "dataset":
        yield "samples of its dataset are drawn at random, with replacement"


def weights(module: Any) -> list[Any]:
    return [weight for weight in module.parameters() if weight.requires_grad]


def training_mode(module: Any) -> Any:
    """The module for training; parts that its builder left in evaluation mode stay so, unless the
    whole module is."""
    return module if module.training else module.train()


def caller(module: Any) -> Forward:
    return lambda args, kwargs: module(*args, **kwargs)


def loss_on(recipe: Recipe, forward: Forward, batch: Any) -> Any:
    call = recipe.arguments(batch)
    return recipe.loss_of(forward(call.args, call.kwargs), batch)


@contextmanager
def untouched(module: Any, *, frozen: bool = False) -> Iterator[None]:
    """Afterwards gradients are dropped, running statistics and modes as before.

    `frozen`: meanwhile in evaluation mode.  Recurrent layers only lose their dropout, since cuDNN
    differentiates them in training mode alone.
    """
    import torch

    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    modes = [(part, part.training) for part in module.modules()]
    recurrent = [(part, part.dropout) for part, _ in modes if isinstance(part, torch.nn.RNNBase)]
    if frozen:
        module.eval()
        for part, _ in recurrent:
            part.training, part.dropout = True, 0.0
    try:
        yield
    finally:
        for part, was_training in modes:
            part.training = was_training
        for part, dropout in recurrent:
            part.dropout = dropout
        module.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def gradients(module: Any, scale: float = 1.0) -> dict[str, Any]:
    """The gradient of each weight that has one, in FP32 on the host."""
    found = {name: weight.grad for name, weight in module.named_parameters()}
    return {
        name: (each.to_dense() if each.is_sparse else each).float().cpu() / scale
        for name, each in found.items()
        if each is not None
    }


def is_finite(found: Gradient) -> bool:
    return math.isfinite(found[0]) and all(bool(x.isfinite().all()) for x in found[1].values())


def distance(found: Gradient, expected: Gradient) -> float:
    """The relative error of all gradients together, or of the loss if that is larger.

    NaN where either is not finite.
    """
    import torch

    off = size = 0.0
    for name in found[1].keys() | expected[1].keys():
        right = torch.as_tensor(expected[1].get(name, 0.0)).double()
        off += float((found[1].get(name, 0.0) - right).square().sum())
        size += float(right.square().sum())
    error = math.sqrt(off / (size or 1.0))
    of_loss = abs(found[0] - expected[0]) / (abs(expected[0]) or 1.0)
    return max(error, of_loss) if math.isfinite(error + of_loss) else math.nan
