"""The verbs of Penstock, in modules by subject. Called by cli, runners, controller and testing.

Import the module that you need: `workflows` (files to workflows), `parameters`, `plans`, `conversion`, `queues`, `submission`,
`runs` (executing), `run_records` (looking runs up), `logs`, `cleanup`; `views` has what screens show, `simulation` plays workflows
through queues. This package imports none of them, so that a command loads only what it uses.
"""
