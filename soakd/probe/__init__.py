"""The allocator probe: runs inside an LLM server and publishes what torch's CUDA allocator holds.

Fragmentation of GPU memory can't be seen from outside a server (NVML counts what the allocator reserves, not what
it uses), so this part reads ``torch.cuda.memory_stats()`` where it lives and puts it into a small file per process.

- vLLM loads it by itself through the ``vllm.general_plugins`` entry point; any other torch server by
  ``import soakd.probe.auto``.
- It does nothing unless ``SOAKD_PROBE`` is set: ``1`` for the usual folder, or the path of a folder.
  ``SOAKD_PROBE_INTERVAL`` is in seconds (default 1, at least 0.1).
- It never initialises CUDA, never raises into the server, and needs only the standard library and this folder.
"""

from __future__ import annotations

from .publisher import register

__all__ = ["register"]
