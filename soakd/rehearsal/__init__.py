"""The same soak against a simulated target and simulated hardware. Whatever comes of it is labelled SIMULATED."""
