"""The forwarder: from the journal to databases, at least once, by a stored cursor."""

from soakd.forward.forwarder import Forwarder, SinkSpec
from soakd.forward.status import METRICS, Condition, SinkStatus

__all__ = ["METRICS", "Condition", "Forwarder", "SinkSpec", "SinkStatus"]
