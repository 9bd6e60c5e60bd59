"""A mail server that keeps what it takes: prints where it listens, then a line a mail, until its input ends."""

import json
import ssl
import sys

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

folder = sys.argv[1]
authority = trustme.CA()
authority.cert_pem.write_to_path(f"{folder}/authority.pem")
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
authority.issue_cert("localhost").configure_cert(tls)


def say(line):
    print(json.dumps(line), flush=True)


class Keeper:
    def __init__(self):
        self.refused = set()

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("never"):
            say({"refused": address})
            return "550 no such mailbox"
        # As servers do that put unknown senders off for a while.
        if address.startswith("later") and address not in self.refused:
            self.refused.add(address)
            return "451 try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        say({
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "mail": envelope.content.decode("ascii"),
            "tls": session.ssl is not None,
            "user": session.auth_data.decode() if session.auth_data else None,
        })
        return "250 OK"


def check(server, session, envelope, mechanism, data):
    good = (data.login, data.password) == (b"assay", b"p@ss/word")
    return AuthResult(success=good, auth_data=data.login)


keeper = Keeper()
plain = Controller(keeper, hostname="127.0.0.1", port=0)
safe = Controller(
    keeper, hostname="127.0.0.1", port=0, ssl_context=tls, authenticator=check, auth_required=True, auth_require_tls=False
)
for controller in (plain, safe):
    controller.start()
port = lambda controller: controller.server.sockets[0].getsockname()[1]
say({"plain": port(plain), "tls": port(safe)})
sys.stdin.read()
for controller in (plain, safe):
    controller.stop()
