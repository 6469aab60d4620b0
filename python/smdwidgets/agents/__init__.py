"""Answers for agents: short texts about the runs below given directories."""
