"""Everything durable: the only SQL and the only blob I/O of the product.

What all of it raises, and no function repeats: NotFound for an id of nothing, InvalidInput for a limit or cursor of
a list that is not usable, StaleLease for a lease that is over, LedgerCorrupt for a frozen account or stored bytes that
were altered, FileDamaged, StoreUnavailable and InsufficientStorage for a database or disk that does not do its part.
"""
