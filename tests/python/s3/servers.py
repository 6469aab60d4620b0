"""The servers, under their former name."""

from servers import CREDENTIALS, FAULTS, FaultyProxy, free_port, moto_server, rclone_server, relay, running

__all__ = ["CREDENTIALS", "FAULTS", "FaultyProxy", "free_port", "moto_server", "rclone_server", "relay", "running"]
