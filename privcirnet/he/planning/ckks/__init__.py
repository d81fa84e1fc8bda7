"""Where a real network is refreshed, its circuit and what it costs."""
