"""Every file format on disk: run summary, checkpoint, plan, program. docs/formats.md describes them.

Writing is atomic: a file or folder appears under its name when it is complete, or not at all.
"""

from privcirnet.artifact.ckks import read_ckks, write_ckks
from privcirnet.artifact.compact import compacted, expanded
from privcirnet.artifact.folder import CKKS, MANIFEST, SIGNATURE, format_of, read_signature
from privcirnet.artifact.interactive import (
    FULL_FOLDER,
    PLAINTEXTS,
    WEIGHTS,
    folder_bytes,
    plaintext_coefficients,
    read_measured,
    read_program,
    spectra,
    write_program,
)
from privcirnet.artifact.plan import REPLACEMENTS, plan_activations, plan_composed, plan_pads, read_plan, write_plan
from privcirnet.artifact.records import (
    Bits,
    Checkpoint,
    InputSpec,
    read_checkpoint,
    read_json,
    read_profile,
    write_arrays,
    write_checkpoint,
    write_json,
    write_text,
)

__all__ = [
    "CKKS",
    "FULL_FOLDER",
    "MANIFEST",
    "PLAINTEXTS",
    "REPLACEMENTS",
    "SIGNATURE",
    "WEIGHTS",
    "Bits",
    "Checkpoint",
    "InputSpec",
    "compacted",
    "expanded",
    "folder_bytes",
    "format_of",
    "plaintext_coefficients",
    "plan_activations",
    "plan_composed",
    "plan_pads",
    "read_checkpoint",
    "read_ckks",
    "read_json",
    "read_measured",
    "read_plan",
    "read_profile",
    "read_program",
    "read_signature",
    "spectra",
    "write_arrays",
    "write_checkpoint",
    "write_ckks",
    "write_json",
    "write_plan",
    "write_program",
    "write_text",
]
