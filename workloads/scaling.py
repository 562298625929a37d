"""Data-parallel training of one network in 1, 2, 4 ... ranks."""

import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from statistics import median
from typing import Any

from workbench.contract import (
    Accuracy,
    Case,
    DeviceTimer,
    Host,
    Operator,
    Parameter,
    ParameterValues,
    Profile,
    Setup,
    Task,
    Variant,
    Work,
    Workload,
    WorkloadError,
)
from workbench.worker.launcher import launch_of, ranks_here
from workbench.worker.libraries import torch

from ._ranks import groups
from ._ranks.mirrored import Mirrored
from ._ranks.replica import Replica, checked, judge, sizes_of, world_of
from ._shared.network import mlp_multiplications, mlp_training_flops
from ._shared.torch_task import device_of

DEFAULT_BATCH = 960  # divisible by 2, 3, 4, 5, 6, 8 ... 64 ranks
QUICK_BATCH = 240  # a divisor of it
MOST_CPU_RANKS = 8  # most ranks to propose; each is a process with its own torch
# Memory of a process that has imported torch and joined a group, without the network.  On a GPU:
# the CUDA context and NCCL's buffers.
RANK_BYTES = {"cpu": 250e6, "gpu": 1e9}
SYNC_ROUNDS, SYNC_S = 5, 1.0  # most rounds, and seconds, of steps with and without all-reduce


class Scaling(Workload):
    """A perceptron of three dense layers, SGD; one step trains on one fixed global batch.

    Each rank gets an equal share of the batch, and all-reduce averages the gradients, so the job is
    the same for every world size.  On a CPU the ranks also share the threads, unless `--threads 1`
    gives each rank one core.  A rank of torch is a process of DistributedDataParallel, one of
    TensorFlow a replica of MirroredStrategy.
    """

    name = "scaling"
    title = "Data-parallel training"
    teaches = "More ranks compute less each but communicate as much, which limits scaling."
    parameters = (
        Parameter("width", 1024, "neurons of the hidden layers, and inputs", 16, 16384),
        Parameter("world", 1, "ranks that share the batch", 1, 1024, tuning=True),
    )
    default_batch = DEFAULT_BATCH
    quick = {"width": 512, "batch": QUICK_BATCH}
    variants = (
        Variant("cpu", "torch", "fp32"),
        Variant("gpu", "torch", "fp32"),
        Variant("gpu", "torch", "tf32"),
        Variant("gpu", "torch", "bf16"),
        *(Variant(device, "tensorflow", "fp32") for device in ("cpu", "gpu")),
    )

    def tuning_values(self, parameter: str, host: Host, device_kind: str) -> ParameterValues:
        """The number of cores, GPUs or ranks of a launcher, and the powers of two below it.  The
        largest is first: smaller worlds are groups among its ranks."""
        launch = launch_of(os.environ)
        most = host.gpus if device_kind == "gpu" else min(host.cores, MOST_CPU_RANKS)
        if launch is not None:
            most = launch.size
        else:  # 7 ranks, for example, would get unequal shares
            most = max((n for n in range(1, most + 1) if QUICK_BATCH % n == 0), default=1)
        below = [1 << exponent for exponent in range(most.bit_length()) if 1 << exponent < most]
        return [most, *reversed(below)]

    def work(self, case: Case) -> Work:
        sizes, batch, world = sizes_of(case), case.batch or 1, world_of(case)
        weights = mlp_multiplications(sizes)
        activations = batch * (2 * sizes[0] + 4 * sum(sizes[1:]))
        process = RANK_BYTES[case.device_kind] if world > 1 else 0.0
        own = 4.0 * (activations / world + 5 * weights) + process
        return Work(
            flops=mlp_training_flops(sizes, batch),
            bytes_moved=float(case.element_bytes * activations + 24 * world * weights),
            items=batch,
            item="samples",
            # One rank runs on each GPU.
            memory_bytes=own * (1 if case.device_kind == "gpu" else ranks_here(os.environ, world)),
            ranks=world,
        )

    def prepare(self, case: Case, setup: Setup) -> Task:
        world = world_of(case)
        if (case.batch or 1) % world:
            text = f"a batch of {case.batch} does not divide into {world} equal shares"
            hint = f"choose a --batch that is a multiple of {world}"
            raise WorkloadError(text, code="bad_input", hint=hint)
        if case.backend == "tensorflow":
            return Mirrored(case, setup, MOST_CPU_RANKS)
        if world > 1:
            return DataParallel(case, setup)
        if launch_of(os.environ) is not None:  # the other ranks wait for a group
            groups.enter(1, case.computes_on)
        return Replica(case, setup)


class DataParallel(Task):
    """The ranks of one case.  Like a GPU, they queue steps."""

    waits = True  # sending an order takes another time than a rank needs to queue the step

    def __init__(self, case: Case, setup: Setup) -> None:
        self.case, self.world = case, world_of(case)
        self.seed = setup.seed
        device = case.computes_on
        if device != "cpu" and launch_of(os.environ) is None:
            device_of(case)  # says why CUDA cannot be used
            if (found := torch.cuda.device_count()) < self.world:
                text = f"{self.world} ranks need a CUDA device each, but torch finds {found}"
                hint = "omit --set world=..., or start workbench on several machines with torchrun"
                raise WorkloadError(text, code="no_device", hint=hint)
        with setup.phase("build"):
            self.group = groups.enter(self.world, device)
        try:
            self._prepare(setup)
        except BaseException:
            self.close()
            raise

    def _prepare(self, setup: Setup) -> None:
        case, group = self.case, self.group
        if group.failure is not None:  # an earlier case failed, and the ranks have ended
            raise group.failure
        self.members = group.ranks[: self.world]
        self.threads = [
            max(1, (case.threads or 1) // group.sharers(number, self.world))
            for number in range(self.world)
        ]
        order = {"case": asdict(case), "world": self.world, "threads": self.threads}
        if case.computes_on != "cpu":  # the engine quotes this log line after its deadline
            sys.stderr.write("the ranks meet over NCCL: if it hangs, try NCCL_P2P_DISABLE=1\n")
        phases = group.ask(group.ranks, op="open", seed=setup.seed, **order)
        if case.computes_on != "cpu":
            sys.stderr.write("the ranks have met\n")
        for name in setup.PHASES:
            spent = max(found.get(name, 0.0) for found in phases[: self.world])
            if spent:
                setup.seconds[name] = setup.seconds.get(name, 0.0) + spent
        self.activate()
        slowest = max(self.ask("all_reduce_s"))
        gradient_bytes = 4 * sum((n + 1) * m for n, m in pairwise(sizes_of(case)))
        # Bus bandwidth as in nccl-tests (doc/PERFORMANCE.md): comparable between world sizes.
        factor = 2 * (self.world - 1) / self.world
        self.measured = {
            "allreduce_bytes_per_s": factor * gradient_bytes / slowest,
            "sync_fraction": self._sync_fraction(),
        }
        if case.device_kind == "cpu":
            self.measured["threads_per_rank"] = float(min(self.threads))

    def _sync_fraction(self) -> float:
        """The share of a step that the all-reduce takes, from steps with and without it."""
        for step in ("step", "step_alone"):  # the first step arranges the gradients in buckets
            self._seconds(step)
        together: list[float] = []
        alone: list[float] = []
        began = time.perf_counter()
        while len(alone) < SYNC_ROUNDS and (not alone or time.perf_counter() - began < SYNC_S):
            together.append(self._seconds("step"))
            alone.append(self._seconds("step_alone"))
        self.ask("reset")
        return max(0.0, 1 - median(alone) / median(together))

    def _seconds(self, step: str) -> float:
        began = time.perf_counter()
        self.queue(step)
        self.finish()
        return time.perf_counter() - began

    def ask(self, name: str, **arguments: Any) -> list[Any]:
        return self.group.ask(self.members, op="do", case=self.case.id, name=name, **arguments)

    def activate(self) -> None:
        self.ask("activate")

    def step(self) -> None:
        self.queue("step")

    def queue(self, name: str) -> None:
        self.group.tell(self.members, op="queue", case=self.case.id, name=name)

    def finish(self) -> None:
        self.ask("finish")

    def device_timer(self) -> DeviceTimer | None:
        return RanksTimer(self) if self.case.computes_on != "cpu" else None

    def loss(self) -> float | None:
        losses = self.ask("loss")
        return None if losses[0] is None else sum(losses) / len(losses)

    def profile(self, steps: int) -> Profile:
        """Rank 0's, while the others take the same steps."""
        first, *others = self.members
        order = {"op": "do", "case": self.case.id, "name": "profiled", "steps": steps}
        for _ in range(steps):
            self.group.tell(others, op="queue", case=self.case.id, name="step")
        (found,) = self.group.ask([first], **order)
        self.finish()
        operators = [Operator(**each) for each in found.pop("operators")]
        return Profile(operators=operators, **found)

    def metrics(self) -> dict[str, float]:
        """Bus bandwidth, and the share of a step spent synchronising, from the preparation."""
        return self.measured

    def memory_peak_bytes(self) -> int | None:
        """The largest peak of a GPU, or the sum of all ranks that share a CPU's memory."""
        peaks = self.ask("memory_peak")
        if None in peaks:
            return None
        return int(sum(peaks) if self.case.computes_on == "cpu" else max(peaks))

    def check(self) -> Accuracy:
        return judge(self.case, self.seed, self.ask("trial", samples=checked(self.case)))

    def close(self) -> None:
        if self.group.failure is None:
            with suppress(WorkloadError):
                self.group.ask(self.group.ranks, op="close", case=self.case.id)
        groups.leave(self.group)


class RanksTimer(DeviceTimer):
    """Marks in the queue of every rank; the slowest rank counts."""

    def __init__(self, task: DataParallel) -> None:
        self.task = task

    def start(self) -> None:
        self.task.queue("timer.start")

    def stop(self) -> None:
        self.task.queue("timer.stop")

    def elapsed_s(self) -> float:
        return float(max(self.task.ask("timer.elapsed_s")))


WORKLOAD = Scaling()
