"""The papers' printed tables and figures beside ours: cells as data, and what computes our value of each."""
