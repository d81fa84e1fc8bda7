"""State that all replicas of a service share, in Redis or Valkey: what must be counted or used once is one script."""
