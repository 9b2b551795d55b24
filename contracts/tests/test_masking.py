"""What is a secret and what is not: one table for masking and for refusing."""

from __future__ import annotations

import time
from typing import Any

import pytest
from forebay.contracts.masking import MASK, holds_secret, is_secret_name, mask, secrets_in
from hypothesis import given
from hypothesis import strategies as st

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
HEX40 = "0123456789abcdef0123456789abcdef01234567"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIabcdef\n-----END RSA PRIVATE KEY-----"
SECRET: list[tuple[Any, str]] = [
    ("https://ada:hunter2@host/data.tar", "hunter2"),
    ("git clone https://oauth2:hunter2@git.example/x", "hunter2"),
    ("postgres://ada:hun/ter2@db/x", "hun/ter2"),
    ("nats://bridge:hunter2@bus:4222", "hunter2"),
    ("https://b.s3/x?a=1&X-Amz-Signature=abcdef0123", "abcdef0123"),
    ("https://acc.blob/x?sv=1&sig=abcdef0123", "abcdef0123"),
    ("https://host/x?token=hunter2", "hunter2"),
    ("https://host/x?access_token=hunter2&b=1", "hunter2"),
    ("--api-key=hunter2", "hunter2"),
    ("--wandb.apiKey=hunter2", "hunter2"),
    ("+wandb.api_key=hunter2", "hunter2"),
    ("WANDB_API_KEY=hunter2 python train.py", "hunter2"),
    ("export HF_TOKEN='hunter2'; python train.py", "hunter2"),
    ("python train.py --password hunter2", "hunter2"),
    ("python train.py --api-key=hunter2 --steps 5", "hunter2"),
    ('{"password": "hunter2"}', "hunter2"),
    ("api_key: hunter2", "hunter2"),
    ("curl -H 'Authorization: Bearer hunter2hunter2' https://host", "hunter2hunter2"),
    (f"wandb login {HEX40}", HEX40),
    (f"WANDB_X={HEX40}", HEX40),
    ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"),
    ("sk-abcdefghijklmnopqrstuvwx", "sk-abcdefghijklmnopqrstuvwx"),
    ("sk-proj-abc_defghijklmnop-qrst", "sk-proj-abc_defghijklmnop-qrst"),
    ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
    (JWT, JWT),
    (PEM, "MIIabcdef"),
    (["train.py", "--token", "hunter2"], "hunter2"),
    (["train.py", "--hf_token", "hunter2"], "hunter2"),
    (["bash", "-c", "python train.py --api-key hunter2"], "hunter2"),
    ({"api_key": "hunter2"}, "hunter2"),
    ({"apiKey": "hunter2"}, "hunter2"),
    ({"WANDB-API-KEY": "hunter2"}, "hunter2"),
    ({"Password": "hunter2"}, "hunter2"),
    ({"db_password": 123456}, "123456"),
    ({"logger": {"wandb": {"client_secret": "hunter2"}}}, "hunter2"),
    ({"credentials": "hunter2"}, "hunter2"),
    ({"private_key": "hunter2"}, "hunter2"),
    ({"AWS_SECRET_ACCESS_KEY": "hunter2"}, "hunter2"),
    ({"AWS_ACCESS_KEY_ID": "hunter2"}, "hunter2"),
    ({"env": [{"name": "HF_TOKEN", "value": "hunter2"}]}, "hunter2"),
    ({"hf_abcdefghijklmnopqrstuvwx": 1}, "hf_abcdefghijklmnopqrstuvwx"),
]
HARMLESS: list[Any] = [
    "tokenizer", "--tokenizer=gpt2", "--tokenizer gpt2", "--max_tokens=512", "--max-tokens 512", "--n_action_tokens=8",
    "--policy.type=act", "--dataset.root={data:pick-place}", "secret_sauce", "--secret_sauce=garlic",
    "--num_image_token=4", "--pad_token=<pad>", "--eos_token=</s>", "--bos-token '[BOS]'", "--cls_token cls",
    "s3://bucket/path/to@v1:x", "s3://bucket/key=value/part-0.parquet", "ssh://git@github.com/lab/repo.git",
    "https://ada@host/x", "https://host:8443/x?episode=1&key=joint", "registry.example/train@sha256:" + "a" * 64,
    "a" * 64, HEX40, f"--code_revision={HEX40}", f"git checkout {HEX40}", "nats://bus:4222",
    "--password-file=/run/x", "--token=/secrets/hf/token", "--api-key $WANDB_API_KEY", "--api-key=${WANDB_API_KEY}",
    "HF_TOKEN=$(cat /secrets/hf) python train.py", "--token true", "--use_auth_token=true", "--password ''",
    "https://ada:${PASSWORD}@host/x", "sk-learn", "hf_transfer", "hf_pretrained_policy_base_large",
    "sk_transformer_large_v2_final", "the loss per token: 3", "https://host/x:y@z", "http://[::1]:80/a@b",
    "12:30:00 step 5 key: value", "--key=value", "--keyboard=de", "--monkey=1", "--secretary=ada",
    ["train.py", "--token", "--verbose"], ["train.py", "--tokenizer", "gpt2"], ["--api-key", "$KEY"],
    ["python", "-c", "token = os.environ['HF_TOKEN']; login(token=token_of(x), password=getpass())"],
    ["python", "-c", "def login(password: str) -> None: ..."], "GOOGLE_APPLICATION_CREDENTIALS=key.json",
    {"tokenizer": "gpt2"}, {"max_tokens": 512}, {"n_action_tokens": 8}, {"secret_sauce": "garlic"},
    {"pad_token": "<pad>"}, {"use_cls_token": True}, {"token": None}, {"secretName": "wandb"}, {"api_key_file": "x"},
    {"secretKeyRef": {"name": "wandb", "key": "api"}}, {"envFrom": [{"secretRef": {"name": "wandb"}}]},
    {"env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}]},
    {"automountServiceAccountToken": False}, {"imagePullSecrets": [{"name": "registry"}]}, {"passwordless": "yes"},
    {"mounts": "wandb(secret):/secrets/wandb, 8G(memory):/dev/shm"}, {"AWS_REGION": "eu-central-1"},
]  # fmt: skip


@pytest.mark.parametrize(("value", "secret"), SECRET, ids=[str(item[0])[:50] for item in SECRET])
def test_a_secret_is_found_and_never_repeated(value: Any, secret: str) -> None:
    """Each form is found once, told by its place, and masked wherever it stands in a text."""
    (found,) = secrets_in(value, "spec")
    assert found[0].startswith("spec")
    assert secret not in " ".join(found)
    if isinstance(value, str):
        assert secret not in mask(value)
        assert mask(mask(value)) == mask(value)


@pytest.mark.parametrize("value", HARMLESS, ids=[str(item)[:50] for item in HARMLESS])
def test_what_is_no_secret_is_no_alarm(value: Any) -> None:
    """Ordinary parameters, paths, digests, and the name of where a secret lies."""
    assert list(secrets_in(value, "spec")) == []


@given(st.text(max_size=200))
def test_what_would_be_refused_is_masked(text: str) -> None:
    """A masked text holds no secret any more, whatever it was."""
    assert not holds_secret(mask(text))


@given(
    st.sampled_from([item for item in SECRET if isinstance(item[0], str)]), st.text(max_size=30), st.text(max_size=30)
)
def test_a_secret_is_masked_in_any_surroundings(known: tuple[str, str], before: str, after: str) -> None:
    """Text around it, apart from it by a blank, does not hide it."""
    text, secret = known
    assert secret not in mask(f"{before} {text} {after}").replace(after, "").replace(before, "")


def test_names() -> None:
    """Words decide, not letters."""
    assert is_secret_name("FOREBAY_PARAM_API_KEY")
    assert not is_secret_name("tokenizer")
    assert not is_secret_name("")
    assert mask(f"password={MASK}") == f"password={MASK}"


@pytest.mark.parametrize("piece", ["a.", "eyJ-", "a://b:", "wandb --wandb ", "token=$(", " ", "-a", "@", "pass_", "'"])
def test_no_text_takes_long(piece: str) -> None:
    """Whoever writes a log line does not decide how long it is looked at."""
    started = time.perf_counter()
    mask(piece * (30_000 // len(piece)))
    assert time.perf_counter() - started < 5
