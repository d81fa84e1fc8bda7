"""One linear layer between two messages: one interface, three engines."""
