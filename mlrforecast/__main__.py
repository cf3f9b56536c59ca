"""``python -m mlrforecast`` does what the console script does."""

from mlrforecast.cli import main

if __name__ == "__main__":
    main(prog_name="mlrforecast")
