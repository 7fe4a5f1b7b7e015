"""A function for `progress` that keeps what it was called with."""


class Calls(list):
    """Calls of a `progress`: (step, done, total)."""

    def __call__(self, step, done, total):
        self.append((step, done, total))

    @property
    def steps(self):
        return [step for step, *_ in self]

    @property
    def done(self):
        return [done for _, done, _ in self]
