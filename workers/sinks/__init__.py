"""Sinks: send a run's figures to the monitoring programs that teams already use."""
