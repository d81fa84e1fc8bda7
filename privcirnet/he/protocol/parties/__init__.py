"""Client, server and session of interactive inference."""
