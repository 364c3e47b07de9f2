"""`python -m accord` is the command `accord`."""

from accord.cli.main import main

main()
