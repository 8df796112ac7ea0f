"""DataLens (CCS 2021): `method` is its entry, `parameters` its plan, `training_run` its training_run.

`teacher_pool` holds the private teachers of one process; `distributed` shares them among several.
"""
