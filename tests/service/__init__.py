"""Tests of privcirnet/service."""
