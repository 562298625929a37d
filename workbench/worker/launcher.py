"""The rank of this process in a distributed job, by the variables of torchrun or srun."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchedRank:
    """This process among those that a launcher started together."""

    launcher: str
    rank: int
    size: int


def launch_of(environment: Mapping[str, str]) -> LaunchedRank | None:
    """The rank of this process; None if no launcher started it.

    RANK and WORLD_SIZE decide if both are set (torchrun, Kubernetes operators).  From Slurm only
    the variables of a step count, since a batch script, which runs once, also has SLURM_PROCID and
    SLURM_NTASKS (sbatch(1), srun(1), "Output environment variables").
    """
    names, launcher = ("RANK", "WORLD_SIZE"), "RANK and WORLD_SIZE"
    if "TORCHELASTIC_RUN_ID" in environment:
        launcher = "torchrun"
    if not all(name in environment for name in names):
        names, launcher = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), "srun"
    try:
        rank, size = (int(environment[name]) for name in names)
    except (KeyError, ValueError):
        return None
    return LaunchedRank(launcher, rank, size) if size > 1 else None


def ranks_here(environment: Mapping[str, str], world: int) -> int:
    """About how many of `world` ranks run on this machine; all if the launcher does not say."""
    launch = launch_of(environment)
    if launch is None:
        return world
    try:
        if "LOCAL_WORLD_SIZE" in environment:
            return min(world, int(environment["LOCAL_WORLD_SIZE"]))
        return min(world, -(-launch.size // int(environment["SLURM_STEP_NUM_NODES"])))
    except (KeyError, ValueError, ZeroDivisionError):
        return world
