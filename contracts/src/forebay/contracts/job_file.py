"""The job file as people write it: `JobSpec`, with amounts such as `4Gi` and without a project.

Owns the JSON schema of that file (for editors: `forebay submit --schema`) and the
table of amounts that may be written in words. Used by the generator and at submit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forebay.contracts.codec import SCHEMA_ROOT
from forebay.contracts.quantities import BYTES_PATTERN, CPU_PATTERN
from forebay.contracts.v1.jobs import JobSpec

SHORT_NAMES: Mapping[str, Mapping[str, str]] = {
    "resources": {"memory": "memory_bytes", "ephemeral_storage": "ephemeral_storage_bytes", "shm": "shm_bytes"},
}
"""Short name of a field -> the field of `JobSpec` that it fills, by section."""
BYTE_FIELDS: Mapping[str, tuple[str, ...]] = {
    "resources": ("memory_bytes", "ephemeral_storage_bytes", "shm_bytes"),
    "loader": ("sample_bytes",),
}
"""Fields that take `4Gi` as well as a number of bytes."""
CPU_FIELDS: Mapping[str, tuple[str, ...]] = {"resources": ("cpu",)}
"""Fields that take `500m` as well as a number of processors."""
_SECTIONS = {"resources": "Resources", "loader": "Loader"}


def job_file_schema() -> dict[str, Any]:
    """The JSON schema of a job file; unlike an event it takes no field that nobody reads."""
    schema = JobSpec.model_json_schema()
    for model in (schema, *schema["$defs"].values()):
        model["additionalProperties"] = False
    for section, name in _SECTIONS.items():
        fields = schema["$defs"][name]["properties"]
        for field in BYTE_FIELDS.get(section, ()):
            fields[field] = _or_text(fields[field], BYTES_PATTERN, "4Gi")
        for field in CPU_FIELDS.get(section, ()):
            fields[field] = _or_text(fields[field], CPU_PATTERN, "500m")
        for short, field in SHORT_NAMES.get(section, {}).items():
            fields[short] = {**fields[field], "title": short, "description": f"Short for `{field}`."}
    schema["required"] = [name for name in schema["required"] if name != "project"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{SCHEMA_ROOT}/JobFile.v1.json",
        **schema,
        "title": "Forebay job file",
    }


def _or_text(field: Mapping[str, Any], pattern: str, example: str) -> dict[str, Any]:
    """The same field, with a text of that pattern as one more way to write it."""
    kept = {key: value for key, value in field.items() if key in {"title", "default", "description"}}
    number = {key: value for key, value in field.items() if key not in kept}
    choices = list(number.pop("anyOf", [number]))
    return {**kept, "anyOf": [*choices, {"type": "string", "pattern": pattern, "examples": [example]}]}
