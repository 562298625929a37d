"""Loads an untrusted ONNX model; an error says in one line what is wrong with it.

The graph is parsed once, without the values of its weights: ONNX Runtime reads the file itself.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.files import read
from workbench.worker.libraries import Array, onnx, onnxruntime
from workbench.worker.session_options import NO_SPIN, UNOPTIMISED

from .._shared.onnx_model import LARGEST_FILE
from .._shared.session import cpu_session
from . import agreement, graph
from .errors import AGAIN, bad_model, clear_errors, one_line, said

SMALL = 4096  # bytes of a constant that stays in the parsed graph
SHAPES_HINT = "give sizes that fit: --shape NAME=1,3,224,224, or inputs that do: --inputs data.npz"
OLDER = "upgrade onnxruntime, or export it in float32 with ONNX's own operators, for an older opset"
FIRST_OPSET = 7  # the oldest that ONNX Runtime runs
NEWER = f"raise its opset to {FIRST_OPSET} or more with onnx.version_converter.convert_version"
REMEDIES = (  # by patterns in messages of ONNX Runtime
    (
        r"IR version",
        "upgrade onnxruntime, or lower model.ir_version and save it with onnx.save",
    ),
    (
        r" (?!com\.microsoft)[\w.]+:\w+\(\S* is not a registered",
        "no library of custom operators is loaded: export it with ONNX's own operators",
    ),
)
# Words of ONNX Runtime for what it does not know; any other error is a fault of the file.
UNKNOWN = re.compile(r"opset|registered|IR version|implementation|not supported", re.IGNORECASE)
EXPORT = "export the model to ONNX first, for instance by torch.onnx.export or tf2onnx"
# NumPy's names for the types of onnx.TensorProto that arrays can have.
TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
}  # fmt: skip
# Files of other kinds by their beginning, and what to do about them; the first that fits counts.
_OTHERS = (
    (rb"\Z", "an empty file", AGAIN),
    (rb"....TFL3", "a TensorFlow Lite model", "convert it with tf2onnx --tflite"),
    (rb"....ORTM", "a model in ONNX Runtime's ORT format", "pass the ONNX file it was made from"),
    (rb"\x89HDF", "an HDF5 file, such as Keras writes", EXPORT),
    (rb"GGUF", "a GGUF file", EXPORT),
    (rb"\x80[\x02-\x05]", "a Python pickle", EXPORT),
    (rb"PK\x03\x04.*(data\.pkl|\.pt)", "a PyTorch checkpoint (.pt)", EXPORT),
    (rb"PK\x03\x04|\x1f\x8b|\x28\xb5\x2f\xfd", "an archive", "unpack it first"),
    (rb".{4}\0{4}\{", "a safetensors file: weights without a graph", EXPORT),
    (rb"version https://git-lfs", "a Git LFS pointer", "fetch the file with git lfs pull"),
    (rb"\s*[{[]", "JSON", EXPORT),
    (rb"\s*<.*html", "a web page", "download the file itself, not the page about it"),
    (rb"[^\0-\x08\x0e-\x1f]*\Z", "text", "pass the binary file"),
    (rb"", "a damaged file", AGAIN),
)


@dataclass
class Loaded:
    """A model that was read: its graph without the large weights, and facts about the file."""

    path: Path
    proto: Any
    sha256: str  # the file's, without external data
    size_bytes: int  # external data included


def load(model: str) -> Loaded:
    """Read and check the file; WorkloadError `bad_model` if it cannot be used."""
    path = Path(model)
    data = _bytes(path)
    sha256 = hashlib.sha256(data).hexdigest()
    with clear_errors(f"{path.name} is not a valid ONNX model"):
        proto = _parsed(path, data)
        size = len(data)
        del data
        _require_inference(path.name, proto)
        size += _external_bytes(path, proto)
        _require_arrays(path.name, proto)
        _drop_weights(proto)
    return Loaded(path, proto, sha256, size)


def _bytes(path: Path) -> bytes:
    try:
        with read.opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > LARGEST_FILE:
                text = f"{path} has {size / 2**30:.1f} GiB; an ONNX file has 2 at most"
                raise bad_model(text, "export it with its weights as external data")
            return file.read()
    except OSError as error:
        hint = "pass the path of an .onnx file that may be read"
        raise bad_model(f"{path} cannot be read: {error.strerror}", hint) from None


def _parsed(path: Path, data: bytes) -> Any:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        proto.Clear()
    if not proto.HasField("graph"):
        what, hint = looks_like(data)
        raise bad_model(f"{path.name} is not an ONNX model: it looks like {what}", hint)
    if not proto.graph.node:
        raise bad_model(f"{path.name} has no nodes: there is nothing to run")
    if not graph.names_are_text(proto):
        raise bad_model(f"{path.name} has a name that is not valid UTF-8")
    return proto


def looks_like(data: bytes) -> tuple[str, str]:
    """The kind of a file that is not a model, by its first bytes, and the remedy."""
    return next(
        (what, hint)
        for pattern, what, hint in _OTHERS
        if re.match(pattern, data[:4096], re.DOTALL | re.IGNORECASE)
    )


def _require_inference(name: str, proto: Any) -> None:
    if proto.training_info:
        raise bad_model(f"{name} has a training graph", "export it for inference")
    for node in graph.nodes(proto):
        if node.op_type == "BatchNormalization" and any(
            attribute.name == "training_mode" and attribute.i for attribute in node.attribute
        ):
            text = f"{name} was exported in training mode"
            raise bad_model(text, "call model.eval() before the export")


def _external_bytes(path: Path, proto: Any) -> int:
    """Size of all external data; refuses a file too short or outside the model's folder."""
    folder = path.parent.resolve()
    wanted: dict[str, int] = {}  # location to the number of bytes that the model needs of it
    for tensor in graph.tensors(proto):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        try:
            offset, length = int(entries.get("offset") or 0), int(entries.get("length") or 0)
        except ValueError:
            offset = length = -1
        if offset < 0 or length < 0:
            raise bad_model(f"tensor {tensor.name} has no valid range in its external data")
        location = entries.get("location", "")
        wanted[location] = max(wanted.get(location, 0), offset + length)
    return sum(_external_file(folder, location, end) for location, end in wanted.items())


def _external_file(folder: Path, location: str, end: int) -> int:
    file, shown = folder / location, one_line(location)
    copy = "copy it into the model's folder, or export the model again"
    if not file.resolve().is_relative_to(folder):  # also by a link
        raise bad_model(f"the model's external data {shown} lies outside its folder", copy)
    if not file.is_file() or not os.access(file, os.R_OK):
        raise bad_model(f"the model's external data {shown} is missing or cannot be read", copy)
    size = file.stat().st_size
    if size < end:
        text = f"the external data {shown} has {size} bytes, the model needs {end}"
        raise bad_model(text, "it is truncated: download or export it again")
    return size


def _require_arrays(name: str, proto: Any) -> None:
    """Refuse inputs that NumPy cannot hold, and a model without outputs."""
    found = graph.free_inputs(proto)
    if len({value.name for value in found}) < len(found):
        raise bad_model(f"{name} has two inputs with the same name")
    if not proto.graph.output:
        raise bad_model(f"{name} has no outputs to compare", "export it with outputs")
    names = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
    for value in found:
        element = value.type.tensor_type.elem_type  # 0 if it is no tensor
        if element not in TYPES:
            kind = value.type.WhichOneof("value") or "nothing"
            what = names.get(element, element) if element else kind.removesuffix("_type")
            raise bad_model(
                f"input {value.name} has type {what}: not supported, since it cannot be generated",
                "export the model with a tensor as this input, in a type such as float32 or int64",
            )


def _drop_weights(proto: Any) -> None:
    for tensor in graph.tensors(proto):
        if tensor.data_location == tensor.EXTERNAL or tensor.ByteSize() > SMALL:
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
                tensor.ClearField(field)


class Original:
    """The untouched file run by ONNX Runtime on the CPU: the reference for all variants.  Graph
    optimisations are off, so the reference is what the file says."""

    def __init__(self, loaded: Loaded) -> None:
        self._name = loaded.path.name
        what = f"onnxruntime {onnxruntime.__version__} cannot open {self._name}"
        with clear_errors(what):
            try:
                self._session = cpu_session(loaded.path, f"{UNOPTIMISED}+{NO_SPIN}")
            except Exception as error:
                if not UNKNOWN.search(str(error)):
                    raise
                is_old = (graph.opset(loaded.proto) or FIRST_OPSET) < FIRST_OPSET
                found = (hint for pattern, hint in REMEDIES if re.search(pattern, str(error)))
                hint = next(found, NEWER if is_old else OLDER)
                raise bad_model(f"{what}: {said(error)}", hint) from error
        self.outputs = agreement.compared(self._session)
        given = {port.name: port.type for port in self._session.get_outputs()}
        self.labels = not agreement.QUANTITIES.issuperset(given[name] for name in self.outputs)
        self.uncompared = [name for name in given if name not in self.outputs]
        if given and not self.outputs:
            listed = ", ".join(f"{name} is {kind}" for name, kind in given.items())
            text = f"none of its outputs can be compared: {listed}"
            hint = "export the model with a tensor as an output (scikit-learn: zipmap=False)"
            raise bad_model(text, hint)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The comparable outputs; WorkloadError if ONNX Runtime fails."""
        tried = ", ".join(f"{port} {list(array.shape)}" for port, array in feeds.items())
        what = f"{self._name} does not run with {tried or 'no inputs'}"
        with clear_errors(what, hint=SHAPES_HINT if feeds else AGAIN):
            return agreement.answer(self._session, self.outputs, feeds)
