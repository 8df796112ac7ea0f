"""DataLens (CCS 2021): `method` is the entry point, `parameters` the plan, `training_run` the loop.

`teacher_pool` holds the private teachers of one process; `distributed` shares them among several.
"""
