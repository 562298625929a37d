"""Inference sessions with the library, provider, threads and options that their case asks for."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from workbench.contract import Case, WorkloadError, kind_of
from workbench.worker import onnx_gpu
from workbench.worker.libraries import onnxruntime
from workbench.worker.onnx_gpu import CPU as CPU, CUDA, OPENVINO, TENSORRT
from workbench.worker.session_options import BFLOAT, ENTRIES, LEVELS, PRECISION, openvino_settings

# Execution providers by the words of a case's mode; without such a word the device decides.
PROVIDERS = {
    "tensorrt": TENSORRT,
    "openvino": OPENVINO,
    "dnnl": "DnnlExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "acl": "ACLExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
}
SILENT = 4  # log severity: fatal messages only, since errors are raised
LOCATION = b"\n\x08location\x12"  # in an ONNX file, before the name of a file with its weights
# Types of OpenVINO as ONNX names them.
TYPES = {"f16": "float16", "f32": "float", "f64": "double", "boolean": "bool"}
TYPES |= {f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
TYPES |= {f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)}


def provider_of(case: Case) -> str:
    """The execution provider for `case`; a simulated GPU computes on the CPU."""
    if kind_of(case.device).simulated:
        return CPU
    default = CPU if kind_of(case.device).on_host else CUDA
    return next((PROVIDERS[word] for word in case.mode_words if word in PROVIDERS), default)


def open_session(
    model: bytes | str, case: Case, profile: Path | None = None, *, shared: bool = False
) -> Any:
    """An inference session as `case` asks for it, or a WorkloadError.

    `model` is its bytes or its file.  A profile goes to a file whose name begins with `profile`.
    ONNX Runtime falls back to the CPU with no more than a warning; here the requested provider must
    be the one in use, and run every node unless the model may be `shared` with the CPU.
    """
    if case.backend == "openvino":
        return OpenVinoSession(model, case)
    provider = provider_of(case)
    # Nodes that a provider leaves to the CPU use all cores, as they do without this option.
    options = _options(case.mode, case.threads or (_cores() if shared else 1), profile)
    if provider == CPU:
        return onnxruntime.InferenceSession(model, options, providers=[CPU])
    if not shared:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    cache = _engines(model) if provider == TENSORRT else ""
    wanted = onnx_gpu.providers(provider, case, cache, shared=shared)
    try:
        return onnx_gpu.open_session(onnxruntime, model, options, wanted)
    except onnx_gpu.Unusable as why:
        raise WorkloadError(str(why), code="provider_fallback", hint=why.hint) from why


def _engines(model: bytes | str) -> str:
    """The folder for TensorRT's engines of `model`, since their names do not depend on weights."""
    with onnx_gpu.overheard([]):
        onnx_gpu.preload(onnxruntime, TENSORRT)
    content = model if isinstance(model, bytes) else Path(model).read_bytes()
    found = hashlib.sha256(content)
    if isinstance(model, str) and LOCATION in content:
        # Files with weights are too large to hash: sizes and times stand for them.
        for each in sorted(Path(model).parent.iterdir()):
            if os.fsencode(each.name) in content:
                found.update(f"{each.stat().st_size} {each.stat().st_mtime_ns}".encode())
    for name in ("onnxruntime", "tensorrt"):  # an engine suits the version that built it
        found.update(getattr(sys.modules.get(name), "__version__", "").encode())
    folder = Path(os.environ.get(onnx_gpu.CACHE, tempfile.gettempdir()), found.hexdigest()[:32])
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)


class OpenVinoSession:
    """A model in OpenVINO with the calls of ONNX Runtime's session; WorkloadError if refused."""

    def __init__(self, model: bytes | str, case: Case) -> None:
        import openvino

        core, device = openvino.Core(), "CPU"
        if case.mode == "auto":
            device = "AUTO"
        elif case.computes_on != "cpu":
            device = f"GPU.{case.device.partition(':')[2]}"
        try:
            graph, settings = core.read_model(model), openvino_settings(case)
            self._compiled = core.compile_model(graph, device, settings)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            text = f"OpenVINO {openvino.__version__.partition('-')[0]} refuses the model: {reason}"
            raise WorkloadError(text) from error
        if settings.get(PRECISION) == BFLOAT:  # without BF16 a CPU's plugin computes in FP32
            used = self._compiled.get_property(PRECISION).get_type_name()
            if used != BFLOAT:
                text = f"OpenVINO computes in {used} on this CPU, not in bf16"
                raise WorkloadError(text, code="unsupported_precision", hint="use fp32")
        self._request = self._compiled.create_infer_request()

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs `names`, or all in their order; inputs are shared, outputs are copies."""
        found = self._request.infer(feeds, share_inputs=True)
        return [*found.values()] if names is None else [found[name] for name in names]

    def get_inputs(self) -> list[Any]:
        return [*map(_port, self._compiled.inputs)]

    def get_outputs(self) -> list[Any]:
        return [*map(_port, self._compiled.outputs)]


def _port(found: Any) -> Any:
    """An input or output, as ONNX Runtime describes its own: the type is `tensor(float)`."""
    kind = found.element_type.get_type_name()
    return SimpleNamespace(name=found.any_name, type=f"tensor({TYPES.get(kind, kind)})")


class BoundSession:
    """A session with one input and one output, in buffers that stay on its device.  A run copies
    its batch there, and the answer back.  cuDNN searches its algorithms in the first."""

    def __init__(self, session: Any, device: str, batch: Any) -> None:
        values = onnxruntime.OrtValue
        (port,), (output,) = session.get_inputs(), session.get_outputs()
        place = device.partition(":")[0], int(device.partition(":")[2] or 0)
        self.session, self.binding, self.name = session, session.io_binding(), port.name
        self.input = values.ortvalue_from_numpy(batch, *place)
        self.output = values.ortvalue_from_shape_and_type(output.shape, batch.dtype, *place)
        self.binding.bind_ortvalue_input(port.name, self.input)
        self.binding.bind_ortvalue_output(output.name, self.output)
        self.run(None, {port.name: batch})

    def run(self, _: None, feeds: Mapping[str, Any]) -> list[Any]:
        self.input.update_inplace(feeds[self.name])
        self.session.run_with_iobinding(self.binding)
        return [self.output.numpy()]


def cpu_session(
    model: bytes | str | Path,
    mode: str = "",
    *,
    profile: Path | None = None,
    optimised: Path | None = None,
) -> Any:
    """A session on all usable cores, with the options of `mode`; raises ONNX Runtime's errors.  A
    profile goes to a file whose name begins with `profile`, the optimised graph to `optimised`."""
    options = _options(mode, _cores(), profile)
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=[CPU])


def _cores() -> int:
    """The number of usable cores; the engine has set the variable with regard to quotas."""
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)


def _options(mode: str | None, threads: int, profile: Path | None) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads  # 0 would pin threads to cores outside a container's set
    options.inter_op_num_threads = 1
    options.log_severity_level = SILENT
    for word in (mode or "").split("+"):
        if word in LEVELS:
            level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[word])
            options.graph_optimization_level = level
        elif word in ENTRIES:
            options.add_session_config_entry(*ENTRIES[word])
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return options
