"""`python -m workbench` is the same as the console script."""

from .cli import main

main()
