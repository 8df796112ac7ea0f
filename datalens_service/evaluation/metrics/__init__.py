"""What is measured: utility, fidelity, baselines."""
