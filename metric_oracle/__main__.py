"""``python -m metric_oracle``: the command line."""

from metric_oracle.cli import main

if __name__ == "__main__":
    main()
