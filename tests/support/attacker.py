"""The server of an attacker, and a record of what this process tried to reach."""

from context_agent.testing.hostile_indexes import AttackerServer


class Attacker(AttackerServer):
    """The attacker's server, and the names and addresses that this process tried to reach."""

    def __init__(self) -> None:
        super().__init__()
        self.contacted: list[str] = []
