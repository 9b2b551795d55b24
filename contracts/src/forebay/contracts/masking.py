"""What a secret looks like, in one place: texts are masked before they go on record, and job files that hold one are refused.

Masking takes too much rather than too little: a log line may hold a key. Refusing a
job needs more certainty: a telling name with a value of its own, or a form that only
credentials have. Everything that is refused is also masked, so a refusal never
repeats the secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MASK = "****"
HOW_TO_NAME_IT = (
    "secrets are names, never values; put it into a Secret and name that: pod: {env: [{name: VARIABLE, valueFrom:"
    " {secretKeyRef: {name: SECRET, key: KEY}}}]} on a cluster; elsewhere let the command read it from a file"
)

# --- names ---------------------------------------------------------------------------------------------------------
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_TELLING = frozenset(
    {
        "password", "passwd", "passphrase", "pwd", "secret", "secrets", "credential", "credentials", "authorization",
        "apikey", "authtoken", "accesstoken", "accesskey", "secretkey", "privatekey", "authkey",
    }
)  # fmt: skip
_TELLING_PAIRS = frozenset(
    (first, "key")
    for first in ("api", "access", "secret", "private", "auth", "account", "signing", "encryption", "shared", "ssh", "service")
)  # fmt: skip
_TOKENS_OF_TEXTS = frozenset(
    {
        "action", "bos", "class", "cls", "end", "eos", "first", "goal", "image", "img", "lang", "language", "last",
        "latent", "mask", "next", "obs", "observation", "pad", "per", "prompt", "query", "register", "sep", "sos",
        "special", "start", "state", "stop", "task", "text", "unk", "video", "vision", "visual",
    }
)  # fmt: skip
"""What a `token` of a model is called; any other token is a credential."""
_TRAILERS = frozenset({"value", "b64", "base64", "hex", "string", "text"})


def is_secret_name(name: str) -> bool:
    """Whether a variable, option or parameter of this name holds a secret: `wandb.apiKey`, `HF_TOKEN`; not `max_tokens`."""
    words = [word.lower() for word in _WORD.findall(name)]
    while words and (words[-1] in _TRAILERS or words[-1].isdigit()):
        words.pop()
    if not words:
        return False
    if words[-1] == "token":
        return len(words) == 1 or words[-2] not in _TOKENS_OF_TEXTS
    return words[-1] in _TELLING or tuple(words[-2:]) in _TELLING_PAIRS or words[-3:] == ["access", "key", "id"]


# --- values --------------------------------------------------------------------------------------------------------
_REFERENCE = re.compile(
    r"""\*{4} | (?:none|null|true|false|auto|yes|no)          # no value of its own
      | \$\{?[A-Za-z_][A-Za-z0-9_]*(?::?[-?+][^}]*)?\}? | \$\([A-Za-z_][A-Za-z0-9_]*\) | \$\((?:cat|<)\s[^)]*\)  # named
      | (?:file://)?(?:\.{0,2}/|~/)[^\s:@=]* | [\w.-]+\.(?:env|json|key|pem|token|txt|ya?ml)   # a file that holds it
      | [a-z_]\w*(?:\.\w+)*[(\[].* | (?:str|bytes)[),]?.*      # code: an expression, an annotation
      | <[^<>]*> | \{\{[^{}]*\}\} | \[[A-Z_]+\]""",
    re.VERBOSE | re.IGNORECASE,
)
"""What may stand where a secret would: the name of a variable, a file, a placeholder, a word of a vocabulary."""

_URL_PASSWORD = re.compile(
    r"(\b[a-z][a-z0-9+.-]{0,30}://)[^\s/@:'\"\[]{0,200}:(?!\d+/)([^\s@'\"]{0,400}(?:@[^\s@/'\"]{0,200}(?=@)){0,4})@",
    re.IGNORECASE,
)
_QUERY = re.compile(r"([?&]([A-Za-z0-9_.-]+)=)([^&\s'\"]+)")
_SIGNED = frozenset({"sig", "signature", "x-amz-signature", "x-amz-credential", "x-amz-security-token",
                     "x-goog-signature", "x-goog-credential"})  # fmt: skip
_SHAPES: tuple[re.Pattern[str], ...] = (
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    re.compile(r"\bgh[pousr]_[A-Za-z0-9]{16,}"),
    re.compile(r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}"),
    re.compile(r"\bsk-(?:(?:proj|ant|live|test|or|svcacct)-[A-Za-z0-9_-]{12,}|[A-Za-z0-9]{16,})"),
    re.compile(r"\bsk_(?:live|test)_[A-Za-z0-9]{12,}"),
    re.compile(r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{35}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{5,2000}\.eyJ[A-Za-z0-9_-]{5,4000}\.[A-Za-z0-9_-]*"),  # JWT
    re.compile(r"\bS[UAONCX][A-Z2-7]{54,}\b"),  # nkey seed
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
)
_WANDB = re.compile(r"(wandb[\w.-]*(?:[\s=:\"']+(?:login|--?[\w-]+)){0,4}[\s=:\"']+)([0-9a-f]{40})\b", re.IGNORECASE)
"""Its keys look like any SHA-1; only beside the name they are told apart."""
_BEARER = re.compile(r"\b(Bearer|Basic)\s+([A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
_VALUE = r"(?!\*{4})(\$\([^()]*\)|\"[^\"]*\"|'[^']*'|[^\s,;&-][^\s,;&]*)"
_NAMED = re.compile(rf"([\"']?(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]+)[\"']?\s*[:=]\s*){_VALUE}")
"""name=value and name: value, also as JSON."""
_OPTION = re.compile(rf"((?<![\w-])--?([A-Za-z][\w.-]*)\s+){_VALUE}")
"""--name value"""

_PERHAPS = re.compile(r"password|passwd|secret|token|(?:api|access|private)[_-]?key", re.IGNORECASE)
"""Names whose values are masked, although a job is not refused for them."""
_PERHAPS_SHAPE = re.compile(r"\b(?:hf|ghp|gho|ghs|github_pat|glpat|sk|xox[abp])[_-][A-Za-z0-9_-]{16,}")


def mask(text: str) -> str:
    """The text with everything that looks like a credential replaced."""
    return _PERHAPS_SHAPE.sub(MASK, _without_secrets(text)[0])


def holds_secret(text: str) -> bool:
    """Whether the text surely holds a credential: a known form, a password in a URL, a telling name with a value."""
    return _without_secrets(text)[1]


def is_reference(value: str) -> bool:
    """The value only says where the secret is, or that there is none."""
    return not value.strip("\"'") or _REFERENCE.fullmatch(value.strip("\"'")) is not None


def _without_secrets(text: str) -> tuple[str, bool]:
    found = False

    def replaced(kept: str, value: str) -> str:
        nonlocal found
        found = found or not is_reference(value)
        return f"{kept}{MASK}"

    def named(match: re.Match[str]) -> str:
        kept, name, value = match.groups()
        if name.lower() in _SIGNED or _is_telling(name, _number(value)):
            return replaced(kept, value)
        return f"{kept}{MASK}" if _PERHAPS.search(name) else match[0]

    def option(match: re.Match[str]) -> str:
        kept, name, value = match.groups()
        return replaced(kept, value) if _is_telling(name, _number(value)) else match[0]

    def in_query(match: re.Match[str]) -> str:
        kept, name, value = match.groups()
        if name.lower() in _SIGNED or is_secret_name(name):
            return replaced(kept, value)
        return f"{kept}{MASK}" if name.lower() == "key" else match[0]

    text = _URL_PASSWORD.sub(lambda match: f"{replaced(match[1], match[2])}@", text)
    text = _QUERY.sub(in_query, text)
    text = _BEARER.sub(lambda match: replaced(f"{match[1]} ", match[2]), text)
    text = _WANDB.sub(lambda match: replaced(match[1], match[2]), text)
    for shape in _SHAPES:
        text = shape.sub(lambda _: replaced("", "a value"), text)
    text = _NAMED.sub(named, text)
    return _OPTION.sub(option, text), found


# --- whole documents -----------------------------------------------------------------------------------------------
def secrets_in(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Places of a job file or manifest that hold a secret, and what gives it away; never the secret itself.

    `where` is the path of `value`, e.g. `pod.env[0]`.
    """
    if isinstance(value, str):
        if holds_secret(value):
            yield where, "holds what looks like a secret"
    elif isinstance(value, Mapping):
        yield from _in_mapping(value, where)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        yield from _in_words(value, where)


def _in_mapping(value: Mapping[Any, Any], where: str) -> Iterator[tuple[str, str]]:
    named = value.get("name")
    if isinstance(named, str) and _is_telling(named, value.get("value")):
        yield f"{where}.value".lstrip("."), f"the value of {mask(named)} looks like a secret"
        return
    for name, inner in value.items():
        path = f"{where}.{name}".lstrip(".")
        if holds_secret(str(name)):
            yield where or "the file", "a name in it looks like a secret"
        elif _is_telling(str(name), inner) or (isinstance(inner, str) and _WANDB.fullmatch(f"{name}={inner}")):
            yield path, "looks like a secret"
        else:
            yield from secrets_in(inner, path)


def _in_words(value: Sequence[Any], where: str) -> Iterator[tuple[str, str]]:
    before = ""
    for index, item in enumerate(value):
        path = f"{where}[{index}]"
        option = before.startswith("-") and "=" not in before
        if option and isinstance(item, str) and not item.startswith("-") and _is_telling(before, item):
            yield path, f"the value of {mask(before)} looks like a secret"
        else:
            yield from secrets_in(item, path)
        before = item if isinstance(item, str) else ""


def _is_telling(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool | Mapping | list | tuple) or not is_secret_name(name):
        return False
    if isinstance(value, str):
        return not is_reference(value)
    return not name.lower().endswith("token")  # a number is no token; it may well be a password


def _number(text: str) -> str | float:
    """A number written as text counts as one: `tokens per token: 3`."""
    try:
        return float(text)
    except ValueError:
        return text
