"""Whatever is written goes through one function, which harms nothing that it should not replace."""

import errno
import os
import signal
import socket
import stat
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from workbench.files import write
from workbench.files.write import Target, replace, resolved, send

DEVICES = [(1, 3), (1, 5), (1, 7)]  # null, zero and full: null(4), full(4)


def node(path: Path, device: tuple[int, int] = DEVICES[0]) -> Path:
    """A copy of a device node, where this user may make one."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(*device))
    except PermissionError:
        pytest.skip("only root may make device nodes")
    return path


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_a_check_before_the_run_leaves_nothing_and_changes_nothing(tmp_path: Path) -> None:
    Target(tmp_path / "new.json")
    assert names(tmp_path) == []
    (tmp_path / "old.json").write_bytes(b"old")
    Target(tmp_path / "old.json")
    assert (tmp_path / "old.json").read_bytes() == b"old"
    assert names(tmp_path) == ["old.json"]


def test_a_new_file_has_the_rights_that_the_user_grants_and_an_old_one_keeps_its_own(
    tmp_path: Path,
) -> None:
    before = os.umask(0o027)
    try:
        replace(tmp_path / "new", b"1")
    finally:
        os.umask(before)
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "old").chmod(0o604)
    replace(tmp_path / "old", b"2")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o604
    assert (tmp_path / "old").read_bytes() == b"2"
    assert names(tmp_path) == ["new", "old"]


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_is_refused_and_stays(tmp_path: Path, device: tuple[int, int]) -> None:
    path = node(tmp_path / "node", device)
    for attempt in (Target, lambda named: replace(named, b"x")):
        with pytest.raises(OSError, match="it is not a regular file"):
            attempt(path)
    assert stat.S_ISCHR(path.lstat().st_mode)
    assert names(tmp_path) == ["node"]


def test_a_socket_and_a_folder_are_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket has 108 bytes at most: unix(7)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(OSError, match="it is not a regular file"):
            Target(Path("socket"))
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        Target(tmp_path)


def test_a_file_that_is_mounted_by_itself_is_refused(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "out.json").write_text("old")
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path).name == "out.json")
    with pytest.raises(OSError, match="mount its folder"):
        Target(tmp_path / "out.json")
    assert names(tmp_path) == ["out.json"]


def test_a_file_that_could_not_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("none/x.json", "x" * 256, "file/x.json"):
        with pytest.raises(OSError):
            Target(tmp_path / path)
    with pytest.raises(OSError):
        Target(Path("/proc/self/result.json"))


def test_a_link_of_ours_is_followed_once_also_where_it_leads_nowhere_yet(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "second").symlink_to("folder/file")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    target = Target(tmp_path / "first")
    target.write(b"1")
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "folder/file").read_bytes() == b"1"
    target.write(b"2")
    assert (tmp_path / "first").read_bytes() == b"2"
    assert names(tmp_path / "folder") == ["file"]


def test_a_link_of_another_user_is_refused(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    try:
        os.lchown(tmp_path / "link", 4242, 4242)
    except PermissionError:
        pytest.skip("only root may give files away")
    with pytest.raises(PermissionError, match="belongs to another user: name the file it leads to"):
        Target(tmp_path / "link")
    assert names(tmp_path) == ["link"]


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        resolved(tmp_path / "a")


@pytest.mark.parametrize("grows", [False, True])
def test_a_link_planted_while_the_run_lasts_leads_nowhere(tmp_path: Path, grows: bool) -> None:
    target, victim = Target(tmp_path / "result"), tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "result").symlink_to(victim)
    with pytest.raises(OSError, match="it has become a link since the run began"):
        target.begin() if grows else target.write(b"x")
    assert victim.read_bytes() == b"precious"
    assert names(tmp_path) == ["result", "victim"]


def test_the_temporary_file_has_a_name_that_cannot_be_guessed(tmp_path: Path, monkeypatch) -> None:
    seen: list[str] = []
    real = os.open

    def spy(path: Path, flags: int, mode: int = 0o777) -> int:
        assert flags & os.O_EXCL
        assert flags & os.O_NOFOLLOW
        seen.append(Path(path).name)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", spy)
    for _ in range(5):
        replace(tmp_path / "file", b"x")
    assert len(set(seen)) == 5


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
def test_after_an_error_the_old_file_is_whole_and_nothing_else_is_left(
    tmp_path: Path, monkeypatch, step: str, error: BaseException
) -> None:
    (tmp_path / "file").write_bytes(b"old")
    where = (Path, "replace") if step == "rename" else (os, step)
    monkeypatch.setattr(*where, Mock(side_effect=error))
    with pytest.raises(type(error)):
        replace(tmp_path / "file", b"new")
    monkeypatch.undo()
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_result_that_grows_has_its_name_before_its_first_byte(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    descriptor = Target(tmp_path / "file").begin()
    assert (tmp_path / "file").read_bytes() == b""
    send(descriptor, b"one\n")
    assert (tmp_path / "file").read_bytes() == b"one\n"
    os.close(descriptor)
    assert names(tmp_path) == ["file"]


def test_a_fifo_without_a_reader_is_refused_after_a_while(tmp_path: Path, monkeypatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr(write, "READER_S", 0.1)
    target = Target(tmp_path / "fifo")
    with pytest.raises(OSError, match="a FIFO that no process reads: start its reader first"):
        target.open()
    assert stat.S_ISFIFO((tmp_path / "fifo").lstat().st_mode)


def test_a_fifo_takes_what_its_reader_reads_however_much(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    target, read = Target(tmp_path / "fifo"), []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "fifo").read_bytes()))
    reader.start()
    target.open()
    content = os.urandom(300_000)
    target.write(content)
    os.close(target.begin())
    reader.join()
    assert read == [content]


def test_a_reader_that_died_is_a_broken_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    target = Target(tmp_path / "fifo")
    target.open()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        target.write(b"x")


def test_a_reader_that_takes_nothing_is_given_up_once_the_run_is_to_end(monkeypatch) -> None:
    monkeypatch.setattr(write, "STALLED_MS", 20)
    reader, writer = os.pipe()
    ends = time.monotonic() + 0.1
    with pytest.raises(BrokenPipeError, match="takes nothing"):
        send(writer, bytes(1 << 20), is_ending=lambda: time.monotonic() > ends)
    assert time.monotonic() > ends
    os.close(reader)
    os.close(writer)


def test_a_signal_ends_a_write_to_a_reader_that_takes_nothing() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    reader, writer = os.pipe()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            send(writer, bytes(1 << 20))
    finally:
        signal.signal(signal.SIGALRM, before)
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_an_open_descriptor_is_written_where_it_stands(tmp_path: Path, folder: str) -> None:
    with (tmp_path / "out").open("wb", buffering=0) as out:
        out.write(b"before ")
        (tmp_path / "link").symlink_to(f"{folder}/{out.fileno()}")
        for named in (Path(f"{folder}/{out.fileno()}"), tmp_path / "link"):
            target = Target(named)
            target.open()
            target.write(b"here ")
    assert (tmp_path / "out").read_bytes() == b"before here here "


def test_a_descriptor_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    with (tmp_path / "in").open() as source:
        target = Target(Path(f"/dev/fd/{source.fileno()}"))
        with pytest.raises(OSError, match="not open for writing"):
            target.open()
    with pytest.raises(OSError, match="Bad file descriptor"):
        target.open()


def test_dev_null_takes_everything_and_is_never_replaced(tmp_path: Path, monkeypatch) -> None:
    null = node(tmp_path / "null")
    monkeypatch.setattr(write, "NULL", null)
    target = Target(null)
    target.open()
    target.write(b"x")
    assert stat.S_ISCHR(null.lstat().st_mode)
    assert names(tmp_path) == ["null"]


def test_a_file_is_replaced_where_the_file_system_has_no_permissions(tmp_path, monkeypatch) -> None:
    refused = Mock(side_effect=PermissionError(errno.EPERM, "Operation not permitted"))  # on vfat
    monkeypatch.setattr(write.os, "fchmod", refused)
    file = tmp_path / "old"
    file.write_bytes(b"old")
    replace(file, b"new")
    assert file.read_bytes() == b"new"
