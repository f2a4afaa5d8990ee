"""Attacks on the compiled kernel: planted by another user, damaged, swapped. Only our own build is ever loaded."""

import ctypes
import fcntl
import os
import subprocess
import tempfile
from contextlib import contextmanager

import pytest

from isocost.local import native

NOBODY = 65534
OURS = """
extern "C" int isocost_lanes() { return 8; }
extern "C" void *isocost_open() { return 0; }
extern "C" void *isocost_tape() { return 0; }
extern "C" long isocost_tape_bytes() { return 0; }
extern "C" long isocost_wave() { return 0; }
extern "C" void isocost_taped() {}
extern "C" void isocost_load() {}
extern "C" void isocost_tapes_free() {}
extern "C" void isocost_moments() {}
extern "C" void isocost_descend() {}
extern "C" void isocost_taped_backward() {}
extern "C" void isocost_mlp() {}
extern "C" void isocost_mlp_back() {}
extern "C" void isocost_adam() {}
"""
PLANTED = """
#include <stdio.h>
__attribute__((constructor)) static void run() { if (FILE *f = fopen("WITNESS", "w")) fclose(f); }
""" + OURS.replace("return 8", "return 666")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A shared object that leaves a witness when it is loaded: its bytes, and the witness's path."""
    folder = tmp_path_factory.mktemp("attacker")
    folder.chmod(0o777)
    witness = folder / "it ran"
    (folder / "x.cpp").write_text(PLANTED.replace("WITNESS", str(witness)))
    subprocess.run(["c++", "-shared", "-fPIC", folder / "x.cpp", "-o", folder / "x.so"], check=True)
    return (folder / "x.so").read_bytes(), witness


@pytest.fixture
def place(monkeypatch, tmp_path, planted):
    """A kernel of the functions that loading looks up; an empty cache and temporary folder; nothing loaded."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "kernel.cpp").write_text(OURS)
    monkeypatch.setattr(native, "FOLDER", source)
    monkeypatch.setattr(native, "SOURCE", source / "kernel.cpp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    native._library.cache_clear()
    planted[1].unlink(missing_ok=True)
    yield tmp_path
    native._library.cache_clear()


def loaded():
    """What `isocost_lanes` of the kernel says that is loaded now: 8 is ours, 666 the attacker's."""
    native._library.cache_clear()
    library, why = native._library()
    assert library is not None, why
    return library.isocost_lanes()


def stored(folder):
    """Build into a cache, and the path of what was stored there."""
    assert loaded() == 8
    (path,) = (folder / "cache" / "isocost").glob("*.so")
    return path


def unwritable_home(monkeypatch, folder):
    (folder / "a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "a file" / "cache"))


def give_away(*paths):
    for p in paths:
        os.chown(p, NOBODY, NOBODY, follow_symlinks=False)


# another user's code ------------------------------------------------------------------------------------------------


@as_root
def test_another_users_folder_for_temporary_files_is_not_used(monkeypatch, place, planted):
    name = stored(place).name
    unwritable_home(monkeypatch, place)
    trap = place / "tmp" / f"isocost-{os.geteuid()}"
    trap.mkdir()
    (trap / name).write_bytes(planted[0])
    give_away(trap, trap / name)
    assert loaded() == 8 and not planted[1].exists()
    assert [p.name for p in trap.iterdir()] == [name], "nothing of ours is left where another user could change it"


def test_a_symbolic_link_in_place_of_the_folder_is_not_followed(monkeypatch, place, planted):
    name = stored(place).name
    unwritable_home(monkeypatch, place)
    elsewhere = place / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / name).write_bytes(planted[0])
    (place / "tmp" / f"isocost-{os.geteuid()}").symlink_to(elsewhere)
    assert loaded() == 8 and not planted[1].exists()
    assert (elsewhere / name).read_bytes() == planted[0], "and nothing is written through it"


@as_root
def test_another_users_file_in_a_folder_that_all_may_write_to_is_not_used(place, planted):
    path = stored(place)
    path.parent.chmod(0o777)
    path.unlink()
    path.write_bytes(planted[0])
    give_away(path)
    assert loaded() == 8 and not planted[1].exists()
    assert path.parent.stat().st_mode & 0o077 == 0 and path.stat().st_uid == os.geteuid()


@as_root
def test_the_cache_of_another_user_is_not_used(place, planted, caplog):
    """HOME stays another user's under some settings of sudo."""
    path = stored(place)
    path.write_bytes(planted[0])
    give_away(path, path.parent)
    assert loaded() == 8 and not planted[1].exists()
    assert f"it belongs to another user (uid {NOBODY})" in caplog.text


def test_a_symbolic_link_in_place_of_the_file_is_not_followed(place, planted):
    path = stored(place)
    path.unlink()
    (place / "x.so").write_bytes(planted[0])
    path.symlink_to(place / "x.so")
    assert loaded() == 8 and not planted[1].exists() and not path.is_symlink()
    assert (place / "x.so").read_bytes() == planted[0]


def test_a_cache_folder_relative_to_the_current_one_is_ignored(monkeypatch, place):
    """A downloaded folder must not decide what is loaded by those who work in it."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", "downloaded")
    monkeypatch.setenv("HOME", str(place))
    assert loaded() == 8
    assert not (place / "downloaded").exists() and (place / ".cache" / "isocost").is_dir()


# damage -------------------------------------------------------------------------------------------------------------


def flipped(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize(
    "damage", [lambda d: b"", flipped, lambda d: d[:-1], lambda d: d + b"\0", lambda d: d[: len(d) // 3]],
    ids=["empty", "one bit", "one byte less", "one byte more", "truncated"],
)
def test_a_damaged_kernel_is_built_again(place, damage, caplog):
    path = stored(place)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert loaded() == 8 and "is not used: it is damaged" in caplog.text
    caplog.clear()
    assert path.read_bytes() == whole
    assert loaded() == 8 and not caplog.text, "it is sound again, so nothing is built and nothing logged"


def test_another_library_under_its_name_is_not_loaded(place, planted):
    path = stored(place)
    path.write_bytes(planted[0])
    assert loaded() == 8 and not planted[1].exists()


def test_a_sound_kernel_of_other_sources_is_not_loaded_under_this_name(place):
    """Renamed, it would be of the right length and hash, and compute something else."""
    path = stored(place)
    old = path.read_bytes()
    native.SOURCE.write_text(OURS.replace("return 8", "return 4"))
    assert loaded() == 4
    (new,) = set(path.parent.glob("*.so")) - {path}
    new.write_bytes(old)
    assert loaded() == 4


def test_a_file_that_changes_after_it_was_checked_changes_nothing(monkeypatch, place, planted):
    path, real = stored(place), ctypes.CDLL

    def swapped_first(name, *args):
        path.write_bytes(planted[0])
        return real(name, *args)

    monkeypatch.setattr(ctypes, "CDLL", swapped_first)
    assert loaded() == 8 and not planted[1].exists()


@contextmanager
def held(folder):
    """Another process that builds and does not end."""
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    yield
    os.close(handle)


def test_a_process_that_never_ends_building_holds_up_no_other(monkeypatch, place):
    from isocost.disk import store

    path = stored(place)
    path.unlink()
    monkeypatch.setattr(store, "WAIT", 0.2)
    with held(path.parent):
        assert loaded() == 8 and path.exists()


def test_what_a_killed_build_left_is_cleared(place):
    path = stored(place)
    path.unlink()
    path.with_name(f".{path.name}.1234.tmp").write_bytes(b"half")
    assert loaded() == 8 and [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_full_disk_costs_the_stored_copy_and_not_the_kernel(monkeypatch, place, caplog):
    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert loaded() == 8
    assert not list((place / "cache" / "isocost").iterdir())
    assert "cannot be stored (No space left on device)" in caplog.text
