"""Workloads: one file each with ``KIND`` (the file's name), ``Config``, ``fit`` and ``build``."""
