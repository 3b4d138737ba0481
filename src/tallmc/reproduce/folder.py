"""Public data that experiments read: found in a folder, checked, or fetched from where the public has it."""

import dataclasses
import hashlib
import os
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

KNOWN = Path(__file__).with_name("experiments") / "data.toml"
_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class DataFolder:
    """Where data files are looked for.

    Args:
        path: The folder that the user named, on the command line or as TALLMC_DATA; None: none.
        say: Tells the user what is being done.
    """

    path: Path | None = None
    say: Callable[[str], None] = print

    @classmethod
    def of(cls, path: Path | None, say: Callable[[str], None] = print) -> "DataFolder":
        """The folder that is named, else the one that TALLMC_DATA names."""
        named = os.environ.get("TALLMC_DATA", "")
        chosen = path if path is not None else Path(named) if named else None
        if chosen is not None and not chosen.is_dir():
            raise ValueError(f"the data folder {chosen} does not exist; name one by --data-dir or TALLMC_DATA")
        return cls(chosen, say)

    def load(self, name: str) -> dict[str, np.ndarray]:
        """All arrays of a file, after its checksum was found to be right."""
        path = self.find(name)
        with np.load(path) as file:
            return {key: file[key] for key in file.files}

    def find(self, name: str) -> Path:
        """The path of a file whose checksum is right; what is not there is fetched, if the public has it."""
        about = known_files().get(name)
        if about is None:
            raise ValueError(f"{name} is not among the data files that experiments read")
        if self.path is not None and (self.path / name).is_file():
            _check(self.path / name, about["sha256"])
            return self.path / name
        if "fetch" not in about:
            raise ValueError(
                f"{name} ({about['title']}) is not in {self.path or 'any data folder'}; name the folder that has it by "
                "--data-dir or TALLMC_DATA"
            )
        from tallmc.reproduce import fetch

        return fetch.fetched(name, about, self.say)


@cache
def known_files() -> dict[str, dict[str, Any]]:
    """What `data.toml` says of each file."""
    return tomllib.loads(KNOWN.read_text(encoding="utf-8"))


def _check(path: Path, wanted: str) -> None:
    found = sha256_of(path)
    if found != wanted:
        raise ValueError(
            f"{path} has checksum {found[:12]}..., not {wanted[:12]}...: it is damaged or another version; replace it"
        )


def sha256_of(path: Path) -> str:
    """Checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
