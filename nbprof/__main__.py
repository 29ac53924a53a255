"""`python -m nbprof` is the command `nbprof`."""

from nbprof.cli.main import main

if __name__ == "__main__":
    main()
