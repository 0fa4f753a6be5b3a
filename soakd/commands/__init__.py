"""The subcommands of ``soakd``, a file for each group."""
