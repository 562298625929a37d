"""The plain script of `make own` times what raced."""

from pathlib import Path

from benchmarks import own


def test_the_graph_that_is_timed_is_the_one_that_the_tool_exports(tmp_path: Path) -> None:
    graphs = []
    for batch in (1, 8):
        folder = tmp_path / str(batch)
        folder.mkdir()
        plain = own.Plain("gru", batch, str(folder), "")
        assert "onnxruntime/fp32/t1" in plain.exported()
        graphs.append(Path(plain.model).read_bytes())
        assert plain.session("fp32", "", 1)()[0].shape[0] == batch
    assert graphs[0] == graphs[1], "one graph for both batches, as in a run with --batch 1,8"
