"""`python -m tallmc` is the `tallmc` command."""

from tallmc.cli import main

if __name__ == "__main__":
    main()
