"""JobSet, Job, CronJob and Pod. Loaded by formats.registry."""
