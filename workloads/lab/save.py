"""Saves the chosen variant for the user, and checks the file by loading it again."""

from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.files import write
from workbench.worker.libraries import onnx

from .._shared.onnx_model import LARGEST_MODEL
from .._shared.session import cpu_session
from . import agreement, graph, samples

CHECKED = 2  # inputs on which the written file is compared; slow models leave no time for more


def save(
    model: Path, folder: Path, source: Path, destination: Path, hidden: Path
) -> dict[str, Any]:
    """Write the variant `source` to `destination` in one piece, with external weights embedded, by
    way of the folder `hidden`, which the engine removes if it is left.

    Returns the fields of `workbench.pool.answers.SavedFile`; `difference` is the largest relative
    error of an output against those of `source`.
    """
    if not source.is_file():
        raise WorkloadError(f"there is no variant {source.name}")
    _require_free(model, destination, is_saved=source == model)
    content = onnx.load(str(source)).SerializeToString()
    try:
        hidden.mkdir(exist_ok=True)
        write.replace(destination, content, within=hidden)
        hidden.rmdir()
    except OSError as error:
        text = f"cannot write {destination}: {error.strerror}"
        hint = "choose a folder that can be written to and has room for the model"
        raise WorkloadError(text, hint=hint) from error
    inputs = samples.read(folder / samples.INPUTS)[:CHECKED]
    before, after = (cpu_session(file) for file in (source, destination))
    difference = agreement.error(after, inputs, agreement.answers(before, inputs))
    return {"size_bytes": len(content), "difference": difference}


def _require_free(model: Path, destination: Path, *, is_saved: bool) -> None:
    """Refuse to overwrite the model, and to save one that is too large for a single file."""
    weights = graph.external_files(onnx.load(str(model), load_external_data=False))
    own = [file for file in (model, *(model.parent / name for name in weights)) if file.exists()]
    size = sum(file.stat().st_size for file in own)
    if is_saved and size > LARGEST_MODEL:
        what = f"the pick is the model as given: its {size / 2**30:.1f} GiB"
        hint = "copy it together with its external data"
        raise WorkloadError(f"{what} do not fit into one file", hint=hint)
    if destination.exists() and any(destination.samefile(file) for file in own):
        text = f"{destination} is the model itself, or its weights"
        raise WorkloadError(text, hint="choose another name: the original is never overwritten")
