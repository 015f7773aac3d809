"""The kernel families, a folder for each, behind the interface of `families.family`.

`families.cost` predicts times from the work that a family states. A family knows problems, devices
and code generation, but no queue, no database and no other family's configuration.
"""
