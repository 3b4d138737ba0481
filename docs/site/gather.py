"""Gathers the pages of the site: documents, changelog, notebooks, and a reference of every public name.

Documents stay readable where they are, in a checkout; here their links are turned to where the site has the target.
"""

import html
import inspect
import json
import re
import shutil
import sys
import types
from pathlib import Path

import tallmc as tm

ROOT = Path(__file__).parents[2]
PAGES, SOURCE = ROOT / "build/pages", ROOT / "build/source"
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Documents that have another name on the site.
RENAMED = {
    "docs/index.md": "overview.md",
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "VISION.md": "vision.md",
    "CITATION.cff": "CITATION.cff",
    "LICENSE": "LICENSE",
}
# Public names by what they are for, as the rooms of the package have them.
REFERENCE = {
    "sampling": "Sampling",
    "posteriors": "Posteriors and bounds",
    "rules": "Acceptance rules",
    "proposals": "Proposals",
    "kernels": "Kernels and ladders",
    "feeds": "Feeds and data on disk",
    "bridges": "Bridges",
}
_ROOMS = {
    "acceptance": "rules",
    "proposals": "proposals",
    "compose": "kernels",
    "fields": "kernels",
    "kernel": "kernels",
    "metropolis": "kernels",
    "nuts": "kernels",
    "feed": "feeds",
    "disk": "feeds",
    "bridges": "bridges",
    "posterior": "posteriors",
    "bounds": "posteriors",
    "control_variates": "posteriors",
}


def placed(path: Path) -> str | None:
    """Where the site has a file of the checkout; None if it has not."""
    name = path.resolve().relative_to(ROOT).as_posix()
    if name in RENAMED:
        return RENAMED[name]
    if name.startswith("docs/") and path.suffix in (".md", ".svg", ".ipynb"):
        return name.removeprefix("docs/").replace(".ipynb", ".md")
    return None


def turned(text: str, source: Path) -> str:
    """A document with its links turned to the site; what the site does not have is a name without a link."""
    depth = "../" * (placed(source) or "").count("/")

    def turn(match: re.Match) -> str:
        file, mark, anchor = match[1].partition("#")
        if "://" in match[1] or not file:
            return match[0]
        place = placed(source.parent / file)
        return f"]({depth}{place}{mark}{anchor})" if place else "]"

    return LINK.sub(turn, text)


def write(name: str, text: str) -> None:
    """A page of the site."""
    target = PAGES / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def gather_documents() -> None:
    """Copies what is written in Markdown, and the pictures."""
    for source in [ROOT / "CHANGELOG.md", ROOT / "VISION.md", *sorted(ROOT.glob("docs/*.md"))]:
        write(placed(source) or source.name, turned(source.read_text(encoding="utf-8"), source))
    write("index.md", (ROOT / "docs/site/landing.md").read_text(encoding="utf-8"))
    for file in [*ROOT.glob("docs/*.svg"), ROOT / "CITATION.cff", ROOT / "LICENSE"]:
        shutil.copy(file, PAGES / file.name)


def as_markdown(notebook: dict) -> str:
    """A notebook with the outputs that it has.

    Args:
        notebook: As JSON has it.
    """
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [text for output in cell["outputs"] if (text := _output(output))]
    return "\n\n".join(parts) + "\n"


def _output(output: dict) -> str:
    if output["output_type"] == "stream":
        return _preformatted("".join(output["text"]))
    data = output.get("data", {})
    if "text/html" in data:
        lines = "".join(data["text/html"]).splitlines()
        return f'<div class="output">{" ".join(line.strip() for line in lines)}</div>' if any(lines) else ""
    if "image/png" in data:
        return f"![output](data:image/png;base64,{''.join(data['image/png']).strip()})"
    return _preformatted("".join(data["text/plain"])) if "text/plain" in data else ""


def _preformatted(text: str) -> str:
    """Text whose long lines are broken, as HTML in one line: an empty one would end the block."""
    lines = html.escape(text.strip()).replace("\n", "&#10;")
    return f'<div class="output"><pre>{lines}</pre></div>' if lines else ""


def gather_notebooks() -> None:
    """Turns executed notebooks into pages."""
    for source in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        text = as_markdown(json.loads(source.read_text(encoding="utf-8")))
        write(f"notebooks/{source.stem}.md", turned(text, source))


def home(name: str, value: object) -> str:
    """Where a public name is defined, for names are explained there.

    Args:
        name: In `tallmc`.
        value: What it stands for.
    """
    if isinstance(value, types.ModuleType):
        return value.__name__
    if callable(value) and getattr(value, "__qualname__", None):
        return f"{value.__module__}.{value.__qualname__}"
    # A constant does not know where it is from: it is where a module of ours assigns it.
    assigned = re.compile(rf"^(\w+, )*{name}\b[^=\n]* = ", re.MULTILINE)
    for module in [module for known, module in sorted(sys.modules.items()) if known.startswith("tallmc.")]:
        if vars(module).get(name) is value and assigned.search(Path(module.__file__ or "").read_text(encoding="utf-8")):
            return f"{module.__name__}.{name}"
    raise ValueError(f"tm.{name} is assigned nowhere in src/tallmc")


def gather_reference() -> dict[str, str]:
    """Writes a page for each group of public names, and one for each public module; returns titles by file."""
    groups: dict[str, list[str]] = {key: [] for key in REFERENCE}
    titles, index = {}, ["# Reference\n\nEvery public name, with examples that the tests run.\n"]
    modules = {name: value for name in tm.__all__ if isinstance(value := getattr(tm, name), types.ModuleType)}
    for name in tm.__all__:
        if name not in modules:
            where = home(name, getattr(tm, name))
            groups[_ROOMS.get(where.split(".")[1], "sampling")].append(where)
    for key, title in REFERENCE.items():
        titles[f"reference/{key}.md"] = title
        _write_group(key, title, "", sorted(groups[key], key=lambda where: where.rpartition(".")[2].lower()))
    for name, module in sorted(modules.items()):
        titles[f"reference/{name}.md"] = f"tm.{name}"
        listed = getattr(module, "__all__", None) or [
            inner for inner, value in vars(module).items() if inspect.isfunction(value) and not inner.startswith("_")
        ]
        places = [home(inner, getattr(module, inner)) for inner in listed]
        _write_group(name, f"tm.{name}", inspect.getdoc(module) or "", places)
    for file, title in titles.items():
        text = (PAGES / file).read_text(encoding="utf-8")
        names = ", ".join(f"`{where.rpartition('.')[2]}`" for where in re.findall(r"^::: (\S+)$", text, re.MULTILINE))
        index.append(f"- [{title}]({Path(file).name}): {names}")
    write("reference/index.md", "\n".join(index) + "\n")
    return titles


def _write_group(key: str, title: str, text: str, places: list[str]) -> None:
    blocks = "\n\n".join(f"::: {where}" for where in places)
    write(f"reference/{key}.md", f"# {title}\n\n{text}\n\n{blocks}\n")


def copy_source() -> None:
    """Copies the package for the reference, with examples under the heading that its reader takes for code."""
    for path in (ROOT / "src/tallmc").rglob("*.py"):
        target = SOURCE / path.relative_to(ROOT / "src")
        target.parent.mkdir(parents=True, exist_ok=True)
        text = re.sub(r"^( *)Example:$", r"\1Examples:", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        target.write_text(text, encoding="utf-8")


def heading(name: str) -> str:
    """Of a page that is gathered already."""
    found = re.search(r"^# (.+)$", (PAGES / name).read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].replace("`", "") if found else name


def listed(name: str) -> list[str]:
    """Documents that a heading of the overview lists, in its order.

    Args:
        name: The line before the list.
    """
    text = (PAGES / "overview.md").read_text(encoding="utf-8")
    part = text[text.index(f"\n{name}:\n") :].split("\n\n")[1]
    return re.findall(r"\]\(([^)#]+\.md)\)", part)


def navigation(titles: dict[str, str]) -> list:
    """What the site lists, as MkDocs takes it."""
    start = ["index.md", "get-started.md", "first-run.md", "nuts-or-tallmc.md"]
    notebooks = [f"notebooks/{name}.md" for name in ("parquet-to-posterior", "your-own-likelihood", "from-numpyro")]
    using = [name for name in listed("Using it") if name not in start]
    building = listed("Building on it")
    return [
        {"Start": [{"tallmc": "index.md"}, *({heading(name): name} for name in start[1:])]},
        {"Notebooks": [{heading(name): name} for name in notebooks]},
        {"Guides": [{heading(name): name} for name in using]},
        {"Reference": ["reference/index.md", *({title: file} for file, title in titles.items())]},
        {"Project": [
            {"Overview and limits": "overview.md"},
            *({heading(name): name} for name in building),
            {"Changelog": "changelog.md"},
            {"Vision": "vision.md"},
        ]},
    ]  # fmt: skip


def main() -> None:
    """Gathers everything, and writes the settings that MkDocs builds it by."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.rmtree(SOURCE, ignore_errors=True)
    PAGES.mkdir(parents=True)
    gather_documents()
    gather_notebooks()
    copy_source()
    titles = gather_reference()
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listing = json.dumps(navigation(titles), ensure_ascii=False)
    (ROOT / "build/mkdocs.yml").write_text(settings.replace("nav: []", f"nav: {listing}"), encoding="utf-8")
    shutil.copy(ROOT / "docs/site/extra.css", PAGES / "extra.css")
    print(f"gathered {len(list(PAGES.rglob('*.md')))} pages and {len(tm.__all__)} public names", file=sys.stderr)


if __name__ == "__main__":
    main()
