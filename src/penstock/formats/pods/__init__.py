"""The description of a pod, which Argo, Tekton, JobSets and Jobs share. Called by their readers, writers and gates."""
