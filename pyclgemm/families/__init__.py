"""The kernel families, one file or folder each, behind the interface of `families.family`.

`families.cost` predicts times from the work that a family states. A family knows problems, devices
and code generation; it knows no queue, no database and no other family's configuration.
"""
