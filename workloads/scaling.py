"""Data-parallel training of one network by 1, 2, 4 ... processes with DistributedDataParallel."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from workbench.contract import (
    Accuracy,
    Case,
    Host,
    Parameter,
    ParameterValue,
    Profile,
    Setup,
    Task,
    Variant,
    Work,
    Workload,
    WorkloadError,
)
from workbench.ranks import launch_of

from . import _mlp, _ranks
from ._network import Layer, mlp, mlp_multiplications, relative_error
from ._torch import TorchTask, arithmetic, device_of, module, to_device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CLASSES = 10
LEARNING_RATE = 0.01
MOST_CPU_RANKS = 8  # proposed; each is a process with a torch of its own
RANK_BYTES = 300e6  # of a process that has imported torch and joined a group
CHECKED = 32  # samples of the check, over all ranks
CHECKED_PER_TENSOR = 4096  # elements of its gradient
# The gradient's relative error; several times what is measured on the initial network.
LIMITS = {"fp32": 1e-4, "tf32": 2e-2, "bf16": 0.15}
ALL_REDUCES = 10
SYNC_ROUNDS, SYNC_S = 5, 1.0  # at most, of steps with and without all-reduce


class Scaling(Workload):
    """A perceptron of three dense layers, SGD; one step trains on one fixed global batch.

    The batch is cut into equal shares, one a rank, and the gradients are averaged by all-reduce:
    the job is the same for every world size.  On a CPU the threads are shared out as well, unless
    `--threads 1` gives each rank a core of its own.
    """

    name = "scaling"
    title = "Data-parallel training"
    teaches = "More ranks compute less each but talk as much: scaling ends where talking dominates."
    parameters = (
        Parameter("width", 1024, "neurons of the hidden layers, and inputs", 16, 16384),
        Parameter("world", 1, "ranks that share the batch", 1, 1024, tuning=True),
    )
    default_batch = 512
    quick: ClassVar = {"width": 512, "batch": 128}
    variants = (
        Variant("cpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32"),
        Variant("gpu", "torch", "tf32"),
        Variant("gpu", "torch", "bf16"),
    )

    def candidates(self, parameter: str, host: Host, device_kind: str) -> Sequence[ParameterValue]:
        """All ranks of a launcher or else all cores or GPUs, and the powers of two below.

        The largest first: the smaller worlds are groups among its ranks.
        """
        launch = launch_of(os.environ)
        most = host.gpus if device_kind == "gpu" else min(host.cores, MOST_CPU_RANKS)
        most = launch.size if launch is not None else max(1, most)
        below = [1 << exponent for exponent in range(most.bit_length()) if 1 << exponent < most]
        return [most, *reversed(below)]

    def work(self, case: Case) -> Work:
        sizes, batch, world = sizes_of(case), case.batch or 1, world_of(case)
        weights = mlp_multiplications(sizes)
        # Three products per layer, but no gradient of the data in the first.
        multiplications = 3 * weights - sizes[0] * sizes[1]
        activations = batch * (2 * sizes[0] + 4 * sum(sizes[1:]))
        own = 4.0 * (activations / world + 5 * weights) + (RANK_BYTES if world > 1 else 0)
        return Work(
            flops=2.0 * batch * multiplications,
            bytes_moved=4.0 * (activations + 6 * world * weights),
            items=batch,
            item="samples",
            # A GPU holds one rank.
            memory_bytes=own if case.device_kind == "gpu" else own * world,
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        world = world_of(case)
        if (case.batch or 1) % world:
            raise WorkloadError(
                f"a batch of {case.batch} does not divide into {world} equal shares",
                code="bad_input",
                hint=f"take a --batch that is a multiple of {world}",
            )
        return Replica(case, setup) if world == 1 else DataParallel(case, setup)


def world_of(case: Case) -> int:
    return int(case.tuning["world"])


def sizes_of(case: Case) -> tuple[int, ...]:
    width = int(case.params["width"])
    return (width, width, width, CLASSES)


class Replica(TorchTask):
    """One rank's copy of the network and its share of the batch; without a group, all of it."""

    def __init__(self, case: Case, setup: Setup, rank: int = 0, group: Any = None) -> None:
        import torch

        super().__init__(case)
        self.group = group
        sizes, share = sizes_of(case), (case.batch or 1) // world_of(case)
        with setup.phase("build"):
            self.layers = mlp(sizes, setup.seed)
            data, labels = _mlp.samples(case.batch or 1, sizes[0], CLASSES, setup.seed)
            mine = slice(rank * share, (rank + 1) * share)
            on_host = torch.from_numpy(data[mine]), torch.from_numpy(labels[mine])
        self.network, self.data, self.labels = to_device(setup, case, module(self.layers), *on_host)
        with setup.phase("build"):
            self.model = self.network
            if group is not None:
                devices = [self.device.index] if self.device.type == "cuda" else None
                self.model = torch.nn.parallel.DistributedDataParallel(
                    self.network, device_ids=devices, process_group=group
                )
            self.optimiser = torch.optim.SGD(self.network.parameters(), lr=LEARNING_RATE)
        self.latest: Any = None

    def step(self) -> None:
        self.latest = self._train(self.data, self.labels)

    def step_alone(self) -> None:
        """A step without all-reduce."""
        with self.model.no_sync():
            self._train(self.data, self.labels)

    def _train(self, data: Any, labels: Any) -> Any:
        import torch

        mixed = torch.bfloat16 if arithmetic(self.case) == "bf16" else None
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=mixed, enabled=mixed is not None):
            loss = torch.nn.functional.cross_entropy(self.model(data), labels)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def loss(self) -> float | None:
        return None if self.latest is None else float(self.latest.item())

    def restore(self) -> None:
        """Back to the initial weights."""
        self.network.load_state_dict(module(self.layers).state_dict())
        self.finish()

    def trial(self, samples: int) -> dict[str, str]:
        """One step on the first `samples` of this share, undone: some of every tensor's gradient
        (float32, base64) and a digest of the weights it led to."""
        import torch

        self._train(self.data[:samples], self.labels[:samples])
        gradient = torch.cat([_some(p.grad.ravel()) for p in self.network.parameters()])
        digest = hashlib.sha256()
        for tensor in self.network.parameters():
            digest.update(tensor.detach().cpu().numpy().tobytes())
        self.restore()
        sent = base64.b64encode(gradient.float().cpu().numpy().tobytes()).decode()
        return {"gradient": sent, "weights": digest.hexdigest()}

    def all_reduce_s(self) -> float:
        """Seconds of one all-reduce of as many bytes as the gradient has: the median."""
        import torch
        import torch.distributed as dist

        count = sum(p.numel() for p in self.network.parameters())
        buffer = torch.zeros(count, device=self.device)
        times = []
        for _ in range(1 + ALL_REDUCES):  # the first connects
            began = time.perf_counter()
            dist.all_reduce(buffer, group=self.group)
            self.finish()
            times.append(time.perf_counter() - began)
        return median(times[1:])

    def check(self) -> Accuracy:
        data, labels = self.data[:CHECKED].cpu().numpy(), self.labels[:CHECKED].cpu().numpy()
        return judge(self.case, self.layers, data, labels, [self.trial(CHECKED)])


class DataParallel(Task):
    """The ranks of one case, directed together; they queue steps as a GPU does."""

    def __init__(self, case: Case, setup: Setup) -> None:
        self.case, self.world = case, world_of(case)
        self.seed = setup.seed
        kind = "cuda" if case.device.startswith("cuda") else "cpu"
        if kind == "cuda" and launch_of(os.environ) is None:
            _require_gpus(case, self.world)
        with setup.phase("build"):
            self.session = _ranks.enter(self.world, kind)
        try:
            self._prepare(setup)
        except BaseException:
            self.close()
            raise

    def _prepare(self, setup: Setup) -> None:
        case, session = self.case, self.session
        self.members = session.ranks[: self.world]
        self.threads = [
            max(1, (case.threads or 1) // session.sharers(number, self.world))
            for number in range(self.world)
        ]
        phases = session.ask(
            session.ranks,
            op="open",
            case=_ranks.fields(case),
            world=self.world,
            threads=self.threads,
            seed=setup.seed,
        )
        for name in setup.PHASES:
            spent = max(found.get(name, 0.0) for found in phases[: self.world])
            if spent:
                setup.seconds[name] = setup.seconds.get(name, 0.0) + spent
        self.activate()
        slowest = max(self._ask("all_reduce_s"))
        gradient_bytes = 4 * sum((n + 1) * m for n, m in pairwise(sizes_of(case)))
        # Bus bandwidth as nccl-tests has it (doc/PERFORMANCE.md): comparable between world sizes.
        factor = 2 * (self.world - 1) / self.world
        self.found = {
            "allreduce_bytes_per_s": factor * gradient_bytes / slowest,
            "sync_fraction": self._sync_fraction(),
        }
        if case.device_kind == "cpu":
            self.found["threads_per_rank"] = float(min(self.threads))

    def _sync_fraction(self) -> float:
        """What part of a step is gone without the all-reduce, from steps in turns."""
        self._seconds("step"), self._seconds("step_alone")  # buckets are built in the first
        together: list[float] = []
        alone: list[float] = []
        began = time.perf_counter()
        while len(alone) < SYNC_ROUNDS and (not alone or time.perf_counter() - began < SYNC_S):
            together.append(self._seconds("step"))
            alone.append(self._seconds("step_alone"))
        self._ask("restore")
        return max(0.0, 1 - median(alone) / median(together))

    def _seconds(self, step: str) -> float:
        began = time.perf_counter()
        self._ask(step)
        self.finish()
        return time.perf_counter() - began

    def _ask(self, name: str, **arguments: Any) -> list[Any]:
        return self.session.ask(self.members, op="do", case=self.case.id, name=name, **arguments)

    def activate(self) -> None:
        self._ask("activate")

    def step(self) -> None:
        self.session.tell(self.members, op="step", case=self.case.id)

    def finish(self) -> None:
        self._ask("finish")

    def loss(self) -> float | None:
        losses = self._ask("loss")
        return None if losses[0] is None else sum(losses) / len(losses)

    def figures(self) -> dict[str, float]:
        """Bus bandwidth, and the part of a step that synchronising costs: measured once, when
        the case was prepared."""
        return self.found

    def check(self) -> Accuracy:
        import numpy as np

        layers = mlp(sizes_of(self.case), self.seed)
        batch = self.case.batch or 1
        data, labels = _mlp.samples(batch, sizes_of(self.case)[0], CLASSES, self.seed)
        share = batch // self.world
        samples = min(share, max(1, CHECKED // self.world))
        rows = (np.arange(self.world)[:, None] * share + np.arange(samples)).ravel()
        trials = self._ask("trial", samples=samples)
        return judge(self.case, layers, data[rows], labels[rows], trials)

    def profile(self, steps: int) -> Profile:
        raise WorkloadError(
            "a group of ranks is not profiled",
            code="no_profiler",
            hint="--set world=1 profiles the same training in one process",
        )

    def close(self) -> None:
        if self.session.failure is None:
            with suppress(WorkloadError):
                self.session.ask(self.session.ranks, op="close", case=self.case.id)
        _ranks.leave(self.session)


def judge(
    case: Case,
    layers: Sequence[Layer],
    data: NDArray[np.float32],
    labels: NDArray[np.int64],
    trials: Sequence[dict[str, str]],
) -> Accuracy:
    """The ranks' averaged gradient against float64 backpropagation through all their samples.

    Ranks whose weights differ after the step are wrong however good the gradient is.
    """
    import numpy as np

    exact: dict[int, Any] = {}

    def keep(parameter: int, value: Any, gradient: Any) -> Any:
        exact[parameter] = _some(gradient.ravel())
        return value

    list(_mlp.reference_losses(layers, data, labels, keep, 1))
    expected = np.concatenate([exact[number] for number in sorted(exact)])
    found = np.frombuffer(base64.b64decode(trials[0]["gradient"]), np.float32)
    agree = len({trial["weights"] for trial in trials}) == 1
    error = relative_error(found, expected) if agree else 1.0
    limit = LIMITS[case.precision]
    reference = f"NumPy float64 gradient of {len(data)} samples, equal weights on all ranks"
    return Accuracy("relative_error", error, reference, limit, error <= limit)


def _some(flat: Any) -> Any:
    """Evenly spread elements of a flat array or tensor, the same of both."""
    return flat[:: max(1, len(flat) // CHECKED_PER_TENSOR)]


def _require_gpus(case: Case, world: int) -> None:
    import torch

    device_of(case)
    if torch.cuda.device_count() < world:
        raise WorkloadError(
            f"{world} ranks need a GPU each, and torch finds {torch.cuda.device_count()}",
            code="no_device",
            hint="leave out --set world=..., or start it on several machines with torchrun",
        )


WORKLOAD = Scaling()
