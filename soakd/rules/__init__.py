"""Rule kinds, one file each with ``KIND``, ``Config`` and ``build``, and the life of an alert. Pure: no I/O, no clock."""
