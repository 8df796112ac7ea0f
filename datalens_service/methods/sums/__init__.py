"""Methods that draw images from noisy sums of vectors."""
