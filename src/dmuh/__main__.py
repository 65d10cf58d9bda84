"""`python -m dmuh`, the same as the command `dmuh`."""

from dmuh.cli import main

if __name__ == "__main__":
    main()
