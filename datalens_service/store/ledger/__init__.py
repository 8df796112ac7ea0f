"""Accounts, reservations, charges, and their verification."""
