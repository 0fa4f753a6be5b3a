"""``soakd`` and ``python -m soakd``."""

from __future__ import annotations

import signal


def main() -> None:
    """Loads the command line, which takes a second on a busy machine: Ctrl-C ends that quietly too."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from soakd.cli import main as run

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
