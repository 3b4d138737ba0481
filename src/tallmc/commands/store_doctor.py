"""`tallmc doctor --store`: what is wrong with a store, and what can be saved."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tallmc.run import damage


def run_store_doctor(store: Path, rescue: Path | None, console: Console) -> bool:
    """Prints what was found; with a place to rescue to, copies what is whole. Returns whether nothing is damaged.

    Args:
        store: Folder of the store.
        rescue: Where to copy draws, or None.
        console: Where to print.
    """
    examined = damage.examine(store)
    for finding in examined.findings:
        mark = "[green]ok     [/green]" if finding.ok else "[bold red]DAMAGED[/bold red]"
        console.print(f"{mark} {escape(f'{finding.name}: {finding.figure}')}", highlight=False, soft_wrap=True)
    console.print()
    if rescue is not None:
        count = damage.rescue(store, rescue)
        console.print(
            f"Copied {count:,} draws of each chain to {rescue}.", markup=False, highlight=False, soft_wrap=True
        )
        return examined.ok
    for sentence in examined.advice:
        console.print(f"{sentence[0].upper()}{sentence[1:]}.", markup=False, highlight=False, soft_wrap=True)
    return examined.ok
