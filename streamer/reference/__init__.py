"""The semantics in plain, naive Python: the oracle of every test, what `explain` tells, and the backend without native core."""
