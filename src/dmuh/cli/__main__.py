"""python -m dmuh.cli."""

from dmuh.cli import main

main()
