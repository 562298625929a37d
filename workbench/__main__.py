"""`python -m workbench` is the same as the console script."""

from .cli.main import main

main()
