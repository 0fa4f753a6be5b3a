"""The commands of the command line, a file for each group.

Whatever loads numpy in a process of soakd comes through here, so that this is the place to keep its BLAS to one thread.
OpenBLAS ends its threads in a fork handler that waits for the work they do, while that work may wait for the
interpreter's lock, which the forking thread holds: judging on one thread while a collector starts a command on another
hangs both for good (seen on numpy 2, blas_thread_shutdown_). Its threads would gain nothing either: a look at a series,
which multiplies small matrices, takes 7 ms with one and 15 ms with two.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
