"""Sessions of ONNX Runtime on the CPU, as the lab's child opens them to check what it made."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import agreement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SILENT = 4  # only fatal messages of ONNX Runtime's own log


def open_session(
    model: bytes | str | Path,
    *,
    level: str = "all",
    profile: Path | None = None,
    optimised: Path | None = None,
) -> Any:
    """A session on the cores of this process; `level` "all", "extended" or "none" of optimising.

    A profile goes to a file whose name begins with `profile`, the graph as it is run to the file
    `optimised`, where given.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = SILENT
    # 0 would pin threads to cores of its choice, outside a container's set.
    options.intra_op_num_threads = usable_cores()
    options.inter_op_num_threads = 1
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = {
        "all": levels.ORT_ENABLE_ALL,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "none": levels.ORT_DISABLE_ALL,
    }[level]
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def answers(session: Any, samples: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The compared outputs of each sample, whose arrays are in the session's order of inputs."""
    names, outputs = [port.name for port in session.get_inputs()], agreement.compared(session)
    return [
        agreement.answer(session, outputs, dict(zip(names, sample, strict=True)))
        for sample in samples
    ]


def usable_cores() -> int:
    """As the engine found them, who knows of quotas, too."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() and int(told) else os.cpu_count() or 1


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing that the tools log, warn of or print gets out."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(SILENT)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def first_line(error: BaseException) -> str:
    """What an exception of the tools says, in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:300] if lines else type(error).__name__
