"""What is a secret and what is not: one table for masking and for refusing."""

from __future__ import annotations

import base64
import string
import time
from typing import Any

import pytest
from forebay.contracts.masking import MASK, holds_secret, is_secret_name, mask, secrets_in
from hypothesis import given, settings
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


_ALPHABET = string.ascii_letters + string.digits
_SYMBOLS = "!#$%^&*+=/_.,;:@~-"


def _text(alphabet: str, low: int, high: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=low, max_size=high)


SHAPES: dict[str, st.SearchStrategy[str]] = {
    "password": st.builds(
        lambda word, number: f"{word}{number}", _text(string.ascii_lowercase, 6, 12), st.integers(1, 999)
    ),
    "with symbols": st.builds(
        lambda head, tail: f"Q{head}7{tail}k9", _text(_ALPHABET, 4, 8), _text("!#$%^*+=_.,;~-", 2, 6)
    ),
    "with an at": st.builds(lambda a, b, c: f"{a}@{b}@{c}4", *[_text(_ALPHABET, 2, 6)] * 3),
    "base64": st.binary(min_size=24, max_size=40).map(lambda raw: "Zx9" + base64.b64encode(raw).decode()),
    "hex": _text("0123456789abcdef", 32, 64).map(lambda digits: f"a1{digits}"),
    "uuid": st.uuids().map(str),
    "aws key": _text(string.ascii_uppercase + string.digits, 16, 16).map(lambda tail: f"AKIA{tail}"),
    "aws secret": _text(_ALPHABET + "/+", 37, 37).map(lambda head: f"{head}x9Z"),
    "jwt": st.builds(
        lambda *parts: "eyJ" + ".eyJ".join(parts[:2]) + f".{parts[2]}", *[_text(_ALPHABET + "_-", 8, 30)] * 3
    ),
    "hugging face": _text(_ALPHABET, 30, 36).map(lambda tail: f"hf_{tail}"),
    "github": _text(_ALPHABET, 36, 36).map(lambda tail: f"ghp_{tail}"),
    "nkey": _text(string.ascii_uppercase + "234567", 56, 56).map(lambda tail: f"SU{tail}"),
}
POSITIONS = [
    "train --access-key {} --steps 5", "train --secret-key={} --steps 5", "mysql --password {} db", "login token {} now",
    "Server=db;Uid=ada;Pwd={}", "credential={} user=ada", "passphrase: {}", "auth={}", "https://ada:{}@host/x?a=1",
    'said {{"user": "ada", "password": "{}"}}', "['train.py', '--api-key', '{}', '--steps', '5']", "Authorization: Bearer {}",
    "proxy-authorization: {}", "export HF_TOKEN='{}'; python x", "- name: WANDB_API_KEY\n  value: {}\n", "X-Api-Key: {}",
    "curl --user ada:{} https://host", "Cookie: session={}; lang=en", "sshpass -p {} ssh host", "the password is {}.",
    "AccountKey={}", "<password>{}</password>", "password => '{}'", '{{\\"client_secret\\": \\"{}\\"}}', "access key {}",
]  # fmt: skip
ORDINARY = [
    "step 1200: loss 0.0312, 5 tokens of 512, max_tokens=512, token 17, tokens per second: 3104.5",
    "tokenizer loaded from gpt2; pad_token=<pad>, eos_token=</s>, tokens: 128",
    'MountVolume.SetUp failed for volume "wandb" : secret "wandb-key-2" not found',
    "couldn't find key api in Secret robot-train/wandb2",
    "Unable to retrieve some image pull secrets (regcred-v2); attempting to pull the image may not succeed.",
    "failed to fetch anonymous token: unexpected status from GET request to https://ghcr.io/v2: 403 Forbidden",
    "secret: not found in namespace lab", "password: must be set", "password authentication failed for user ada", "wrong password", "the token expired at 2026-11-30T08:00:00Z",
    "authentication required: no basic auth credentials", "Basic installation instructions", "auth: failed",
    'Traceback (most recent call last): File "/opt/train.py", line 12, in main', "session: 3 of 5",
    "0/6 nodes are available: 2 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint {dedicated: robots}.",
    "secretName: wandb-key-2", "git checkout 0123456789abcdef0123456789abcdef01234567", "docker run --user 1000:1000 x",
    "sha256:" + "a" * 64, "-12.5 +3e-4 0x1f 1_000 99.9% 08:00:00 2026-11-30", "mail ada@example.org about episode 12",
    "mkdir -p /data/x1 && cp -u a b", "credentials file /root/.aws/config2 not found",
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_no_secret_survives_beside_its_name(shape: str, data: st.DataObject) -> None:
    """Whatever a secret looks like, it is masked wherever a name announces it."""
    secret = data.draw(SHAPES[shape])
    position = data.draw(st.sampled_from(POSITIONS))
    masked = mask(position.format(secret))
    for part in (secret[:6], secret[-6:].rstrip(".,;")):
        assert part not in masked or part in position
    assert not holds_secret(masked)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_survives(text: str) -> None:
    """Logs of trainings and messages of clusters, with the names and numbers they are read for."""
    assert mask(text) == text


@given(
    st.lists(
        st.one_of(st.integers(), st.floats(allow_nan=False), st.from_regex(r"[a-z]{1,12}", fullmatch=True)), max_size=20
    )
)
def test_words_and_numbers_survive(items: list[object]) -> None:
    """No text of plain words and numbers looks like a secret."""
    words = ["secrecy" if item in {"token", "password"} else item for item in items]
    text = " ".join(map(str, words))
    assert mask(text) == text


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
