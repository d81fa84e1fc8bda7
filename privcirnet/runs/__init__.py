"""What the scripts do, as functions that report progress through callbacks."""
