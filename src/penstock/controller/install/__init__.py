"""What a cluster needs for the controller, as plain data: `penstock controller manifests` prints it, `penstock controller check` compares it.

cel         expressions of admission policies, from small pieces
policies    holds pods and TaskRuns of queued workflows, and lets only the controller let them go
webhooks    asks the controller about new workflows and new pods
rights      what the controller may do, and a role for users
manifests   all of it, with Namespace, Deployment and Service
chart       the same as a Helm chart
check       what a cluster lacks of it
"""
