"""The scripts' work, as functions that report progress through callbacks."""
