"""One rank's share of a data-parallel training, and the check of the result of all ranks."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Any

from workbench.contract import Accuracy, Case, Setup
from workbench.worker.libraries import np, torch
from workbench.worker.worker import resident_peak

from .._shared.network import CLASSES, mlp, relative_error, samples
from .._shared.torch_task import module, to_device
from .._shared.training import TrainingTask, exact_gradient

LEARNING_RATE = 0.01
CHECKED = 32  # samples to check, over all ranks
CHECKED_PER_TENSOR = 4096  # gradient elements to check in each tensor
# Limits of the gradient's relative error: several times the error of the initial network.
LIMITS = {"fp32": 1e-4, "tf32": 2e-2, "bf16": 0.15}
ALL_REDUCES = 10


def world_of(case: Case) -> int:
    return int(case.tuning["world"])


def sizes_of(case: Case) -> tuple[int, ...]:
    width = int(case.params["width"])
    return (width, width, width, CLASSES)


class Replica(TrainingTask):
    """One rank's copy of the network and its share of the batch (all of it without a group)."""

    def __init__(self, case: Case, setup: Setup, rank: int = 0, group: Any = None) -> None:
        super().__init__(case)
        self.group = group
        if self.device.type == "cuda":  # the replicas of other cases stay in the rank's memory
            torch.cuda.reset_peak_memory_stats(self.device)
            self.held_bytes = torch.cuda.memory_allocated(self.device)
        self.seed, share = setup.seed, (case.batch or 1) // world_of(case)
        with setup.phase("build"):
            self.layers = mlp(sizes_of(case), setup.seed)
            data, labels = drawn(case, setup.seed)
            mine = slice(rank * share, (rank + 1) * share)
            on_host = torch.from_numpy(data[mine]), torch.from_numpy(labels[mine])
        self.data, self.labels = to_device(setup, case, *on_host)
        self.make_ready(setup, module(self.layers), torch.optim.SGD, lr=LEARNING_RATE)
        if group is not None:
            with setup.phase("build"):
                devices = [self.device.index] if self.on_gpu else None
                self.forward = torch.nn.parallel.DistributedDataParallel(
                    self.network, device_ids=devices, process_group=group
                )
        self.timer = self.device_timer()

    def batch(self) -> tuple[Any, Any]:
        return self.data, self.labels

    def step_alone(self) -> None:
        """A step without all-reduce."""
        with self.forward.no_sync():
            self.step()

    def reset(self) -> None:
        """Restore the initial weights."""
        self.network.load_state_dict(module(self.layers).state_dict())
        self.finish()

    def trial(self, samples: int) -> dict[str, Any]:
        """One step on the first `samples` of this share, which is then undone.  Returns some of
        every tensor's gradient and a digest of the new weights."""
        self.update((self.data[:samples], self.labels[:samples]))
        gradient = torch.cat([sampled(p.grad.ravel()) for p in self.network.parameters()])
        weights = (tensor.detach().cpu().numpy() for tensor in self.network.parameters())
        digest = hashlib.sha256(b"".join(each.tobytes() for each in weights))
        self.reset()
        return {"gradient": gradient.tolist(), "weights": digest.hexdigest()}

    def memory_peak(self) -> int | None:
        """Bytes that torch allocated for the case on CUDA, or that this process holds on a CPU."""
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device) - self.held_bytes)
        return resident_peak()

    def profiled(self, steps: int) -> dict[str, Any]:
        return asdict(self.profile(steps))

    def all_reduce_s(self) -> float:
        """Median seconds of an all-reduce of as many bytes as the gradient has."""
        count = sum(p.numel() for p in self.network.parameters())
        buffer = torch.zeros(count, device=self.device)
        call = partial(torch.distributed.all_reduce, buffer, group=self.group)
        return median(self.timed(call, 1 + ALL_REDUCES)[1:])  # the first one opens connections

    def check(self) -> Accuracy:
        return judge(self.case, self.seed, [self.trial(checked(self.case))])


def drawn(case: Case, seed: int) -> tuple[Any, Any]:
    """All samples of the batch, and their labels."""
    return samples(case.batch or 1, sizes_of(case)[0], CLASSES, seed)


def checked(case: Case) -> int:
    """The number of samples to check in each rank's share, from its first on."""
    world = world_of(case)
    return min((case.batch or 1) // world, max(1, CHECKED // world))


def judge(case: Case, seed: int, trials: Sequence[dict[str, Any]]) -> Accuracy:
    """Compare the averaged gradient in the ranks' `trials` with that of all samples in float64.  If
    the ranks' weights differ after the step, the error is 1."""
    world, share = world_of(case), (case.batch or 1) // world_of(case)
    rows = (np.arange(world)[:, None] * share + np.arange(checked(case))).ravel()
    few = (torch.from_numpy(part[rows]) for part in drawn(case, seed))
    _, exact = exact_gradient(module(mlp(sizes_of(case), seed)), *few)
    expected = np.concatenate([sampled(gradient.ravel()) for gradient in exact])
    found = np.array(trials[0]["gradient"], np.float32)
    agree = len({trial["weights"] for trial in trials}) == 1
    error = relative_error(found, expected) if agree else 1.0
    limit = LIMITS[case.precision]
    reference = f"float64 gradient of {len(rows)} samples (torch), equal weights on all ranks"
    return Accuracy.within(error, limit, reference)


def sampled(flat: Any) -> Any:
    """Evenly spaced elements of a flat array or tensor, at the same places in both."""
    return flat[:: max(1, len(flat) // CHECKED_PER_TENSOR)]
