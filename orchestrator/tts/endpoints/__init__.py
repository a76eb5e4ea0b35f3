"""The generator and the verifier as the driver sees them, wherever they run."""
