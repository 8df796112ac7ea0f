"""The tables of the database, and a new database made of them."""
