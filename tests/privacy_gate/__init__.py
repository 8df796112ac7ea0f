"""Detectors of privacy bugs, bugs to plant, and the gate that sets one against the other.

The contract tests of the mechanisms walk over the same cases.
"""
