"""Keeps results with the experiments, and shows them on a page of the documentation.

For maintainers: `python -m tallmc.reproduce.markdown OUT docs/reproductions.md` takes what `tallmc reproduce --out OUT`
wrote, and puts numbers and pictures under `experiments/<name>/measured/` and tables on the page.
"""

import dataclasses
import os
import shutil
import sys
from pathlib import Path

from tallmc.reproduce.experiment import FOLDER, Experiment, experiments
from tallmc.reproduce.result import Result, read_result

BEGIN, END = "<!-- results begin; written by python -m tallmc.reproduce.markdown -->", "<!-- results end -->"


def measured_folder(name: str) -> Path:
    """Where the results of an experiment are kept."""
    return FOLDER / name.replace("-", "_") / "measured"


def kept_results(name: str) -> list[Path]:
    """Result files of an experiment: full size first; a quick one counts only where there is no full one."""
    folder = measured_folder(name)
    return [path for path in (folder / "full.json", folder / "quick.json") if path.is_file()][:1]


def keep(out: Path) -> None:
    """Takes the results of a folder that `tallmc reproduce` wrote: lines, figures and pictures, but no curves."""
    for name in experiments():
        for source, target in ((out / name, "full"), (out / f"{name}-quick", "quick")):
            if not (source / "result.json").is_file():
                continue
            folder = measured_folder(name)
            folder.mkdir(exist_ok=True)
            result = read_result(source / "result.json")
            parts = {part: dataclasses.replace(found, curves={}) for part, found in result.parts.items()}
            dataclasses.replace(result, parts=parts).write(folder / f"{target}.json")
            pictures = folder / f"{target}-pictures"
            shutil.rmtree(pictures, ignore_errors=True)
            if (source / "pictures").is_dir():
                shutil.copytree(source / "pictures", pictures)


def page(text: str, folder: Path) -> str:
    """The page with its results put anew between the two marks; `folder` is where the page lies."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    sections = []
    for one in experiments().values():
        for path in kept_results(one.name):
            result = read_result(path)
            sections.append(section(one, result, path.with_name(f"{path.stem}-pictures"), folder))
    return f"{before}{BEGIN}\n\n{''.join(sections)}{END}{after}"


def section(about: Experiment, result: Result, pictures: Path, folder: Path) -> str:
    """Heading, summary, table, reasons and pictures of one experiment."""
    size = "Quick size" if result.quick else "Full size"
    lines = [
        f"### {about.title}\n",
        f"`tallmc reproduce {about.name}`: {about.paper}, {about.place}. {size}, {result.duration}. {result.count}.\n",
        f"{about.summary}\n",
        "| figure | paper | ours | tolerance | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for line in result.lines:
        cells = (line.label, line.paper, line.ours, line.tolerance, line.verdict)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    reasons = dict.fromkeys(f"- *{line.label}* differs: {line.reason}" for line in result.lines if line.reason)
    lines += ["", *reasons, *([""] if reasons else []), *result.notes, *([""] if result.notes else [])]
    for picture in sorted(pictures.glob("*.svg")):
        title = picture.stem.replace("-", " ")
        lines += [f"![{title}]({Path(os.path.relpath(picture.resolve(), folder.resolve())).as_posix()})", ""]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Keeps what lies in the first folder, if it is named, and writes the page."""
    *outs, target = arguments
    for out in outs:
        keep(Path(out))
    path = Path(target)
    path.write_text(page(path.read_text(encoding="utf-8"), path.parent), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
