"""One message each way: session, description, program. See docs/leveled.md."""
