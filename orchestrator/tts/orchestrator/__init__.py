"""Search core, scheduler, clients, prompts, grading, benchmark and command line."""
