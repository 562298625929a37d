"""Training steps of a user's module: wait for a batch, forward, loss, backward, update.

`training_parts` says which of the user's functions take part.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from workbench.contract import LARGEST, Accuracy, Case, Setup, WorkloadError, kind_of
from workbench.worker.block import time_sample
from workbench.worker.code import OWN, Code
from workbench.worker.failures import first_line
from workbench.worker.libraries import Array, np, torch

from .._shared.torch_task import synchronize, true_fp32
from .._shared.training import Gradient, gradients, untouched
from .._shared.waiting import FedTraining
from ..lab import agreement
from . import handing_over
from .reference import (
    LARGER,
    MOST_FLOOR,
    OTHER_NUMBERS,
    SAME,
    TOLERANCES,
    Reference,
    affords_float64,
    as_eager,
    errors,
)
from .subject import Subject, folder_of, kept, precision_of
from .target import origin, unusable, user_errors
from .training_parts import TrainingParts, rows_of
from .tree import mapped

KEPT = "training.pt"  # the batch of the check, and what `computed` found for it
REDUCED = 0.05  # tolerance of gradients in a reduced precision, and of a single weight's in all
NO_OPTIMIZER = "so torch.optim.AdamW is used with its usual settings"
ONE_GROUP = "its optimizer has several groups of weights; here all are in one, with its defaults"
NO_DATA = "so each step has the same inputs, and no step waits"
NO_SECOND = "its loss takes gradients of gradients, and torch.compile gives none"
SEEN = 4  # batches of a script's DataLoader, among which one of other sizes is looked for


class Training(FedTraining):
    """One step is one optimiser step; a sample is the mean of `params["batches"]` of them.

    Loaders that work in step deliver their batches together, so only whole rounds of them have
    comparable times.
    """

    is_users_code = True

    def __init__(self, case: Case, setup: Setup, code: Code, subject: Subject) -> None:
        super().__init__(case)
        self.code, self.subject = code, subject
        if self.mixed is not None and precision_of(subject.module) != "fp32":
            self.mixed = None  # its weights have that precision themselves
            self.scaler = type(self.scaler)(self.device.type, enabled=False)
        self.together = int(case.params.get("batches", 1))
        self.pin = bool(case.tuning.get("pin")) and self.on_gpu
        synchronize(self.device)
        with setup.phase("transfer" if self.on_gpu else "build"), user_errors(subject.name):
            self.network = self.forward = self.laid_out(training_mode(subject.on(self.device)))
            synchronize(self.device)
        with setup.phase("build"):
            self.parts = TrainingParts(subject).at(self.device)
            self.waits = self.scaler.is_enabled() or self.parts.data is not None
            self.optimiser = self.parts.optimiser(self.network, fused="fused" in self.modes)
            self.workers = int(case.tuning.get("workers", 0))
            self.batches = self.parts.batches(case.batch, self.workers, self.pin, code.seed)
        if self.case.compile_mode:
            sample = self.parts.sample(case.batch, code.seed)
            with user_errors(subject.name):
                self.compile(setup, sample)

    def activate(self) -> None:
        with user_errors(self.subject.name):
            if self.latest_loss is not None and self.loss() is None:
                self._begin_again()
            super().activate()

    def loss(self) -> float | None:
        """The latest loss; None once it has diverged, as it may without the user's schedule or
        clipping of gradients."""
        found = super().loss()
        return found if found is None or abs(found) <= LARGEST else None

    def _begin_again(self) -> None:
        """Put back the initial weights, with a new optimiser."""
        here, first = (
            [*module.parameters(), *module.buffers()]
            for module in (self.network, self.subject.module)
        )
        put(here, first)
        self.optimiser = self.parts.optimiser(self.network, fused="fused" in self.modes)

    def step(self) -> None:
        with user_errors(self.subject.name):
            super().step()

    def metrics(self) -> dict[str, float]:
        return {} if self.parts.data is None else super().metrics()

    def close(self) -> None:
        self.batches.close()  # ends the loader's processes

    def arguments(self, batch: Any) -> tuple[Any, Any]:
        example = self.parts.arguments(self._moved(batch))
        return example.args, example.kwargs

    def loss_on(self, batch: Any) -> Any:
        return self.parts.loss_on(self.forward, self._moved(batch))

    def _moved(self, batch: Any) -> Any:
        """The batch on the device; a copy of the example, since a call may change its inputs."""
        pinned, fresh = self.pin, self.parts.data is None
        if not (fresh or self.on_gpu or "nhwc" in self.modes):
            return batch
        return mapped(batch, partial(self.moved, non_blocking=pinned, copy=fresh))

    def check(self) -> Accuracy:
        """Compare loss and gradients of one batch at the initial weights, with a fixed seed.

        All gradients are compared together, then those of each weight.  Some are sums whose parts
        cancel, or change with the sign of a value near zero, so limits allow for the effect of
        rounded weights.  A single weight may have few values, so it counts LARGER times there.
        """
        batch, frozen, reference, floors = self._reference()
        compute = partial(self.gradient, batch, seed=self.code.seed, frozen=frozen)
        with user_errors(self.subject.name):
            found = rounded = compute()
            if self.case.precision not in TOLERANCES:
                with self._rounded_weights():
                    rounded = compute()
        answers = as_outputs(*found)
        moved = errors(as_outputs(*rounded), answers) if self.code.max_error is None else ()
        together = reference.judge(self.code, self.case.precision, answers, moved)
        if together.metric == "none":
            return together
        ends = np.cumsum([part.size for part in found[1]])[:-1]
        exact = np.split(reference.outputs[1], ends)
        effects = distances(rounded[1], found[1], exact)
        judged = self._each_weight(together, found[1], exact, [*map(max, floors, effects)])
        is_doubtful = reference.varies and judged.value > judged.limit
        return Accuracy.uncompared(OTHER_NUMBERS) if is_doubtful else judged

    def _each_weight(
        self, together: Accuracy, found: list[Array], exact: list[Array], effects: list[float]
    ) -> Accuracy:
        """`together`, unless the gradient of a single weight is over its limit."""
        tolerance = REDUCED if self.code.max_error is None else self.code.max_error
        limits = [tolerance + LARGER * effect for effect in effects]
        apart = distances(found, exact, exact)
        place = max(range(len(apart)), key=lambda n: apart[n] / limits[n])
        if apart[place] <= limits[place]:
            return together
        names = [name for name, weight in self.network.named_parameters() if weight.requires_grad]
        worst = [[found[place].reshape(-1, 1)]], [[exact[place]]]
        outputs = [*together.outputs, *agreement.compare([f"of {names[place]}"], *worst)]
        return replace(together, value=apart[place], limit=limits[place], outputs=outputs)

    @contextmanager
    def _rounded_weights(self) -> Iterator[None]:
        """Change the weights in the block by as much as the precision of the case rounds them."""
        step = torch.finfo(torch.bfloat16 if self.case.precision == "bf16" else torch.float16).eps
        weights = [weight for weight in self.network.parameters() if weight.is_floating_point()]
        before = [weight.detach().clone() for weight in weights]
        torch.manual_seed(self.code.seed)
        try:
            with torch.no_grad():
                for weight in weights:
                    weight.mul_(1 + step * (torch.rand_like(weight) - 0.5))
            yield
        finally:
            put(weights, before)

    def _reference(self) -> tuple[Any, bool, Reference, list[float]]:
        """The contents of KEPT, computed by the first worker that needs them."""

        def made() -> tuple[Any, bool, Reference, list[float]]:
            batch = self.parts.sample(self.case.batch, self.code.seed)
            with user_errors(self.subject.name), true_fp32(self.code.home):
                return batch, *computed(self.parts, batch, self.code.seed)

        found: tuple[Any, bool, Reference, list[float]] = kept(
            self.code, folder_of(self.code, self.case.batch) / KEPT, made
        )
        return found


def computed(parts: TrainingParts, batch: Any, seed: int) -> tuple[bool, Reference, list[float]]:
    """Whether to check in evaluation mode, the loss and gradients of eager torch on a batch, and
    the error of eager FP32 in the gradients of each weight.
    The mode changes only if that matters, since a compiled module is compiled again for it."""

    def eager(*, frozen: bool = False, double: bool = False, drawn: int = seed) -> Gradient:
        module = training_mode(parts.subject.copy())

        def fresh(tensor: Any) -> Any:
            own = tensor.to(parts.subject.code.home, copy=True)
            return own.double() if double and own.is_floating_point() else own

        torch.manual_seed(drawn)
        with as_eager(), untouched(module.double() if double else module, frozen=frozen):
            here = parts.at(parts.subject.code.home, double=double)
            loss = here.loss_on(module, mapped(batch, fresh))
            loss.backward()
            return loss.item(), [each.cpu().numpy() for each in gradients(module)]

    def off(found: Gradient, right: Gradient) -> list[float]:
        """The errors of the loss, of all gradients, and of those of each weight."""
        together = errors(as_outputs(*found), as_outputs(*right))
        return [*together, *distances(found[1], right[1], exact[1])]

    frozen, plain = False, eager()
    with suppress(Exception):  # some modules return something else in evaluation mode
        evaluated = eager(frozen=True)
        if max(errors(as_outputs(*plain), as_outputs(*evaluated))) > SAME:
            frozen, plain = True, evaluated
    # Another seed shows the effect of remaining random numbers.
    began = time.perf_counter()
    other = eager(frozen=frozen, drawn=seed + 1)
    took_s = time.perf_counter() - began
    exact, source = plain, "gradients of eager FP32"
    # On a CPU a step in float64 takes only about twice as long.
    if kind_of(parts.subject.code.home).on_host or affords_float64(parts.subject.code, took_s):
        with suppress(Exception):  # some modules fix their types
            exact, source = eager(frozen=frozen, double=True), "gradients of eager float64"
    floors, chance = off(plain, exact), off(other, plain)
    varies = max(chance[:2]) > MOST_FLOOR
    if not varies:  # else only candidates that draw the same numbers can be compared
        floors = [*map(max, floors, chance)]
    elif max(floors[:2]) > MOST_FLOOR:  # float64 draws others too
        exact, source = plain, "gradients of eager FP32"
        floors = off(plain, exact)
    names, outputs = ["loss", "gradients"], as_outputs(*exact)
    return frozen, Reference(names, outputs, floors[:2], source, REDUCED, varies), floors[2:]


def examine(code: Code, subject: Subject, misfit: str = "") -> dict[str, Any]:
    """Facts about a training before it is timed; `misfit` says why a script's DataLoader is unused.

    Returns fields of CodeFacts, of which `batch` is None without data; `inputs` is an Example.
    WorkloadError "bad_input" if there is no loss to minimise.
    """
    task = Training(Case(OWN, code.home, "torch", "fp32"), Setup(), code, subject)
    parts, impossible = task.parts, {}
    with _second_derivatives() as second:
        if parts.feed is None:
            task.step()  # the first allocates
        else:
            misfit = _misfit(task)
    if parts.feed is not None and misfit:
        task.close()
        Path(code.folder, handing_over.DATA).unlink(missing_ok=True)  # leave it out of this race
        vars(subject.namespace).pop("loader", None)
        return examine(code, subject, misfit)
    step_s = time_sample(task, 1).host_s
    task.close()
    if task.loss() is None:
        raise unusable(f"the loss of {subject.name} is {float(task.latest_loss)}")
    if second:
        impossible["compile"] = NO_SECOND
    try:
        parts.optimiser(task.network, fused=True)
    except WorkloadError as error:  # after a trial here, since candidates elsewhere make their own
        mode = f"fused on {code.home}" if error.code == "wrong_result" else "fused"
        impossible[mode] = str(error)
    except Exception as error:  # the user's may need further arguments
        impossible["fused"] = first_line(error)
    notes = ["loss and gradients of one step are checked; where training ends up is not"]
    lacks = "--train sees no {}" if code.is_script else "it defines no {}"
    own = next(subject.found("optimizer"), None)
    if parts.optimizer is None:
        found = f"its optimizer is a {type(own).__name__}, neither a function nor one of torch's"
        found = lacks.format("optimizer") if own is None else parts.no_optimizer or found
        notes.append(f"{found}, {NO_OPTIMIZER}")
        if own is not None:  # nothing is known about the user's own
            impossible["fused"] = "its own optimizer does not race"
    if len(getattr(own, "param_groups", ())) > 1:
        notes.append(ONE_GROUP)
    if parts.data is None:
        what = "DataLoader that feeds it directly" if code.is_script else "dataset or loader"
        misfit = misfit or getattr(subject.namespace, "misfit", "") or lacks.format(what)
        notes.append(f"{misfit}, {NO_DATA}")
    if subject.part("check") is not None:
        notes.append("its check(output) is for inference and does not count here")
    sample = parts.sample(None, code.seed)
    batch = parts.batch or max(1, rows_of(sample))
    return {
        "notes": notes,
        "data": None if parts.is_listed else parts.data,
        "loss": parts.loss_takes,
        "calls": getattr(subject.namespace, "calls", 1) if code.is_script else 1,
        "inputs": parts.arguments(sample),
        "batch": batch if parts.data else None,
        "of_one_size": not parts.resizable,
        "step_s": step_s,
        "impossible": impossible,
    }


@contextmanager
def _second_derivatives() -> Iterator[list[Any]]:
    """The calls of torch in the block whose gradients can be differentiated again."""
    from torch.overrides import TorchFunctionMode

    found = []

    class Mode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if (kwargs or {}).get("create_graph"):
                found.append(function)
            return function(*args, **(kwargs or {}))

    with Mode():
        yield found


def _misfit(task: Training) -> str:
    """Make a step; the reason if other batches do not fit what a script made from one, such as a
    mask."""

    def sizes(example: Any) -> list[Any]:
        return [tensor.shape for tensor in example.tensors().values()]

    feed: Any = task.parts.feed
    try:
        seen = list(islice(task.batches, 1 if feed.is_whole else SEEN))
        own = sizes(feed.example)
        task.update(next((each for each in seen if sizes(each) != own), seen[0]))
    except Exception as error:
        return f"other batches of its DataLoader do not fit ({first_line(origin(error))})"
    return ""


def training_mode(module: Any) -> Any:
    """The module in training mode; if its builder set that, parts in evaluation mode stay so."""
    if not module.training:
        module.train()  # a class may override it, and return nothing
    return module


def put(weights: Sequence[Any], values: Sequence[Any]) -> None:
    with torch.no_grad():
        for weight, value in zip(weights, values, strict=True):
            weight.copy_(value)


def distances(
    found: Sequence[Array], others: Sequence[Array], exact: Sequence[Array]
) -> list[float]:
    """The distance of two gradients of each weight, relative to the norm of the exact one."""

    def distance(one: Array, other: Array, right: Array) -> float:
        off, whole = np.linalg.norm(one.ravel() - other.ravel()), np.linalg.norm(right)
        return float(off / whole) if whole else float(off > 0)

    return list(map(distance, found, others, exact))


def as_outputs(loss: float, parts: Sequence[Any]) -> list[Array]:
    """The loss (1), and the gradients of all weights in one column (n, 1)."""
    column = np.concatenate([part.reshape(-1, 1) for part in parts])
    return [np.array([loss], np.float32), column]
