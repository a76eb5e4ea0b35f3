"""What must hold when things go wrong: faults in real runs, and mutants that tests notice."""
