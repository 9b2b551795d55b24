"""What a secret looks like, in one place: texts are masked before they go on record, and job files that hold one are refused.

Masking takes too much rather than too little: a log line may hold a key. Refusing a
job needs more certainty: a telling name with a value of its own, or a form that only
credentials have. Everything that is refused is also masked, so a refusal never
repeats the secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
      | [a-z_]\w*(?:\.\w+)*[(\[].* | (?:str|bytes)(?:[),].*)?      # code: an expression, an annotation
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
_BEARER = re.compile(r"\b((?i:bearer)|(?i:basic)(?=\s+\S*[A-Z0-9=]))\s+([A-Za-z0-9._~+/=-]{8,})")
_NAME = re.compile(r"""["']?(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]+)\\*["']?\s*(?::|=|%3[AD])>?\s*""", re.IGNORECASE)
"""name= and name: before a value, also as JSON, also inside other quotes"""
_OPTION = re.compile(
    r"""(?<![\w-])--?([A-Za-z][\w.-]*)["']?,?\s+(?!["']?(?:-[A-Za-z]|--?[A-Za-z][a-z_.-]*)(?!\w))(?=["']?\S)"""
)
"""--name before a value, also in a list of words; what looks like the next option is not a value"""
_VALUE = re.compile(r"""(\$\([^()]*\)|\\*"[^"]{0,4000}"|\\*'[^']{0,4000}'|["'][^\n]*|[^\s"'<\[{][^\s"']*)""")
"""Up to its closing quote, or to the next blank: a password may hold commas, semicolons and dashes."""
_SENTENCE = re.compile(r"(?<=: )[a-z]{2,14} (?=[a-z]{2}|\d)")
_ABOUT_PASSWORDS = re.compile(
    r"(?<=: )(?:cannot|expired|incorrect|invalid|missing|must|no|not|required|should|too|wrong)\b"
)
"""What an error says about a token or a password: `fetch token: unexpected status`"""
_CLOSING = re.compile(r"""(?:[\"')\]}>,;.\\]|</)+\Z""")
"""What ends the sentence or the list that a value stands in."""

# Forms that are masked, although a job is not refused for them.
_PERHAPS = re.compile(
    r"passw(?:or)?d|passphrase|passcode|secret|credential|(?<![a-z])(?:pwd|auth|session|sid)(?![a-z])",
    re.IGNORECASE,
)
_WEAK = re.compile(r"(?:.*[_.-])?(?:auth|session|sid)")
_METHODS = frozenset({"bearer", "digest", "kerberos", "oauth2", "failed", "required", "enabled", "disabled"})
_PLACES = frozenset({"name", "names", "ref", "file", "path", "dir", "directory", "namespace", "version", "type"})
_SHORTEST = 6
_KEY = re.compile(
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|(?=\S*\d)(?=\S*[a-z])(?=\S*[A-Z])[A-Za-z0-9/+]{40}"
)
"""A UUID, or the secret of an access key: the latter may look like a path"""
_PERHAPS_SHAPE = re.compile(r"\b(?:hf|ghp|gho|ghs|github_pat|glpat|sk|xox[abp])[_-][A-Za-z0-9_-]{16,}")
_HEADER = re.compile(
    r"""\b((?:proxy-)?authorization["']?\s*[:=]\s*["']?|(?:set-)?cookie["']?\s*:\s*["']?)([^\n"']+)""", re.IGNORECASE
)
_PHRASE = re.compile(r"""(passphrase["']?\s*[:=]\s*["']?)(?!\s|[$<{])([^\n"']+)""", re.IGNORECASE)
_ELEMENT = re.compile(r"<([A-Za-z][\w.-]{0,60})>(?=[^<>\n]{1,400}</)")
_PAIR = re.compile(
    r"""\bname["']?\s*[:=]\s*["']?([A-Za-z][\w.-]{0,100})["']?[\s,;]{1,40}["']?value["']?\s*[:=]\s*""", re.IGNORECASE
)
"""name: HF_TOKEN, value: before a value, as environments are printed"""
_USER = re.compile(r"""((?<!\S)(?:-u|--(?:proxy-)?user)[\s=]\s*["']?(?!\d+:)[^\s:"']{1,100}:)([^\s"']+)""")
_SHORT_OPTION = re.compile(
    r"(\bsshpass\s+-p\s*|\b(?:mysql|mysqldump|mariadb)\s(?:-?[^\s-]\S{0,60}\s){0,6}?-p(?=\S))(\S+)"
)
_SPOKEN = re.compile(
    r"""(\b(password|passwd|passphrase|passcode|pwd|token|credentials?|secret_id|(?:api|access|secret|private|auth)[ _-]?key)\b
      (?:\s{1,8}(?:is|was|of|for)\b(?:\s\S{1,60}:)?)?:?\s{1,8})(?!\*{4})(\S{6,})""",
    re.IGNORECASE | re.VERBOSE,
)
"""A credential that only the word before it names: `token X`, `password is X`."""
_ORDINARY = re.compile(
    r"""[a-z_]\w*(?:\.\w+)+ | [a-z_][a-z_.-]*(?:=(?!=)|[(\[]).+ | [+-]?\d[\d.,:/+-]*[A-Za-z%]{0,3}   # parameter, call, number with its unit
      | \S*[/\\]\S*\.\w{1,5} | (?:\w+://|/|\./|~/)\S* | [a-z][a-z0-9]*(?:-[a-z0-9]+)+""",
    re.VERBOSE | re.ASCII,
)
"""Words with digits that ordinary texts hold: the names of parameters, files, and objects of a cluster."""


def mask(text: str) -> str:
    """The text with everything that looks like a credential replaced."""
    for whole_line in (_HEADER, _PHRASE):
        text = whole_line.sub(lambda match: f"{match[1]}{MASK}", text)
    text = _PERHAPS_SHAPE.sub(MASK, _without_secrets(text)[0])
    for form in (_ELEMENT, _PAIR):
        text = _mask_values(form, text, _may_name)
    for pattern in (_USER, _SHORT_OPTION):
        text = pattern.sub(lambda match: match[0] if is_reference(match[2]) else f"{match[1]}{MASK}", text)
    return _SPOKEN.sub(lambda match: f"{match[1]}{MASK}" if _looks_random(*match.group(2, 3)) else match[0], text)


def holds_secret(text: str) -> bool:
    """Whether the text surely holds a credential: a known form, a password in a URL, a telling name with a value."""
    return _without_secrets(text)[1]


def is_reference(value: str) -> bool:
    """The value only says where the secret is, or that there is none."""
    bare = value.strip("\"'")
    return not bare or (_REFERENCE.fullmatch(bare) is not None and _KEY.fullmatch(bare) is None)


def _mask_values(form: re.Pattern[str], text: str, is_secret: Callable[[str, str], bool]) -> str:
    """Mask what follows each match of `form`, whose first group is a name, where name and value give a secret away."""
    pieces: list[str] = []
    done = 0
    for match in form.finditer(text):
        name, start = match[1], match.end()
        if match.start() < done or text.startswith(MASK, start) or not _could_name(name):
            continue
        found = _VALUE.match(text, start)
        prose = _ABOUT_PASSWORDS if "pass" in name.lower() else _SENTENCE
        if found is None or prose.match(text, start):
            continue
        value = found[0]
        if value[0] not in "\"'\\$":
            value = _CLOSING.sub("", value)
        if value and is_secret(name, value):
            pieces += text[done:start], MASK
            done = start + len(value)
    return "".join((*pieces, text[done:]))


def _could_name(name: str) -> bool:
    """Whether values beside this name are looked at: not beside `secretName` or `password_file`, which say where it is."""
    if is_secret_name(name) or name.lower() in _SIGNED:
        return True
    return _PERHAPS.search(name) is not None and _WORD.findall(name)[-1].lower() not in _PLACES


def _may_name(name: str, value: str) -> bool:
    """Whether a value is masked beside this name; a reference, a number or a vocabulary's word may be none."""
    if is_secret_name(name):
        return not isinstance(_number(value), float) or _is_telling(name, _number(value))
    if _WEAK.fullmatch(name.lower()) and not _KEY.fullmatch(value):
        return len(value) >= _SHORTEST and value.lower() not in _METHODS and not _ORDINARY.fullmatch(value)
    return not is_reference(value)


def _looks_random(name: str, value: str) -> bool:
    """No word, name or number of ordinary text; after `password`, numbers are no ordinary text."""
    bare = _CLOSING.sub("", value).lstrip("\"'")
    if _KEY.fullmatch(bare) or (bare.isdecimal() and name.lower().startswith("pass")):
        return True
    if len(bare) < _SHORTEST or is_reference(bare) or _ORDINARY.fullmatch(bare):
        return False
    return bool(re.search(r"[A-Za-z]", bare)) and bool(re.search(r"[0-9!#$%^&*+~@]", bare))


def _without_secrets(text: str) -> tuple[str, bool]:
    found = False

    def replaced(kept: str, value: str) -> str:
        nonlocal found
        found = found or not is_reference(value)
        return f"{kept}{MASK}"

    def is_secret(name: str, value: str) -> bool:
        nonlocal found
        telling = name.lower() in _SIGNED or _is_telling(name, _number(value))
        found = found or (telling and not is_reference(value))
        return telling or _may_name(name, value)

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
    return _mask_values(_OPTION, _mask_values(_NAME, text, is_secret), is_secret), found


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
