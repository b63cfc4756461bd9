"""Keys, tokens and certificates for tests with servers that want to know who asks: all by openssl(1)."""

import base64
import binascii
import json
import os
import subprocess
import time

OPERATOR, ACCOUNT, USER = 14 << 3, 0, 20 << 3  # first bytes of NATS' public keys


def openssl(*arguments, stdin=b""):
    done = subprocess.run(["openssl", *map(str, arguments)], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def base32(data):
    """With the checksum of NATS' keys."""
    return base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little")).rstrip(b"=").decode()


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class NKey:
    """An Ed25519 key as NATS writes it: a public name, a seed, signatures."""

    def __init__(self, folder, name, kind):
        self.path = os.path.join(str(folder), name + ".ed25519")
        openssl("genpkey", "-algorithm", "ed25519", "-out", self.path)
        secret = openssl("pkey", "-in", self.path, "-outform", "DER")[-32:]
        public = openssl("pkey", "-in", self.path, "-pubout", "-outform", "DER")[-32:]
        self.public = base32(bytes([kind]) + public)
        self.seed = base32(bytes([18 << 3 | kind >> 5, (kind & 31) << 3]) + secret)

    def sign(self, data):
        path = self.path + ".signed"
        with open(path, "wb") as file:
            file.write(data)
        return openssl("pkeyutl", "-sign", "-rawin", "-inkey", self.path, "-in", path)

    def token(self, subject, name, nats):
        """A JWT of this key about another one."""
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        body = {"jti": name, "iat": int(time.time()), "iss": self.public, "sub": subject.public, "name": name,
                "nats": {**nats, "version": 2}}
        text = ".".join(base64url(json.dumps(each).encode()) for each in (head, body))
        return text + "." + base64url(self.sign(text.encode()))


def credentials(folder):
    """The configuration of a server that believes an operator, and the text of a user's credentials."""
    operator, account, user = (NKey(folder, name, kind) for name, kind in
                               (("operator", OPERATOR), ("account", ACCOUNT), ("user", USER)))
    system = NKey(folder, "system", ACCOUNT)
    limits = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1,
              "leaf": -1}
    storage = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    said = operator.token(operator, "operator", {"type": "operator"})
    accounts = {account.public: operator.token(account, "account", {"type": "account", "limits": {**limits, **storage}}),
                system.public: operator.token(system, "system", {"type": "account", "limits": limits})}
    of_user = account.token(user, "user", {"type": "user", "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1})
    preload = "\n".join(f"{key}: {token}" for key, token in accounts.items())
    config = (f"operator: {said}\nsystem_account: {system.public}\nresolver: MEMORY\n"
              f"resolver_preload: {{\n{preload}\n}}\n")
    return config, (f"-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n"
                    f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n")


class Authority:
    """Who vouches for certificates, and some of those."""

    def __init__(self, folder, name="ca"):
        self.folder = str(folder)
        self.key, self.cert = self.make_key(name), os.path.join(self.folder, name + ".pem")
        openssl("req", "-x509", "-new", "-key", self.key, "-out", self.cert, "-subj", f"/CN=naradfs test {name}", "-days", "2")

    def make_key(self, name):
        path = os.path.join(self.folder, name + ".key")
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
        os.chmod(path, 0o600)
        return path

    def issue(self, name, names="DNS:localhost,IP:127.0.0.1", days=2):
        """Certificate and key, as paths; days < 0: it has expired."""
        key, cert = self.make_key(name), os.path.join(self.folder, name + ".pem")
        extensions = os.path.join(self.folder, name + ".ext")
        with open(extensions, "w", encoding="ascii") as file:
            file.write(f"subjectAltName={names}\n")
        request = openssl("req", "-new", "-key", key, "-subj", f"/CN={name}")
        with open(cert, "wb") as file:
            file.write(openssl("x509", "-req", "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-extfile", extensions,
                               "-days", days, stdin=request))
        return cert, key
