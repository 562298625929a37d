"""Libraries that workloads take from `workbench.worker.libraries`."""

import subprocess
import sys

import pytest

LIGHT = """
import sys
from workbench.worker.libraries import Array, jax, np, onnx, onnxruntime, torch
assert not {"jax", "numpy", "onnx", "onnxruntime", "torch"} & sys.modules.keys()
assert np.arange(3).sum() == 3
import numpy, workbench.worker.libraries as libraries
assert libraries.np is numpy is not np, "later files get NumPy itself"
"""
OF_A_WORKER = """
import sys
from workbench.catalog.importing import import_workload
from workbench.worker.worker import Worker
Worker(sys.argv[1], "cpu").hello()
workload = sys.modules[type(import_workload(sys.argv[2])).__module__]
library = sys.modules[sys.argv[1]]
assert library in vars(workload).values(), "no stand-in takes time in a step"
"""


def test_a_library_is_loaded_when_it_is_used() -> None:
    subprocess.run([sys.executable, "-c", LIGHT], check=True)


@pytest.mark.parametrize(("backend", "workload"), [("torch", "bandwidth"), ("numpy", "numa")])
def test_the_workloads_of_a_worker_have_the_library_itself(backend: str, workload: str) -> None:
    subprocess.run([sys.executable, "-c", OF_A_WORKER, backend, workload], check=True)
