"""What this machine needs: seconds of encrypted operations, and of layers in clear."""
