"""Run a campaign: schedule, loop, status."""
