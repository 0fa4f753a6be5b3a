"""soakd: will this LLM server, on this hardware, survive hours of real load?

This module stays free of imports: the NVML worker processes load it, and each of them must stay small.
"""

__version__ = "0.1.0"
