"""Access tokens of an OAuth issuer: their validation, and the principal that a token stands for.

A token is a JWT (RFC 9068 or alike) that names this server as its audience. It cannot be revoked
here: it is valid until it expires.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kbcore.config.settings import Config
from kbcore.errors import ConfigError, Forbidden
from kbcore.state.keys import ADMIN, READER, WRITER
from kbcore.state.names import is_name
from kbserver.errors import ExpiredToken, InvalidToken
from kbserver.http.request_context import DEFAULT
from kbserver.security.issuer_keys import ALGORITHMS, IssuerKey, IssuerKeys, jwt_library
from kbserver.security.permissions import NO_ROLE, SCOPES, TokenPrincipal
from kbserver.security.protected_resource import audience

LEEWAY_SECONDS = 60
"""Difference of clocks that is accepted for the times in a token."""

MAX_VALID_TOKENS = 1024
"""Number of validated tokens that are remembered, by their digests: a signature takes some hundred
microseconds to verify."""

MAX_TOKEN_CHARS = 8192
MAX_SUBJECT_CHARS = 255
MAX_TENANTS = 1000
"""Maximum number of tenants in a token, as in a key."""

_TYPES = frozenset(("jwt", "at+jwt", "application/at+jwt"))
"""Values of `typ` of access tokens; other kinds of JWT have other values (RFC 8725)."""

_REQUIRED = ("exp", "iss", "aud", "sub")


@dataclass(frozen=True, slots=True)
class _ValidToken:
    """A validated token: the key that signed it, and its principal."""

    kid: str
    key: IssuerKey
    principal: TokenPrincipal

    def holds(self) -> bool:
        """Return True if the token has not expired; PyJWT reads the same clock."""
        return time.time() * 1000 < self.principal.expires_at


class Tokens:
    """Validation of the tokens of OAUTH_ISSUER; raises ConfigError for settings without an address.

    `now` is a monotonic clock in seconds; `keys` are those of the issuer.
    """

    def __init__(
        self,
        config: Config,
        now: Callable[[], float],
        keys: IssuerKeys | None = None,
    ) -> None:
        if not config.public_url:
            raise ConfigError("OAUTH_ISSUER needs PUBLIC_URL: the address that tokens are for")
        self._jwt = jwt_library()
        self._issuer = config.oauth_issuer
        self._audience = audience(config)
        self._claim = config.oauth_tenant_claim
        self._keys = keys or IssuerKeys(config.oauth_issuer, now)

        self._valid: OrderedDict[bytes, _ValidToken] = OrderedDict()
        self._mutex = threading.Lock()

    def principal(self, text: str) -> TokenPrincipal:
        """Return the principal of a token.

        Raises InvalidToken; Forbidden for a valid token that gives no access; NotReady if the keys
        of the issuer cannot be read.
        """
        digest = hashlib.sha256(text.encode()).digest()
        known = self._valid.get(digest)
        # Keys that were read again are other objects: the token is then verified once more.
        if known is not None and self._keys.find(known.kid) is known.key and known.holds():
            return known.principal
        kid, key, claims = self._claims(text)
        principal = self._principal(claims)
        with self._mutex:
            self._valid[digest] = _ValidToken(kid, key, principal)
            self._valid.move_to_end(digest)
            if len(self._valid) > MAX_VALID_TOKENS:
                self._valid.popitem(last=False)
        return principal

    def _principal(self, claims: dict[str, Any]) -> TokenPrincipal:
        """Return the principal of a validated token; raises InvalidToken and Forbidden."""
        subject = claims["sub"]
        if not (0 < len(subject) <= MAX_SUBJECT_CHARS and subject.isprintable()):
            raise InvalidToken("the subject of the token is empty, too long or not printable")
        name = f"oauth:{subject}"
        scopes = _words(claims.get("scope")) | _words(claims.get("scp"))
        role = next((role for role in (ADMIN, WRITER, READER) if SCOPES[role] in scopes), NO_ROLE)
        tenants = self._tenants(name, claims)
        if tenants is None and role in (READER, WRITER):
            raise Forbidden(
                f"the token of '{name}' names no tenant, which all but administrators need",
                {"claim": self._claim},
            )
        return TokenPrincipal(
            name,
            # Tenants of the same name in other databases may belong to others.
            frozenset() if tenants is None else frozenset((DEFAULT,)),
            tenants or frozenset(),
            role,
            expires_at=(claims["exp"] + LEEWAY_SECONDS) * 1000,
        )

    def _claims(self, text: str) -> tuple[str, IssuerKey, dict[str, Any]]:
        """Return the key id, the key and the claims of a valid token; raises InvalidToken and
        NotReady.
        """
        jwt = self._jwt
        if len(text) > MAX_TOKEN_CHARS:
            raise InvalidToken(f"a token has at most {MAX_TOKEN_CHARS} characters")
        try:
            header = jwt.get_unverified_header(text)
        except jwt.PyJWTError:
            raise InvalidToken("the token is not a JWT") from None
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise InvalidToken("the algorithm of the token is not accepted")
        if not isinstance(kind, str) or kind.lower() not in _TYPES or "crit" in header:
            raise InvalidToken("the token is not an access token")
        if not isinstance(kid, str):
            raise InvalidToken("the token names no key (kid)")
        key = self._keys.find(kid)
        if key is None or algorithm not in key.algorithms:
            raise InvalidToken("the issuer has no such key for the algorithm of the token")
        try:
            claims: dict[str, Any] = jwt.decode(
                text,
                key.public,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": list(_REQUIRED)},
            )
        except jwt.ExpiredSignatureError:
            raise ExpiredToken("the token has expired") from None
        except jwt.ImmatureSignatureError:
            raise ExpiredToken("the token is not valid yet") from None
        except jwt.InvalidAudienceError:
            raise InvalidToken("the token is for another audience") from None
        except jwt.InvalidIssuerError:
            raise InvalidToken("the token is of another issuer") from None
        except jwt.MissingRequiredClaimError as error:
            raise InvalidToken(f"the token lacks the claim {error.claim}") from None
        except (jwt.PyJWTError, OverflowError):
            raise InvalidToken("the token is malformed or its signature is wrong") from None
        if "cnf" in claims:
            raise InvalidToken("the token is bound to a key of its client, which is not supported")
        if type(claims["exp"]) not in (int, float):
            raise InvalidToken("the claim exp is not a number")
        return kid, key, claims

    def _tenants(self, name: str, claims: dict[str, Any]) -> frozenset[str] | None:
        """Return the tenants that a token names, None without the claim.

        Raises Forbidden for a claim of another form: an empty list must not mean all tenants.
        """
        if self._claim not in claims:
            return None
        value = claims[self._claim]
        names = [value] if isinstance(value, str) else value
        if (
            not isinstance(names, list)
            or not 0 < len(names) <= MAX_TENANTS
            or not all(isinstance(each, str) and is_name(each) for each in names)
        ):
            raise Forbidden(
                f"the tenants in the token of '{name}' are no name or list of names",
                {"claim": self._claim},
            )
        return frozenset(names)


def _words(value: Any) -> set[str]:
    """Return the scopes of a claim: words of a text, or a list."""
    if isinstance(value, str):
        return set(value.split(" "))
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()
