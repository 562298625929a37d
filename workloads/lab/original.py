"""The user's model run as it is by ONNX Runtime on the CPU: the reference for all variants.

Graph optimisations are off, so the reference is what the file says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.contract import WorkloadError
from workbench.worker.failures import is_out_of_memory
from workbench.worker.session_options import NO_SPIN, UNOPTIMISED

from .._shared.session import cpu_session
from . import agreement, graph
from .errors import bad_model, no_memory, said

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .load import Loaded

SHAPES_HINT = "pass its shape: --shape NAME=1,3,224,224, or real inputs: --inputs data.npz"
_OPSET = re.compile(r"for domain (\S+) is till opset (\d+)")
OLDER = "upgrade onnxruntime, or export it for an older one, with ONNX's own operators"


class Original:
    """A session of the untouched file."""

    def __init__(self, loaded: Loaded) -> None:
        try:
            self._session = cpu_session(loaded.path, f"{UNOPTIMISED}+{NO_SPIN}")
        except Exception as error:
            raise _refusal(loaded, error) from error
        self.outputs = agreement.compared(self._session)
        given = {port.name: port.type for port in self._session.get_outputs()}
        self.uncompared = [name for name in given if name not in self.outputs]
        if given and not self.outputs:
            listed = ", ".join(f"{name} is {kind}" for name, kind in given.items())
            raise bad_model(
                f"none of its outputs can be compared: {listed}",
                "export the model with a tensor as an output (scikit-learn: zipmap=False)",
            )

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The comparable outputs; exceptions of ONNX Runtime pass."""
        return agreement.answer(self._session, self.outputs, feeds)


def does_not_run(name: str, error: Exception, shapes: Mapping[str, Sequence[int]]) -> WorkloadError:
    """The error of a model that opens but fails to run."""
    tried = ", ".join(f"{port} {list(shape)}" for port, shape in shapes.items()) or "no inputs"
    if is_out_of_memory(error):
        return no_memory(f"{name} needs more memory than there is, with {tried}")
    message = f"{name} does not run with {tried}: {said(error)}"
    return bad_model(message, SHAPES_HINT) if shapes else bad_model(message)


def _refusal(loaded: Loaded, error: Exception) -> WorkloadError:
    """Why ONNX Runtime cannot open the model."""
    import onnxruntime

    name, version = loaded.path.name, f"onnxruntime {onnxruntime.__version__}"
    if is_out_of_memory(error):
        return no_memory(f"{name} does not fit into memory")
    if found := _OPSET.search(str(error)):
        domain, newest = found[1], found[2]
        given = graph.opset(loaded.proto, domain)
        return bad_model(
            f"{name} has opset {given} of {domain}, {version} reads up to {newest}",
            f"upgrade onnxruntime, export it with opset {newest}, or convert it: "
            f"onnx.version_converter.convert_version(model, {newest})",
        )
    return bad_model(f"{version} cannot open {name}: {said(error)}", OLDER)
