"""The commands that start a run of their own: `advise`, `model` and `run`."""

from typing import Any

import click

from .. import catalog
from ..planning.usage import UsageError
from ..worker.session_options import ONNX_BACKENDS
from .launch import start
from .options import adapt, flag, model_options, own_options, run_options, scenario_options
from .program import command
from .questions import question


@command(
    "workbench advise",
    "workbench advise realtime branching --json",
    "workbench advise --model M.onnx",
    "workbench advise --torch package.module:build --batch 1,8..64",
    "workbench advise --torch model.pt2 --save-best best",
    "workbench advise --torch script.py::Net --python ~/venv/bin/python -- --epochs 1",
    "workbench advise --function package.module:work",
    "workbench advise --command 'python train.py --device {device}' --over device=cpu,cuda",
)
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@scenario_options
@own_options
@run_options
def advise(scenarios: tuple[str, ...], **options: Any) -> None:
    """Recommend CPU or GPU for each scenario.

    With --model, recommend which variant of your own model to ship, INT8 included.  With --torch,
    --function or --command, recommend where and how your own code should run; a script's
    arguments follow --.
    """
    asked = question(options)  # removes its options
    start({**options, "question": asked}, scenarios=scenarios)


adapt(
    advise,
    batch="Batch size: one for a scenario or a model; several make a row each for your own code.",
    settings="A parameter of a scenario's workload (workbench list).",
)


@command(
    "workbench model M.onnx",
    "workbench model M.onnx --inputs data.npz --save-best best.onnx",
    "workbench model M.onnx --max-error 0.01 --batch 8 --json",
)
@click.argument("file", metavar="M.onnx")
@model_options
@run_options
@click.pass_context
def model(context: click.Context, /, file: str, **options: Any) -> None:
    """Recommend which variant of your own ONNX model to ship, and where.

    The same as workbench advise --model M.onnx.
    """
    context.invoke(advise, scenarios=(), model=file, **options)


adapt(
    model,
    ("modes", "settings"),
    budget_s="Wall time; default 30, or 20 with --quick.",
    backends=f"{' or '.join(ONNX_BACKENDS)}.",
    batch="Batch size; one value.",
    objective="Objective of the pick; default latency (median time of one run).",
    max_error="Largest relative error of the outputs against the original's; default 0.02.",
    save_best="Write the pick to a file.",
)


@command(
    "workbench run matmul --set n=2048",
    "workbench run digits --precision fp32 --json",
    "workbench run train_cnn --batch 8..128 --device cpu",
    "workbench run matmul --set n=64..4096 --precision fp32,bf16",
    "workbench run train_cnn --largest-batch --device gpu",
    "workbench run --all --quick",
)
@click.argument("workloads", nargs=-1, metavar="WORKLOAD...")
@flag("--all", "Every workload (default budget 900 s, 180 s with --quick).", "every")
@flag(
    "--largest-batch", "Find the largest batch that fits into memory, instead of measuring speed."
)
@flag("--force", "With --largest-batch: proceed even if other processes use the GPU.")
@run_options
def run(workloads: tuple[str, ...], **options: Any) -> None:
    """Measure every way of running a workload, side by side.

    Several values of a size or batch make a curve: 64..4096 takes every doubling.
    """
    if not workloads and not options["every"]:
        raise UsageError(f"name a workload, or --all: {', '.join(catalog.files())}")
    start(options, workloads=workloads)


adapt(run, ("strict",), budget_s="Wall time; default 60, or 20 with --quick.")
