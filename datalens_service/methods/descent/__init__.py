"""Methods that train a whole network by noisy gradients of records."""
