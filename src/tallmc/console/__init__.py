"""What a person at a terminal sees: progress bars, and what Ctrl-C does."""
