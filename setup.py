"""What depends on where the project is published: the README as a package index shows it, and the project's addresses.

All else is in pyproject.toml. Links of the README lead to files of this folder, which a package index does not have. A
release is built with `TALLMC_REPOSITORY` set to the repository's address, as the workflows do, and its links are then
absolute. A wheel that is built without it names no address, and what would be a dead link is plain text there.
"""

import os
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+://)([^)\s]+)\)")


def on_an_index(readme: str, repository: str, version: str) -> str:
    """The README with absolute links, or without links to files if the repository is not known.

    Args:
        readme: As it is in the repository.
        repository: Where it is, such as `https://host/owner/name`; empty if it is nowhere yet.
        version: Whose tag the links lead to.
    """

    def absolute(match: re.Match) -> str:
        picture, text, target = match.groups()
        if not repository:
            return "" if picture else text
        kind = "raw" if picture else "blob"
        return f"{picture}[{text}]({repository.rstrip('/')}/{kind}/v{version}/{target})"

    return LINK.sub(absolute, readme)


def addresses(repository: str, version: str) -> dict[str, str]:
    """Project URLs, all in the repository.

    Args:
        repository: As above.
        version: As above.
    """
    if not repository:
        return {}
    root = repository.rstrip("/")
    return {
        "Repository": root,
        "Documentation": f"{root}/blob/v{version}/docs/index.md",
        "Changelog": f"{root}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{root}/issues",
    }


if __name__ == "__main__":
    from setuptools import setup

    repository = os.environ.get("TALLMC_REPOSITORY", "")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    setup(
        long_description=on_an_index((ROOT / "README.md").read_text(encoding="utf-8"), repository, version),
        long_description_content_type="text/markdown",
        project_urls=addresses(repository, version),
    )
