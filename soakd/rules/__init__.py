"""Rule kinds, one file each with ``KIND``, ``Config`` and ``build``, and the life of an alert. No I/O, no clock."""
