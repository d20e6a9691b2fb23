"""Both measurements, one after the other: `python -m bench`. Each has options of its own: `python -m bench.sweep --help`."""

import sys

from bench import cold_start, sweep

COMMANDS = {"sweep": sweep.main, "cold_start": cold_start.main}


def main(arguments: list[str]) -> None:
    """Run what is named with its own options; both when nothing is named."""
    if arguments and arguments[0] not in COMMANDS:
        raise SystemExit(f"{arguments[0]} is no measurement; name sweep or cold_start, or nothing for both")
    for name in arguments[:1] or COMMANDS:
        COMMANDS[name](arguments[1:])
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
