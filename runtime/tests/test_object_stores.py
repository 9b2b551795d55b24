"""Keys of object stores: found where they belong, refused where they are not safe, shown to nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forebay.runtime.errors import SettingsError
from forebay.runtime.object_stores import FILE, VARIABLE, keys_of, split_bucket

SECRET = "the-secret-of-robots"  # noqa: S105 it guards nothing


def write(folder: Path, stores: object, mode: int = 0o600) -> Path:
    path = folder / FILE
    path.write_text(json.dumps({"stores": stores}))
    path.chmod(mode)
    return path


def test_a_file_in_the_home_folder_comes_first(tmp_path: Path) -> None:
    """Its bucket, else `*`; the environment is not asked; what Lance is told has the keys, nothing shown has them."""
    write(
        tmp_path,
        {
            "robots": {"endpoint": "http://minio:9000", "access_key_id": "AKID", "secret_access_key": SECRET},
            "*": {"region": "eu-west-1"},
        },
    )
    environ = {"AWS_ACCESS_KEY_ID": "other", "AWS_ENDPOINT_URL": "http://other"}
    keys = keys_of("robots", home=tmp_path, environ=environ)
    assert SECRET not in repr(keys) + str(keys) + keys.model_dump_json()
    assert "AKID" not in repr(keys)
    assert keys.options("http://as-the-version-says") == {
        "aws_access_key_id": "AKID",
        "aws_secret_access_key": SECRET,
        "aws_region": "us-east-1",
        "aws_virtual_hosted_style_request": "false",
        "aws_endpoint": "http://minio:9000",
        "allow_http": "true",
    }
    public = keys_of("elsewhere", home=tmp_path, environ=environ).options("https://as-the-version-says")
    assert public["aws_endpoint"] == "https://as-the-version-says"
    assert public["aws_skip_signature"] == "true"
    assert "allow_http" not in public


def test_without_a_file_the_variables_of_aws_tools_hold(tmp_path: Path) -> None:
    """As everywhere else."""
    environ = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": "short"}
    told = keys_of("robots", home=tmp_path, environ=environ).options()
    assert (told["aws_access_key_id"], told["aws_session_token"]) == ("AKID", "short")
    assert "aws_endpoint" not in told


@pytest.mark.parametrize(
    ("stores", "mode", "says"),
    [
        ({"robots": {"access_key_id": "AKID", "secret_access_key": SECRET}}, 0o644, "chmod 600"),
        ({"lab": {}}, 0o600, "has no keys for the object store"),
        ({"robots": {"secret_access_key": SECRET, "expires": "2020-01-01T00:00:00Z"}}, 0o600, "put new ones there"),
        ({"robots": {"secret_acces_key": SECRET}}, 0o600, "secret_acces_key"),
        ({"robots": {"secret_access_key": [SECRET]}}, 0o600, "valid string"),
        ([SECRET], 0o600, "does not fit at stores"),
    ],
    ids=["open to others", "another bucket", "expired", "misspelled", "no text", "no table"],
)
def test_what_cannot_be_used_is_said_without_the_keys(tmp_path: Path, stores: object, mode: int, says: str) -> None:
    """The file is named, and what to do; its content is not."""
    path = write(tmp_path, stores, mode)
    with pytest.raises(SettingsError, match=says) as caught:
        keys_of("robots", home=Path("/nowhere"), environ={VARIABLE: str(path)})
    assert str(path) in str(caught.value)
    assert SECRET not in str(caught.value) + repr(caught.value.__cause__)


def test_a_named_file_that_is_not_there(tmp_path: Path) -> None:
    """Is an error, not the environment."""
    with pytest.raises(SettingsError, match="cannot be read"):
        keys_of("robots", home=tmp_path, environ={VARIABLE: str(tmp_path / "none.json"), "AWS_ACCESS_KEY_ID": "AKID"})


def test_places_on_object_storage() -> None:
    """Bucket and prefix; a folder is none."""
    assert split_bucket("s3://robots/pick/v1/") == ("robots", "pick/v1")
    with pytest.raises(ValueError, match="s3://bucket/prefix"):
        split_bucket("/pool/v1")
