"""What every backend has to do so that agents can agree, as tests that a backend's test file inherits, by topic."""
