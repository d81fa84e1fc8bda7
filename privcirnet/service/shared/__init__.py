"""State that all replicas of a service share, in Redis or Valkey: each count or single use is one script."""
