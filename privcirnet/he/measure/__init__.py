"""What this machine takes: operation times, layers, memory, peaks."""
