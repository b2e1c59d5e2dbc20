"""What a state machine does next: facts in, effects out, pure. `walker` is the machine, `dataflow` one state, `dry` a driver on a virtual clock."""
