"""LoLa (ICML 2019) and Falcon (NeurIPS 2020): networks of squares in leveled BFV, one request and one answer."""
