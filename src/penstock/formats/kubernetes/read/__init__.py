"""JobSet, Job, CronJob and Pod documents -> Workflow."""
