"""How well, how early and at what cost leaks and drifts are found.

BLAS is kept to one thread, which must happen before numpy is loaded: two processes of two threads each, on two cores,
take ten times as long as two of one.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
