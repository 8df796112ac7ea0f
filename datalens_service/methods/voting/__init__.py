"""Methods that ask many private teachers and publish noisy votes: DataLens (CCS 2021), its rivals and PATE-GAN.

`datalens` is the entry point, `training_run` has the loop and what teachers do;
they live behind the wall, in `mechanisms/private_shards.py`, which shares them among several processes.
"""
