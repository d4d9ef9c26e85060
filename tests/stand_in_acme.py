"""Stands for an ACME server (RFC 8555), as a program: checks signatures, asks the host by http-01, and signs.

usage: stand_in_acme.py PORT HOST HTTP_PORT FOLDER

Listens on https://127.0.0.1:PORT/directory. Every domain is asked for at HOST:HTTP_PORT, with its name as Host.
Certificates last for a day, so that certbot renews one whenever it runs. FOLDER gets ca.pem, the certificate of the
authority that signs them and this server's own. Needs Python's cryptography, which certbot brings.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import http.client
import ipaddress
import json
import secrets
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

NEW = ("newNonce", "newAccount", "newOrder", "revokeCert", "keyChange")
CHALLENGES = "/.well-known/acme-challenge/"


def unpacked(text: str) -> bytes:
    """base64url without padding (RFC 7515, 2)."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def packed(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def thumbprint(jwk: dict[str, str]) -> str:
    """Of a key (RFC 7638)."""
    kept = {name: jwk[name] for name in ("e", "kty", "n")}
    return packed(hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).digest())


class Authority:
    """Who signs."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stand-in authority")])
        self.certificate = self.signed(self.name, self.key.public_key(), [], 3, authority=True)

    def signed(
        self, subject: x509.Name, key: Any, names: list[x509.GeneralName], days: int, authority: bool = False
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)  # noqa: UP017  Python 3.10 has no UTC
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return made.sign(self.key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


class Server(ThreadingHTTPServer):
    """accounts: JWK by URL. orders, authorizations: by URL. certificates: chains by URL."""

    daemon_threads = True

    def __init__(self, port: int, place: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.base, self.place = f"https://127.0.0.1:{self.server_port}", place
        self.authority = Authority()
        self.nonces: set[str] = set()
        self.accounts: dict[str, dict[str, str]] = {}
        self.orders: dict[str, dict[str, Any]] = {}
        self.authorizations: dict[str, dict[str, Any]] = {}
        self.certificates: dict[str, str] = {}

    def address(self, kind: str) -> str:
        return f"{self.base}/{kind}/{secrets.token_hex(8)}"

    def fetched(self, domain: str, token: str) -> str:
        """What the host answers to a challenge."""
        link = http.client.HTTPConnection(*self.place, timeout=5)
        link.request("GET", CHALLENGES + token, headers={"Host": domain})
        reply = link.getresponse()
        return reply.read(1000).decode().strip() if reply.status == 200 else f"status {reply.status}"


class Problem(Exception):
    """An error as ACME writes it: kind, detail."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.reply(200, None)

    def do_GET(self) -> None:
        if self.path == "/directory":
            self.reply(200, {name: f"{self.server.base}/{name}" for name in NEW})
        else:
            self.reply(204, None)

    def do_POST(self) -> None:
        try:
            self.reply(*self.answered())
        except Problem as problem:
            kind, detail = problem.args
            self.reply(403, {"type": f"urn:ietf:params:acme:error:{kind}", "detail": detail, "status": 403})

    def reply(self, status: int, content: Any, location: str = "", up: str = "") -> None:
        text = content.encode() if isinstance(content, str) else json.dumps(content).encode() if content else b""
        nonce = secrets.token_hex(16)
        self.server.nonces.add(nonce)
        self.send_response(status)
        kind = "application/pem-certificate-chain" if isinstance(content, str) else "application/json"
        problem = isinstance(content, dict) and str(content.get("type", "")).startswith("urn:")
        self.send_header("Content-Type", "application/problem+json" if problem else kind)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Replay-Nonce", nonce)
        if location:
            self.send_header("Location", location)
        if up:
            self.send_header("Link", f'<{up}>;rel="up"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def answered(self) -> tuple[Any, ...]:
        """Status, content, Location and what is above it, for a signed request."""
        url = self.server.base + self.path
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        head = json.loads(unpacked(sent["protected"]))
        if head["nonce"] not in self.server.nonces or head["url"] != url:
            raise Problem("badNonce", "unknown nonce or URL")
        self.server.nonces.discard(head["nonce"])
        jwk = head["jwk"] if "jwk" in head else self.server.accounts.get(head["kid"])
        if jwk is None:
            raise Problem("accountDoesNotExist", "unknown account")
        self.verify(jwk, sent)
        payload = json.loads(unpacked(sent["payload"])) if sent["payload"] else {}
        if self.path == "/newAccount":
            return self.account(jwk)
        if self.path == "/newOrder":
            return self.order([one["value"] for one in payload["identifiers"]])
        if url in self.server.authorizations:
            return 200, self.server.authorizations[url]
        if url in self.server.orders:
            return 200, self.server.orders[url]
        if url in self.server.certificates:
            return 200, self.server.certificates[url]
        if self.path.startswith("/challenge/"):
            return self.challenge(url, thumbprint(jwk))
        if self.path.startswith("/finalize/"):
            return self.finalize(url, unpacked(payload["csr"]))
        raise Problem("malformed", f"nothing at {self.path}")

    def verify(self, jwk: dict[str, str], sent: dict[str, str]) -> None:
        numbers = (int.from_bytes(unpacked(jwk[name]), "big") for name in ("e", "n"))
        key = rsa.RSAPublicNumbers(*numbers).public_key()
        try:
            signed = f"{sent['protected']}.{sent['payload']}".encode()
            key.verify(unpacked(sent["signature"]), signed, padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            raise Problem("unauthorized", "the signature is wrong") from None

    def account(self, jwk: dict[str, str]) -> tuple[Any, ...]:
        for url, known in self.server.accounts.items():
            if known == jwk:
                return 200, {"status": "valid"}, url
        url = self.server.address("account")
        self.server.accounts[url] = jwk
        return 201, {"status": "valid"}, url

    def order(self, domains: list[str]) -> tuple[Any, ...]:
        authorizations = []
        for domain in domains:
            token, url = packed(secrets.token_bytes(16)), self.server.address("authorization")
            challenge = {"type": "http-01", "url": self.server.address("challenge"), "token": token}
            self.server.authorizations[url] = {
                "status": "pending",
                "identifier": {"type": "dns", "value": domain},
                "challenges": [{**challenge, "status": "pending"}],
            }
            authorizations.append(url)
        url = self.server.address("order")
        self.server.orders[url] = {
            "status": "pending",
            "identifiers": [{"type": "dns", "value": domain} for domain in domains],
            "authorizations": authorizations,
            "finalize": self.server.address("finalize"),
        }
        return 201, self.server.orders[url], url

    def challenge(self, url: str, mark: str) -> tuple[Any, ...]:
        """Asks the host at once."""
        for up, authorization in self.server.authorizations.items():
            (challenge,) = authorization["challenges"]
            if challenge["url"] != url:
                continue
            domain = authorization["identifier"]["value"]
            try:
                found = self.server.fetched(domain, challenge["token"])
            except OSError as error:
                found = str(error)
            if found == f"{challenge['token']}.{mark}":
                challenge["status"] = authorization["status"] = "valid"
            else:
                kind = "urn:ietf:params:acme:error:unauthorized"
                challenge["error"] = {"type": kind, "detail": f"{domain} answers: {found}", "status": 403}
                challenge["status"] = authorization["status"] = "invalid"
            return 200, challenge, "", up
        raise Problem("malformed", "unknown challenge")

    def finalize(self, url: str, csr: bytes) -> tuple[Any, ...]:
        place, order = next((place, one) for place, one in self.server.orders.items() if one["finalize"] == url)
        if any(self.server.authorizations[one]["status"] != "valid" for one in order["authorizations"]):
            raise Problem("orderNotReady", "not every name is validated")
        asked = x509.load_der_x509_csr(csr)
        names = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        domains = {one["value"] for one in order["identifiers"]}
        if not asked.is_signature_valid or set(names.get_values_for_type(x509.DNSName)) != domains:
            raise Problem("badCSR", "it is not for the names of the order")
        authority = self.server.authority
        made = authority.signed(x509.Name([]), asked.public_key(), list(names), 1)
        where = self.server.address("certificate")
        chain = made.public_bytes(serialization.Encoding.PEM).decode() + authority.pem
        self.server.certificates[where] = chain
        order |= {"status": "valid", "certificate": where}
        return 200, order, place

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def main(port: int, host: str, http_port: int, folder: Path) -> None:
    """Serves until it is ended."""
    server = Server(port, (host, http_port))
    key = ec.generate_private_key(ec.SECP256R1())
    own = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = server.authority.signed(x509.Name([]), key.public_key(), list(own), 2)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    (folder / "ca.pem").write_text(server.authority.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
