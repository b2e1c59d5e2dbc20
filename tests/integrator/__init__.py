"""What an integrator of a payload-driven platform asks of Penstock, as acceptance tests by their numbers."""
