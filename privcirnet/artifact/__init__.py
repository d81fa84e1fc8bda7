"""Every file format on disk: run summary, checkpoint, plan, program. docs/formats.md describes them.

Writing is atomic: a file or folder appears under its name when it is complete, or not at all.
"""
