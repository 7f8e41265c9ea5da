"""Run the command line: `python -m fuzzparity`."""

from fuzzparity.cli import main

if __name__ == "__main__":
    main()
