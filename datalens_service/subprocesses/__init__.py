"""Programs that run in a process of their own beside a job, and how one is started."""
