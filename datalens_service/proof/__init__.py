"""The proof of a job: hash chain, charges, signatures, and its verification. Needs no database."""
