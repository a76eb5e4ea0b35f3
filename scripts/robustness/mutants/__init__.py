"""Mutants of the code that no test notices: drawn, put into a copy, tried."""
