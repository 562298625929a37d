"""Names of machines, devices, candidates and sizes in words."""

from collections import Counter
from collections.abc import Mapping

from ..contract import Case, ParameterValue
from ..records.machine import Gpu, Machine
from ..text import units

LIBRARIES = {
    "jax": "JAX",
    "keras": "Keras",
    "lightgbm": "LightGBM",
    "numpy": "NumPy",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "python": "Python",
    "sklearn": "scikit-learn",
    "tensorflow": "TensorFlow",
    "torch": "PyTorch",
    "xgboost": "XGBoost",
}
MODES = {
    "nhwc": "channels_last",
    "compile": "torch.compile",
    "reduce-overhead": "reduce-overhead mode",
    "graph": "a CUDA graph",
    "fused": "a fused optimiser",
    "keep": "freed memory kept",
}


def machine_name(machine: Machine, *, brief: bool = False) -> str:
    """`AMD EPYC 9654, 16 of 192 cores (cgroup) | NVIDIA H200 140 GiB`."""
    gpu = gpu_text(machine)
    if brief:
        return f"{units.counted(machine.cpu.effective_cores, 'core')} | {gpu}"
    return f"{short_cpu(machine.cpu.model)}, {cores_text(machine)} | {gpu}"


def short_cpu(model: str | None) -> str:
    """The model without trademarks and filler: `AMD EPYC 9654`."""
    if not model:
        return "CPU"
    text = model.replace("(R)", "").replace("(TM)", "").split("@")[0]
    words = [w for w in text.split() if w not in ("CPU", "Processor") and "-Core" not in w]
    return " ".join(words)


def cores_text(machine: Machine) -> str:
    """`16 of 192 cores (cgroup)`, or `8 cores` where nothing limits them."""
    cpu = machine.cpu
    if cpu.effective_cores >= cpu.logical_cores:
        return units.counted(cpu.effective_cores, "core")
    return f"{cpu.effective_cores} of {cpu.logical_cores} cores ({cpu.limited_by})"


def gpu_text(machine: Machine) -> str:
    """`NVIDIA H200 140 GiB`, `2x ...`, `no GPU`, `GPU hidden`; a simulated one is called so."""
    usable = [gpu for gpu in machine.gpus if gpu.device is not None]
    if not usable:
        word = "unusable" if any(gpu.visible for gpu in machine.gpus) else "hidden"
        return f"GPU {word}" if machine.gpus else "no GPU"
    counts = Counter(map(gpu_line, usable))
    return ", ".join(f"{n}x {name}" if n > 1 else name for name, n in counts.items())


def gpu_line(gpu: Gpu) -> str:
    """`NVIDIA H200 140 GiB`."""
    if gpu.simulated:
        return f"{gpu.device} (simulated)"
    memory = f" {units.size(gpu.memory_total_bytes)}" if gpu.memory_total_bytes else ""
    hidden = "" if gpu.visible else " (hidden from CUDA)"
    return f"{gpu.name or 'unknown GPU'}{memory}{hidden}"


def candidate_name(case: Case | str) -> str:
    """`cpu torch bf16 t2` for a case or a case id."""
    label = case.partition("/")[2] if isinstance(case, str) else case.label
    return label.replace("/", " ")


def sized_name(case: str) -> str:
    """`matmul[n=512] cpu torch fp32 t8` for a case id."""
    return f"{case.partition('/')[0].removesuffix('[]')} {candidate_name(case)}".rstrip()


def in_words(case: Case) -> str:
    """`ONNX Runtime static INT8, 2 threads`: the candidate without its device."""
    parts = [LIBRARIES.get(case.backend, case.backend), case.quantization, case.precision.upper()]
    return ", ".join([" ".join(filter(None, parts)), *settings_in_words(case)])


def settings_in_words(case: Case) -> list[str]:
    """Modes, tuning and threads: `channels_last`, `2 threads`."""
    parts = [MODES.get(word, word) for word in case.mode_words if word]
    parts += [f"{name}={value}" for name, value in case.tuning.items()]
    if case.threads is not None:
        parts.append(units.counted(case.threads, "thread"))
    return parts


def value_text(value: ParameterValue) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def place_text(at: Mapping[str, ParameterValue]) -> str:
    """`n=512, batch=8`."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in at.items())
