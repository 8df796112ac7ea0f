"""Methods that ask many private teachers and publish noisy votes: DataLens (CCS 2021), its rivals and PATE-GAN.

`datalens` is the entry point, `parameters` the plan, `training_run` the loop. `teacher_pool` holds the private teachers
of one process; `distributed` shares them among several.
"""
