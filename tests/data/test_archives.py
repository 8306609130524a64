"""An archive is read, not trusted: hostile ones end in one clear error and write nothing anywhere."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from glassformer.data.download import read_bytes, read_members
from glassformer.errors import DataError


def make_tar(path, entries, mode="w:gz"):
    """Entries are (name, content) or ready TarInfo objects."""
    with tarfile.open(path, mode) as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                tar.addfile(info, io.BytesIO(entry[1]))
    return path


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_regular_files_come_in_order_and_folders_are_passed_over(tmp_path, mode):
    path = make_tar(tmp_path / "a", [special("d", tarfile.DIRTYPE), ("d/x", b"1"), ("./d/y", b""), ("z", b"3")], mode)
    assert list(read_members(path)) == [("d/x", b"1"), ("d/y", b""), ("z", b"3")]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_never_followed(tmp_path, kind):
    secret = tmp_path / "secret"
    secret.write_text("secret", encoding="utf-8")
    path = make_tar(tmp_path / "a.tar.gz", [special("x", kind, str(secret)), ("y", b"2")])
    assert list(read_members(path)) == [("y", b"2")]


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "C:/x", "a\\..\\x"])
def test_a_name_that_points_outside_is_refused(tmp_path, name):
    path = make_tar(tmp_path / "a.tar.gz", [(name, b"1")])
    with pytest.raises(DataError, match="points outside"):
        list(read_members(path))
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar.gz"]


def test_a_large_member_is_refused_before_it_is_read(tmp_path):
    path = make_tar(tmp_path / "a.tar.gz", [("x", bytes(2000))])
    with pytest.raises(DataError, match="2,000 bytes; at most 1,000"):
        list(read_members(path, max_member_bytes=1000))


def test_a_bomb_bursts_at_the_cap(tmp_path):
    path = make_tar(tmp_path / "a.tar.gz", [(f"x{i}", bytes(1 << 20)) for i in range(50)])
    assert path.stat().st_size < 200_000
    n = 0
    with pytest.raises(DataError, match="unpacks to more than"):
        for _ in read_members(path, max_total_bytes=5 << 20):
            n += 1
    assert n <= 5


def test_a_bomb_in_a_header_bursts_too(tmp_path):
    """An extended header is read whole by tarfile, so the cap has to lie beneath it."""
    info = tarfile.TarInfo("x")
    info.pax_headers = {"comment": "0" * (20 << 20)}
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)
    with pytest.raises(DataError, match="unpacks to more than"):
        list(read_members(path, max_total_bytes=5 << 20))


@pytest.mark.parametrize(("mode", "step"), [("w:gz", 25), ("w", 512), ("w", 1000)])
def test_a_cut_archive_is_an_error_wherever_it_is_cut(tmp_path, mode, step):
    entries = [(f"f{i}", bytes([i + 1]) * 700) for i in range(20)]
    whole = make_tar(tmp_path / "a", entries, mode).read_bytes()
    end = len(whole) if mode == "w:gz" else 20 * (512 + 700)  # after that, only zeros are missing
    cut = tmp_path / "cut"
    for size in range(0, end, step):
        cut.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"cannot be read|truncated"):
            list(read_members(cut))


def test_no_flipped_byte_of_the_packed_text_goes_unnoticed(tmp_path):
    whole = make_tar(tmp_path / "a.tar.gz", [("f", b"hello " * 50)]).read_bytes()
    honest = [("f", b"hello " * 50)]
    flipped = tmp_path / "flipped.tar.gz"
    for i in range(10, len(whole)):
        flipped.write_bytes(whole[:i] + bytes([whole[i] ^ 0x10]) + whole[i + 1 :])
        try:
            assert list(read_members(flipped)) == honest
        except DataError as error:
            assert "flipped.tar.gz" in error.message


def test_read_bytes_unpacks_by_content_not_by_name(tmp_path):
    (tmp_path / "a.txt").write_bytes(gzip.compress(b"packed"))
    (tmp_path / "b.gz").write_bytes(b"plain")
    (tmp_path / "c").write_bytes(b"")
    assert [read_bytes(tmp_path / name) for name in ("a.txt", "b.gz", "c")] == [b"packed", b"plain", b""]


def test_read_bytes_refuses_what_is_missing_damaged_or_too_large(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_bytes(tmp_path / "none")
    packed = gzip.compress(bytes(10_000_000))
    (tmp_path / "bomb.gz").write_bytes(packed)
    with pytest.raises(DataError, match="unpacks to more than 1,000 bytes"):
        read_bytes(tmp_path / "bomb.gz", max_bytes=1000)
    (tmp_path / "cut.gz").write_bytes(packed[:-20])
    with pytest.raises(DataError, match="compressed file cannot be read"):
        read_bytes(tmp_path / "cut.gz")
