"""What this machine needs: seconds of operations and layers, memory, and the peaks that no engine can beat."""
