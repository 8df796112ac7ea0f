"""Everything durable: the only SQL and the only blob I/O of the product."""
