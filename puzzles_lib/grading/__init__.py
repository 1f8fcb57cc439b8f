"""Grade what students hand in, without ever running their Python.

    submissions -> sandbox (inside: handed_in, plain, the checker) -> grade -> results

`submissions` reads files as bytes and finds out who handed them in. `sandbox` starts a process per
submission. In it, `inside` finds the kernels and answers without running them, and checks them; its
verdicts come back as JSON. `grade` turns them into marks, `results` keeps the marks, and `class_view` shows
them. `executors` runs the jobs.
"""
