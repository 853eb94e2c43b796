"""`python -m penjing`."""

from penjing.cli import main

if __name__ == "__main__":
    main()
