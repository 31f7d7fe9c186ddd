"""The semantics in plain, simple Python: the oracle of every test, the base of `explain`, and a backend without native code."""
