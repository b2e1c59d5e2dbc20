"""Backends on this machine without containers: functions inline and in warm workers, commands as processes."""
