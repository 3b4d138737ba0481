"""Files that are whole or not there, whatever stops the process; names that stay inside a folder; and one writer.

Every change to a store goes through the functions here, by calls of `os` alone, so that a test can stop them at any.
"""

import io
import os
import re
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_SAFE = re.compile(r"[A-Za-z0-9_\[\](), +=@~-][A-Za-z0-9_.\[\](), +=@~-]*\Z")
_TEMPORARY = ".unfinished"
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_BUFFER = 2**20  # bytes that are handed to the system at a time: archives are written in small pieces
_SYNCED_AT_ONCE = 8  # files: a disk writes down several at the price of one


class _Out(io.RawIOBase):
    """A file that is written front to back."""

    def __init__(self, handle: int):
        self.handle = handle

    def writable(self) -> bool:
        """It is for nothing else."""
        return True

    def write(self, content: object) -> int:
        """All of it, however often the system wants to be asked."""
        view = memoryview(content).cast("B")  # pyright: ignore[reportArgumentType]
        done = 0
        while done < len(view):
            done += os.write(self.handle, view[done:])
        return done


def write(path: Path, produce: Callable[[io.BufferedWriter], object], *, lasting: bool = True) -> None:
    """Writes a file under another name and then gives it its own: it is there as a whole, or as it was before.

    Args:
        path: Of the file; its folder is there.
        produce: Writes to a file that is given to it.
        lasting: Whether to wait until the disk has it, so that it outlives a power cut too.
    """
    temporary = path.with_name(f"{path.name}{_TEMPORARY}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_FOLLOW, 0o666)
    try:
        with io.BufferedWriter(_Out(handle), _BUFFER) as file:
            produce(file)  # pyright: ignore[reportArgumentType]
        if lasting:
            os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(temporary, path)
    if lasting:
        _sync(path.parent)


def remove(path: Path) -> None:
    """Removes a file, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def sync(paths: Sequence[Path]) -> None:
    """Waits until the disk has these files and their folders."""
    everything = [*paths, *dict.fromkeys(path.parent for path in paths)]
    if len(everything) < _SYNCED_AT_ONCE:
        for path in everything:
            _sync(path)
        return
    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as pool:
        list(pool.map(_sync, everything))


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders, and writes their entries down by itself
    handle = os.open(path, os.O_RDONLY | _NO_FOLLOW)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def folder(root: Path, *names: str) -> Path:
    """A folder inside another, made if it is not there."""
    for number in range(len(names) + 1):
        path = inside(root, *names[:number]) if number else root
        if not path.is_dir():
            os.mkdir(path)
    return inside(root, *names) if names else root


def inside(root: Path, *names: str) -> Path:
    """The path of something in a folder, if nothing on the way leads elsewhere.

    Raises:
        ValueError: If a name has a separator or dots in it, or stands for a link.
    """
    path = root
    for name in names:
        if not _SAFE.match(name):
            raise ValueError(
                f"{root} names {name!r}, which is not the name of a file inside it; do not trust this store"
            )
        path = path / name
        if is_link(path):
            raise ValueError(f"{path} is a link, which may lead out of the store; replace it by what it stands for")
    return path


def is_link(path: Path) -> bool:
    """Whether there is a link in this place."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False


def safe_name(name: str) -> str:
    """A name for a file, different for different names, which are taken as they are if they can be."""
    if _SAFE.match(name) and "=" not in name and name != "zarr.json":
        return name
    # Bytes that are no letters become numbers after "="; a leading dot is one of them.
    plain = re.sub(r"[^A-Za-z0-9_.-]", lambda found: "".join(f"={byte:02x}" for byte in found[0].encode()), name)
    if plain.startswith((".", "zarr.json")):
        return f"={ord(plain[0]):02x}{plain[1:]}"
    return plain or "="


def open_inside(root: Path, *names: str) -> io.BufferedReader:
    """Opens a file of a store for reading, without following links."""
    handle = os.open(inside(root, *names), os.O_RDONLY | _NO_FOLLOW)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError(f"{'/'.join(names)} of {root} is not a file; do not trust this store")
    return os.fdopen(handle, "rb")


def unfinished(root: Path) -> list[Path]:
    """Files that somebody was writing when he was stopped."""
    return sorted(path for path in root.rglob(f"*{_TEMPORARY}") if not is_link(path))


class Lock:
    """The right to write, for one holder at a time. The system takes it back when the process ends, however it ends.

    Args:
        path: Of a file that is made for it.
        what: Whom the message names.
    """

    def __init__(self, path: Path, what: Path):
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_FOLLOW, 0o666)
        if not _locked(self.handle):
            holder = os.read(self.handle, 32).decode(errors="replace").strip()
            os.close(self.handle)
            raise ValueError(
                f"{what} is being written by another process{f' ({holder})' if holder else ''}; wait for its end, or "
                "take another path"
            )
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, f"process {os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Lets others write."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock now."""
    try:
        handle = os.open(path, os.O_RDWR | _NO_FOLLOW)
    except OSError:
        return False
    try:
        return not _locked(handle)
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Takes the lock of an open file, which ends with the file; whether it was free."""
    try:
        if os.name == "nt":
            import msvcrt

            os.lseek(handle, 1024, os.SEEK_SET)  # beyond what is written, which others may then read
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
