"""Rules over what is seen, and the queues to those who are told."""
