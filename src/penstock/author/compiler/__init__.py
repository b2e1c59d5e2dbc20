"""A `@workflow` function's source -> Workflow. `compile.compile_workflow` is the entry; `author.flow` calls it.

The compiler reads the function's syntax tree and never runs its body. It is made of parts; each has one subject and its own
state, and gets the parts that it needs through its constructor. Lower lines of the table use upper lines.

    symbols         what an expression stands for: a constant, or a value of the run
    liveness        which names statements read and bind
    source          the text and the syntax tree of the function
    refusals        errors that point at a line and say what to write instead
    scope           variables, and the workflow that is being built
    definitions     the workflows that the compiled workflow calls
    context         refusals, scopes and definitions of one compilation
    expressions     the table: type of an expression -> rule. The rules are in literals, subscripts, conditions, operators,
                    calls and comprehensions
    builtins, methods   calls of Python's own functions, and of methods of texts, lists and dicts
    jumps           break and continue -> branches
    callees         which task, job or workflow a call names
    step_calls      calls of tasks, jobs and workflows -> steps
    bodies          the body of a loop -> a nested workflow
    bindings        assignment targets -> variables
    axes            what a loop goes over
    statements      blocks, branches, and the table: type of a statement -> rule. The rules are in assignments, for_loops
                    and while_loops
    compile         puts the parts together and compiles one function
"""
