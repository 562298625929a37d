"""The user's model run as it is by ONNX Runtime on the CPU: the reference for all variants.

Graph optimisations are off, so the reference is what the file says.
"""

from collections.abc import Mapping
from pathlib import Path

from workbench.worker.libraries import Array, onnxruntime
from workbench.worker.session_options import NO_SPIN, UNOPTIMISED

from .._shared.session import cpu_session
from . import agreement
from .errors import AGAIN, bad_model, clear_errors

SHAPES_HINT = "pass its shape: --shape NAME=1,3,224,224, or real inputs: --inputs data.npz"
OLDER = "upgrade onnxruntime, or export it for an older one, with ONNX's own operators"


class Original:
    """A session of the untouched file."""

    def __init__(self, file: Path) -> None:
        self._name = file.name
        version = f"onnxruntime {onnxruntime.__version__}"
        with clear_errors(f"{version} cannot open {file.name}", hint=OLDER):
            self._session = cpu_session(file, f"{UNOPTIMISED}+{NO_SPIN}")
        self.outputs = agreement.compared(self._session)
        given = {port.name: port.type for port in self._session.get_outputs()}
        self.labels = not agreement.QUANTITIES.issuperset(given[name] for name in self.outputs)
        self.uncompared = [name for name in given if name not in self.outputs]
        if given and not self.outputs:
            listed = ", ".join(f"{name} is {kind}" for name, kind in given.items())
            raise bad_model(
                f"none of its outputs can be compared: {listed}",
                "export the model with a tensor as an output (scikit-learn: zipmap=False)",
            )

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The comparable outputs; WorkloadError where ONNX Runtime fails."""
        tried = ", ".join(f"{port} {list(array.shape)}" for port, array in feeds.items())
        what = f"{self._name} does not run with {tried or 'no inputs'}"
        with clear_errors(what, hint=SHAPES_HINT if feeds else AGAIN):
            return agreement.answer(self._session, self.outputs, feeds)
