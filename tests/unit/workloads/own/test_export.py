"""A module leaves torch as ONNX or as an archive, or one line says why it cannot."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from checking import fails_with
from own_subject import Subject
from torch import nn

from workbench.contract import WorkloadError
from workbench.worker.code import Code
from workloads.lab import samples
from workloads.own import archive, export
from workloads.own.reference import Reference, arrays, call
from workloads.own.subject import subject_of


@pytest.fixture
def code(tmp_path: Path) -> Code:
    return Code("torch", "net:build", str(tmp_path), str(tmp_path))


def exported(code: Code, net: Any, batch: int | None, resizes: bool = False) -> dict[str, Any]:
    found = arrays(call(net.copy(), net.example(batch)))
    names = [name or "output" for name in found]
    right = Reference(names, list(found.values()), [0.0] * len(names), "eager")
    return export.export(code, net, batch, right, resizes=resizes)


def run(made: dict[str, Any], feeds: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(made["model"], providers=["CPUExecutionProvider"])
    return session.run(None, {name: tensor.numpy() for name, tensor in feeds.items()})


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids: Any, *, mask: Any, unused: Any = None, double: bool = False) -> Any:
        rows = self.layer(self.table(ids), src_key_padding_mask=mask)
        return {"rows": rows * 2 if double else rows, "best": [rows.argmax(-1)]}


def test_any_batch_with_tokens_masks_and_constants(code: Code) -> None:
    ids, mask = torch.arange(10).reshape(2, 5), torch.zeros(2, 5, dtype=torch.bool)
    net = Subject(Masked(), ids, mask=mask, unused=mask, double=True)
    made = exported(code, net, 2, resizes=True)
    assert (made["dynamic"], made["inputs"]) == (True, ["input_0", "mask"])
    given = net.example(6)
    found = run(made, {"input_0": given.args[0], "mask": given.kwargs["mask"]})
    expected = net.copy()(*given.args, **given.kwargs)
    np.testing.assert_allclose(found[0], expected["rows"].detach(), atol=1e-5)
    assert found[1].tolist() == expected["best"][0].tolist()


class Attends(nn.Module):
    def forward(self, query: Any, key: Any, value: Any, bias: Any) -> Any:
        assert query is key is value
        return query * 2 + bias


def test_a_tensor_that_comes_twice_is_one_in_the_graph_too(code: Code) -> None:
    x, bias = torch.ones(2, 3), torch.arange(3.0)
    made = exported(code, Subject(Attends(), x, x, x, bias), None)
    assert made["inputs"] == ["input_0", "input_3"]
    (found,) = run(made, {"input_0": x, "input_3": bias})
    assert found.tolist() == (x * 2 + bias).tolist()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.LSTM(4, 8, batch_first=True, bidirectional=True)

    def forward(self, x: Any) -> Any:
        rows, (state, _) = self.net(x)
        return rows[:, -1], state


class Messages(nn.Module):
    def forward(self, x: Any, edges: Any) -> Any:
        return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])

    def get_extra_state(self) -> str:
        return "no tensor"

    def set_extra_state(self, _: str) -> None:
        pass


@pytest.mark.parametrize(
    ("module", "shape"), [(Recurrent(), (1, 5, 4)), (nn.Sequential(nn.Flatten()), (1, 3, 2))]
)
def test_a_batch_of_one_stays_open(code: Code, module: Any, shape: tuple[int, ...]) -> None:
    net = Subject(module, torch.randn(*shape))
    made = exported(code, net, 1, resizes=True)
    assert made["dynamic"]
    assert run(made, {"input_0": net.example(3).args[0]})[0].shape[0] == 3


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * 2
        return x - 1


def test_a_module_of_torch_jit_keeps_its_branches(code: Code) -> None:
    net = Subject(torch.jit.script(Branching()), torch.ones(2, 3))
    made = exported(code, net, 2, resizes=True)
    for rows in (torch.ones(4, 3), -torch.ones(4, 3)):
        (found,) = run(made, {"input_0": rows})
        assert found.tolist() == net.copy()(rows).tolist()


class Sampling(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + torch.randn_like(x), x * 2


def test_an_output_that_differs_each_time_does_not_count(code: Code) -> None:
    net = Subject(Sampling(), torch.ones(2, 3))
    found = [each.numpy() for each in net.copy()(torch.ones(2, 3))]
    right, loose = (Reference(["0", "1"], found, [1.0, x], "eager") for x in (0.0, 1.0))
    assert export.export(code, net, 2, right, resizes=False)["inputs"] == ["input_0"]
    with fails_with("not_exported", "cannot be checked, since eager differs from itself"):
        export.export(code, net, 2, loose, resizes=False)


def test_what_tracing_lacks_torch_export_has(code: Code) -> None:
    edges = torch.tensor([[0, 1, 2], [2, 2, 0]])
    made = exported(code, Subject(Messages(), torch.randn(3, 4), edges), None)
    assert (made["dynamic"], made["inputs"]) == (False, ["input_0", "input_1"])


class OneBatch(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * float(sum(x.shape))


def test_a_graph_for_one_batch_only_says_so(code: Code, monkeypatch: Any) -> None:
    write = export._write

    def by_tracing(*given: Any, traced: bool) -> None:
        if not traced:
            raise RuntimeError("torch.export is slow, and finds the same")
        write(*given, traced=traced)

    monkeypatch.setattr(export, "_write", by_tracing)
    made = exported(code, Subject(OneBatch(), torch.ones(2, 3)), 2, resizes=True)
    assert not made["dynamic"]
    assert run(made, {"input_0": torch.ones(2, 3)})[0].tolist() == [[5.0] * 3] * 2


def test_without_another_batch_it_is_left_as_it_is(code: Code) -> None:
    made = exported(code, Subject(nn.Flatten(), torch.ones(1, 3, 2)), 1)
    assert (made["dynamic"], made["operations"], made["convolutions"]) == (False, 1, 0)


class Branch(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x - 1


def test_what_cannot_be_exported_says_why(code: Code) -> None:
    with fails_with("not_exported", "depend on the values of its inputs"):
        exported(code, Subject(Branch(), torch.ones(2, 3)), 2)


def test_without_onnxscript_its_name(code: Code, monkeypatch: Any) -> None:
    def absent(*_: Any, **options: Any) -> None:
        if options["dynamo"]:
            raise ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript")
        raise RuntimeError("unsupported")

    monkeypatch.setattr(torch.onnx, "export", absent)
    with fails_with("missing_package", "needs onnxscript"):
        exported(code, Subject(nn.Identity(), torch.ones(2, 3)), 2)


def test_the_lab_gets_inputs_in_the_order_of_the_session(code: Code) -> None:
    ids, mask = torch.arange(10).reshape(2, 5), torch.zeros(2, 5, dtype=torch.bool)
    net = Subject(Masked(), ids, unused=ids, mask=mask)
    export.hand_over(code, net, 2, ["mask", "input_0"])
    (given,) = samples.read(Path(code.folder, "b2", samples.INPUTS))
    assert [each.dtype.name for each in given] == ["bool", "int64"]


class Breaks(nn.Module):
    def forward(self, x: Any) -> Any:
        x = x + x.sum().item()
        x = x * 2 if x.sum() > 0 else x
        return x + x.mean().item()


def breaks(one: Subject, batch: int) -> dict[str, Any]:
    return export.breaks(one, one.example(batch), "no_grad")


def test_graph_breaks_are_grouped(code: Code) -> None:
    found = breaks(Subject(Breaks(), torch.ones(2, 3)), 2)
    assert found["reasons"] == ["2x Tensor.item()", "1x branch on the values of a tensor"]
    found = breaks(Subject(nn.Linear(3, 3), torch.ones(2, 3)), 2)
    assert found == {"reasons": [], "operations": 1, "convolutions": 0}


def test_what_torch_does_not_compile_is_unsupported(code: Code) -> None:
    net = Subject(Recurrent(), torch.randn(1, 5, 4))
    assert exported(code, net, 1)["operations"], "torch.export takes it, the compiler does not"
    with fails_with("unsupported", "finds nothing in"):
        breaks(net, 1)


class Loops(nn.Linear):
    def forward(self, x: Any) -> Any:
        for _ in range(2):
            x = super().forward(x) * x.sum().item()
        return x


def test_a_graph_break_in_a_loop_is_named(code: Code) -> None:
    with fails_with("unsupported", r"to compile .graph break: Tensor\.item\(\)"):
        breaks(Subject(Loops(3, 3), torch.ones(2, 3)), 2)


@pytest.fixture(scope="module")
def net_pt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive, which no test changes."""
    net = Subject(nn.Sequential(nn.Linear(3, 3), nn.Dropout()), torch.ones(2, 3))
    path = tmp_path_factory.mktemp("archive") / "net.pt2"
    assert export.archive(net, 2, path) == [], "its outputs need no other library"
    return path


def test_an_archive_brings_its_inputs(net_pt2: Path) -> None:
    module, example = archive.opened(net_pt2, pickled=False)
    assert (tuple(example.args[0].shape), example.kwargs) == ((2, 3), {})
    assert archive.is_graph(module) and not archive.is_graph(nn.Linear(3, 2))
    found = module(*example.args)
    assert torch.equal(archive.plain(module).eval()(*example.args), found)


def changed(path: Path, copy: Path, name: str, content: Any) -> Path:
    """Write a `copy` of an archive, in which one entry differs."""
    with zipfile.ZipFile(path) as held, zipfile.ZipFile(copy, "w") as parts:
        for each in held.namelist():
            data = held.read(each)
            parts.writestr(each, content(data) if each.endswith(name) else data)
    return copy


def newer(data: bytes) -> bytes:
    text = json.loads(data)
    text["schema_version"]["major"] += 1
    return json.dumps(text).encode()


def refusal(path: Path, pickled: bool = False) -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        archive.opened(path, pickled)
    assert "\n" not in str(caught.value)
    return caught.value


def test_archives_that_cannot_be_used(net_pt2: Path, tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.pt2").code == "bad_input"
    (tmp_path / "text.pt2").write_text("hello")
    assert "not an archive of torch.export" in str(refusal(tmp_path / "text.pt2"))
    torch.save(nn.Linear(3, 2), tmp_path / "saved.pt2")
    saved = refusal(tmp_path / "saved.pt2")
    assert "is a file of torch.save" in str(saved) and "rename it to .pt" in str(saved.hint)
    other = changed(net_pt2, tmp_path / "newer.pt2", "models/model.json", newer)
    assert "--python that wrote it" in str(refusal(other).hint)
    bare = changed(net_pt2, tmp_path / "bare.pt2", "sample_inputs/model.pt", lambda _: b"")
    assert "no example inputs" in str(refusal(bare))


class Trap:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (Path.touch, (Path("trapped"),))


def test_no_pickle_runs_unasked(net_pt2: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save((Trap(),), "trap.pt")
    trap = Path("trap.pt").read_bytes()
    armed = changed(net_pt2, Path("net.pt2"), "sample_inputs/model.pt", lambda _: trap)
    for each in (armed, Path("trap.pt")):
        assert refusal(each).code == "bad_input"
    assert not Path("trapped").exists()
    refusal(Path("trap.pt"), pickled=True)
    assert Path("trapped").exists()


def test_pickles_on_request(tmp_path: Path) -> None:
    net, path = nn.Linear(3, 3), tmp_path / "net.pt"
    torch.save((net, torch.ones(2, 3), {"a": 1}), path)
    module, example = archive.opened(path, pickled=True)
    assert torch.equal(module(*example.args), net(torch.ones(2, 3)))
    assert example.kwargs == {"a": 1}
    for held, kind in ((net.state_dict(), "OrderedDict"), (net, "Linear"), (3, "int")):
        torch.save(held, path)
        found = refusal(path, pickled=True)
        assert str(found) == f"net.pt holds {kind}, not a module with its inputs"
        assert found.code == "bad_input"


def numbered(folder: Path, home: str = "cpu") -> Code:
    """The code of an archive whose graph names the CPU."""

    class Numbered(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + torch.arange(x.shape[1], device=x.device)

    program = torch.export.export(Numbered(), (torch.zeros(2, 3),))
    torch.export.save(program, folder / "net.pt2")
    (folder / "own").mkdir()
    return Code("torch", "net.pt2", str(folder / "own"), str(folder), home=home)


def test_an_archive_moves_with_the_devices_that_its_graph_names(tmp_path: Path) -> None:
    code = numbered(tmp_path)
    moved = subject_of(code).on(torch.device("meta"))
    assert moved(torch.zeros(2, 3, device="meta")).is_meta
    assert moved is not subject_of(code).module


def test_a_module_that_lives_on_a_gpu_is_archived_with_its_inputs_there(tmp_path: Path) -> None:
    net = Subject(nn.Linear(3, 2).to("meta"), torch.ones(2, 3))
    net.code = replace(net.code, home="meta")  # stands for a GPU: no other device computes with it
    export.archive(net, 2, tmp_path / "net.pt2")
    ((given,), _) = torch.export.load(tmp_path / "net.pt2").example_inputs
    assert given.device.type == "meta"


class Output(dict[str, Any]):
    """A container like the model outputs of transformers."""

    __module__ = "library.outputs"


def test_an_archive_needs_what_defines_its_outputs(tmp_path: Path) -> None:
    class Net(nn.Linear):
        def forward(self, values: Any) -> Any:
            return Output(logits=super().forward(values))

    torch.utils._pytree.register_pytree_node(
        Output,
        lambda output: (list(output.values()), list(output)),
        lambda values, names: Output(zip(names, values, strict=True)),
        serialized_type_name="library.outputs.Output",
    )
    net = Subject(Net(3, 2), torch.ones(2, 3))
    assert export.archive(net, 2, tmp_path / "net.pt2") == ["library.outputs"]


def test_an_archive_is_examined_on_a_gpu_with_the_devices_that_its_graph_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = numbered(tmp_path, home="cpu:0")  # another name of the CPU
    moved: list[str] = []
    monkeypatch.setattr(archive, "on", lambda *how: moved.append(how[-1]) or nn.Linear(3, 3))
    assert isinstance(subject_of(code).module, nn.Linear)
    assert moved == ["cpu:0"]
