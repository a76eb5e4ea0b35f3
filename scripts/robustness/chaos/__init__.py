"""Faults at random moments of real runs; clock.c is preloaded: a case's wall clock is its own."""
