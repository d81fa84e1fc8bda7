"""What measures: layers, networks and a server under load. No wheel has it."""
