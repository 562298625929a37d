"""What sinfo and hosts say, read and grouped."""

import subprocess

import pytest
from hypothesis import example, given, strategies as st

from workbench.fleet import slurm
from workbench.fleet.plan import Node, node_types
from workbench.fleet.slurm import parse_sinfo, slurm_nodes
from workbench.fleet.ssh import parse_probe, ssh_nodes
from workbench.planning.usage import UsageError

LAB = """\
gpu2|big|up|big|NO|idle|32|257000|gpu:a100:4(S:0-1),nvme:1|avx512,ib
gpu1|big|up|big|NO|mixed|32|256900|gpu:a100:4(S:0-1),nvme:1|ib,avx512
cpu1|small|up|small*|FORCE:4|idle*|8|16000|(null)|(null)
cpu2|small|up|small*|FORCE:4|allocated|8|16000|(null)|(null)
cpu2|big|up|big|NO|allocated|8|16000|(null)|(null)
cpu3|small|up|small*|FORCE:4|drained|8|16000|(null)|(null)
cpu4|off|inact|off|NO|idle|8|16000|(null)|(null)
"""
WORD = st.text(
    st.characters(exclude_characters="|\n\r,()", exclude_categories=("Z", "C")), min_size=1
)


@pytest.fixture
def sinfo(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A fake sinfo, and what it prints."""
    says = {"out": LAB, "err": ""}

    def run(command: object, **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], bool(says["err"]), says["out"], says["err"])

    monkeypatch.setattr(slurm.subprocess, "run", run)
    monkeypatch.setattr(slurm.shutil, "which", lambda _: "/usr/bin/sinfo")
    return says


def test_types_are_what_distinguishes_nodes(sinfo) -> None:
    first, second = node_types(slurm_nodes([]))
    assert (first.name, first.nodes, first.partition) == ("small-8c", ["cpu2"], "small")
    assert (second.name, second.nodes) == ("big-32c-a100-4", ["gpu2", "gpu1"])
    assert second.gres == ["gpu:a100:4", "nvme:1"]
    assert second.memory_bytes == 256900 << 20


def test_a_partition_limits_the_nodes(sinfo) -> None:
    assert {node.name for node in slurm_nodes(["big"])} == {"gpu1", "gpu2", "cpu2"}
    assert [node.forces_sharing for node in slurm_nodes(["small"])] == [True]
    with pytest.raises(UsageError, match=r"unknown partition 'bik'; did you mean big\?"):
        slurm_nodes(["bik"])
    with pytest.raises(UsageError, match="no node is up"):
        slurm_nodes(["off"])


def test_a_controller_that_does_not_answer_is_one_line(sinfo) -> None:
    sinfo["err"] = "slurm_load_partitions: Unable to contact\n slurm controller\n"
    with pytest.raises(
        UsageError, match=r"sinfo fails: slurm_load_partitions: Unable .*SLURM_CONF"
    ):
        slurm_nodes([])


def test_without_slurm_the_remedy_is_named(monkeypatch) -> None:
    monkeypatch.setattr(slurm.shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match=r"sinfo was not found: .* --hosts"):
        slurm_nodes([])


@given(
    WORD,
    WORD,
    st.integers(1, 4096),
    st.integers(1, 1 << 24),
    st.lists(WORD, max_size=4),
    st.booleans(),
)
def test_every_line_of_sinfo_is_read(name, partition, cores, mb, features, is_default) -> None:
    starred = partition + "*" * is_default
    listed = ",".join(features) or "(null)"
    line = f"{name}|{partition}|up|{starred}|NO|idle|{cores}|{mb}+|gpu:1(S:0,1)|{listed}\n"
    (node,) = parse_sinfo(line)
    assert (node.name, node.partition, node.cores) == (name, partition, cores)
    assert (node.memory_bytes, node.gres) == (mb << 20, ("gpu:1",))
    assert node.features == tuple(word for word in features if word not in ("N/A",))
    assert node.is_default == (is_default or partition.endswith("*"))


@given(st.text(max_size=200))
def test_other_text_is_refused_in_one_line(text: str) -> None:
    try:
        parse_sinfo(text)
    except UsageError as error:
        assert str(error).startswith("sinfo wrote a line that cannot be read: ")
        assert str(error).isprintable()


@example([Node("a", 1, 1 << 30, partition="J"), Node("b", 1, 1 << 30, partition="j")])
@given(
    st.lists(
        st.builds(Node, WORD, st.integers(1, 9), st.just(1 << 30), partition=WORD), max_size=30
    )
)
def test_names_of_types_are_unique_folders(found: list[Node]) -> None:
    types = node_types(found)
    names = [each.name for each in types]
    assert len({name.lower() for name in names}) >= len(set(names)) == len(names)
    assert not [name for name in names if "/" in name or name.startswith((".", "-"))]
    assert sum(len(each.nodes) for each in types) == len(found)


def test_a_host_describes_itself() -> None:
    node = parse_probe("desk", "16\n65536 kB\nAMD EPYC\nNVIDIA A100\nNVIDIA A100\n")
    assert node == Node("desk", 16, 64 << 20, ("AMD EPYC",), ("gpu:NVIDIA A100:2",))
    assert parse_probe("desk", "16\n65536 kB\n").features == ()
    with pytest.raises(UsageError, match="desk did not report its number of cores: Welcome"):
        parse_probe("desk", "Welcome\x1b[2J\n")


@pytest.mark.parametrize("text", ["hosts = []", 'hosts = "a"', "hosts = [1]", "other = 1"])
def test_a_file_without_hosts_is_refused(tmp_path, text: str) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match="--hosts takes A,B and a --hosts-file has hosts ="):
        ssh_nodes(None, str(file))
    with pytest.raises(UsageError, match=r"--hosts-file .*/none.toml cannot be read"):
        ssh_nodes(None, str(tmp_path / "none.toml"))
