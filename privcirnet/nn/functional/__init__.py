"""Pure mathematics on tensors; imports torch only."""
