"""DataLens (CCS 2021): `method` is its entry, `parameters` its plan, `training_run` its loop.

`teacher_pool` holds the private teachers of one process; `distributed` shares them among several.
"""
