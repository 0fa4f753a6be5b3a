"""One soak, from finding the server to its report."""
