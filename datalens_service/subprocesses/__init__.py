"""Programs that run in a process of their own beside a job, and the function that starts one."""
