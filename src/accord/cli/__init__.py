"""The command `accord`, a file for each command. Nothing else knows typer."""
