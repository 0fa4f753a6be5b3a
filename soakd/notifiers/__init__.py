"""Channels that tell people, one file each with ``KIND``, ``Config`` and ``build(config, clock)``."""
