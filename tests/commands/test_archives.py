"""Archives with `-f`: those inside others, damaged ones, those that are small only on the disk."""

import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.dumps import dump_files
from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.errors import BadInput
from tests.commands.test_dumps_as_they_come import (
    STRANGERS,
    archive_of,
    folder_of,
    node,
    of_kind,
    pod,
    text,
    told,
)
from tests.hostile.test_file_bombs import run

PODS = {"shop/pods.json": text([pod()])}


@pytest.mark.parametrize("inner", ["in.tar", "in.tar.gz", "in.tar.xz", "in.tar.bz2", "in.zip"])
@pytest.mark.parametrize("outer", ["out.tar.gz", "out.zip", "folder"])
def test_archives_inside_are_read(outer: str, inner: str, tmp_path: Path) -> None:
    """As in must-gather with an Insights archive, or a support bundle with one for each node."""
    Path(archive_of(PODS, tmp_path / inner)).rename(tmp_path / "inside")
    files = {"nodes.json": text([node()]), f"insights/{inner}": (tmp_path / "inside").read_bytes()}
    if outer == "folder":
        (tmp_path / "dump/insights").mkdir(parents=True)
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (tmp_path / "dump" / name).write_bytes(data)
        name = str(tmp_path / "dump")
    else:
        name = archive_of(files, tmp_path / outer)
    assert told(read_dump([name])) == ["Node a1", "Pod shop/web-0"]


def test_what_is_packed_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    path = Path(archive_of(PODS, tmp_path / "dump.tar.gz")).rename(tmp_path / "dump.tar")
    assert told(read_dump([str(path)])) == ["Pod shop/web-0"]


@pytest.mark.parametrize("name", ["dump.tar.gz", "dump.tar", "dump.zip", "dump.tar.xz"])
def test_a_named_archive_needs_no_suffix(name: str, tmp_path: Path) -> None:
    path = Path(archive_of(PODS, tmp_path / name)).rename(tmp_path / "support-bundle")
    assert told(read_dump([str(path)])) == ["Pod shop/web-0"]


def test_an_inner_archive_that_is_none_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Troubleshoot leaves an empty archive.tar for each host that it could not read."""
    files = {**STRANGERS, "host/archive.tar": b"", "data.tar.gz": b"?", "old.tar.zst": b"(zstd"}
    for name in (archive_of(files, tmp_path / "dump.tgz"), ""):
        if not name:
            name = folder_of(STRANGERS, tmp_path / "dump")
            (tmp_path / "dump/archive.tar").touch()
        (warning,) = (w for w in read_dump([name]).warnings if "not opened" in w)
        assert "archive.tar (is cut off or no tar or zip archive" in warning
        assert main(["status", "-f", name, "--strict"]) == 2
        assert "--strict" in capsys.readouterr().err


def test_an_inner_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    """Some of it was read: what is missing would look like a cluster without it."""
    inner = Path(archive_of({**PODS, "more.json": " " * 9000}, tmp_path / "in.tar")).read_bytes()
    name = archive_of({"in.tar": inner[:2000]}, tmp_path / "dump.zip")
    with pytest.raises(BadInput, match=r"in\.tar: is cut off"):
        read_dump([name])


def test_zstd_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="zstd -d"):
        read_dump([str(tmp_path / "must-gather.tar.zst")])


def test_an_archive_bomb_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is passed over counts, too; so do many files, and headers that want much memory."""
    blanks = archive_of({**STRANGERS, "audit.log": " " * (3 << 20)}, tmp_path / "dump.tar.gz")
    assert main(["status", "-f", blanks, "--max-file-size", "1Mi"]) == 2
    assert "holds more than 1,048,576 bytes" in capsys.readouterr().err
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
    long = tmp_path / "long.tar"
    long.write_bytes(header.tobuf() + b"a" * 5000)
    with pytest.raises(BadInput, match="a header of 67,108,864 bytes"):
        read_dump([str(long)])
    monkeypatch.setattr(dump_files, "MOST_MEMBERS", 2)
    for name in ("many.tar", "many.zip"):
        with pytest.raises(BadInput, match="holds more than 2 files"):
            read_dump([archive_of(STRANGERS, tmp_path / name)])


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return made.getvalue()


def test_bombs_inside_archives_are_refused_without_the_memory(tmp_path: Path) -> None:
    """1 GiB in some KB by packing twice, sixteen of them side by side, with 300 MiB to run in."""
    flat = b" " * (64 << 20)
    twice = gzip.compress(gzip.compress(flat))
    inner = zipped({f"{n}.json": flat for n in range(4)})
    bombs = {
        "twice.zip": zipped({f"{n}.zip": inner for n in range(4)}),
        "tar.zip": zipped({"a.tar.gz": twice, "b.zip": inner, "c.json.xz": lzma.compress(flat)}),
    }
    commands = []
    for name, content in bombs.items():
        (tmp_path / name).write_bytes(content)
        commands.append(["status", "-f", str(tmp_path / name), "--max-file-size", "100Mi"])
    for said in run(*commands, memory=300 << 20):
        assert said.code == 2 and "holds more than 104,857,600 bytes" in said.err, said


def test_a_zip_file_that_holds_itself_has_an_end(tmp_path: Path) -> None:
    content = text([node()]).encode()
    for _ in range(9):
        content = zipped({"nodes.json": text([node()]).encode(), "r.zip": content})
    (tmp_path / "r.zip").write_bytes(content)
    dump = read_dump([str(tmp_path / "r.zip")])
    assert told(dump) == ["Node a1"]
    assert any("too many archives inside one another" in warning for warning in dump.warnings)


def test_what_a_zip_file_packs_oddly_is_passed_over(tmp_path: Path) -> None:
    """Python unpacks LZMA without a limit of memory, and has no password."""
    odd = zipped({"pods.json": text(of_kind("Pod", pod())).encode()}, zipfile.ZIP_LZMA)
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as out:
        out.writestr("nodes.json", text([node()]))
        out.writestr("inside.zip", odd)
    dump = read_dump([str(tmp_path / "odd.zip")])
    assert told(dump) == ["Node a1"] and any("pods.json" in w for w in dump.warnings)


@pytest.mark.parametrize("suffix", [".zip", ".tar.xz", ".tar.bz2", ".tar.gz"])
def test_damage_anywhere_is_one_clear_error(suffix: str, tmp_path: Path) -> None:
    """Whichever byte is wrong: it is read all the same, or refused as bad input."""
    path = Path(archive_of({"nodes.json": text([node()])}, tmp_path / f"dump{suffix}"))
    whole = path.read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            read_dump([str(path)])
        except BadInput as error:
            assert error.remedy
    for length in range(0, len(whole), max(1, len(whole) // 30)):
        path.write_bytes(whole[:length])
        try:
            read_dump([str(path)])
        except BadInput as error:
            assert error.remedy


@pytest.mark.parametrize("cut", ["gzip", "tar"])
def test_an_archive_that_is_cut_off_is_refused(cut: str, tmp_path: Path) -> None:
    """Wherever it is cut: in the middle of a file, or of what it is packed in."""
    path = tmp_path / "dump.tar.gz"
    archive_of({"nodes.json": STRANGERS["nodes.json"] + " " * 5000}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20] if cut == "gzip" else gzip.compress(gzip.decompress(whole)[:1500]))
    with pytest.raises(BadInput, match="is cut off or no tar or zip archive"):
        read_dump([str(path)])
