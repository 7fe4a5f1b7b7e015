"""What a command takes for a terminal."""

import io


class Terminal(io.StringIO):
    """What a command takes for a terminal, without colours or a moving bar."""

    def __init__(self, said, *, is_terminal):
        super().__init__()
        self._said, self._is_terminal = said, is_terminal

    def isatty(self):
        return self._is_terminal

    def write(self, text):
        length = super().write(text)  # raises for bytes, by which libraries tell the kind of a stream
        self._said.append(text)
        return length
