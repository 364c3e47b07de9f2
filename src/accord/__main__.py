"""`python -m accord` is the command `accord`."""

from accord.cli import main

main()
