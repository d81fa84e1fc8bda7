"""Linear layers whose values are coefficients of polynomials: Cheetah, and Falcon 2023 for depthwise convolutions."""
