"""Sinks, which send a run's metrics to monitoring programs that teams already use."""
