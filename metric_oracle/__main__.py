"""The command line as a program: ``oracle``, or ``python -m metric_oracle``."""

import sys

from metric_oracle.commands import terminal


def main() -> None:
    """Run the command line; an interruption while its modules are imported is one line too."""
    terminal.own_process()
    try:
        with terminal.interruptible():
            if sys.argv[1:] == ["--help"]:
                return _list_commands()
            from metric_oracle import cli

            return cli.main()
    except KeyboardInterrupt:
        line = "oracle: the command must run to its end; got an interruption. Run it again: a build resumes."
        print(f"error: {line}", file=sys.stderr)
        raise SystemExit(130) from None


def _list_commands() -> None:
    """Show the list of commands at once: reading a command line takes longer to import than showing it."""
    from metric_oracle.commands import listing

    terminal.prepare()
    try:
        listing.show()
    except OSError:  # the command line meets it again, and has its line and exit code
        from metric_oracle import cli

        cli.main()


if __name__ == "__main__":
    main()
