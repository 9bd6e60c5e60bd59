"""A mail server that keeps what it takes: prints where it listens, then a line a mail, until its input ends."""

import asyncio
import json
import logging
import ssl
import sys
import warnings

import trustme
from aiosmtpd.smtp import SMTP, AuthResult

# That a password may come without STARTTLS is what implicit TLS is.
logging.disable()
warnings.simplefilter("ignore")

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
            "tls": server.transport.get_extra_info("ssl_object") is not None,
            "user": session.auth_data.decode() if session.auth_data else None,
        })
        return "250 OK"


def check(server, session, envelope, mechanism, data):
    good = (data.login, data.password) == (b"assay", b"p@ss/word")
    return AuthResult(success=good, auth_data=data.login)


async def main():
    loop = asyncio.get_running_loop()
    keeper = Keeper()

    async def listen(tls, **options):
        server = await loop.create_server(lambda: SMTP(keeper, hostname="localhost", **options), "127.0.0.1", 0, ssl=tls)
        return server, server.sockets[0].getsockname()[1]

    plain, plain_port = await listen(None)
    safe, safe_port = await listen(tls, authenticator=check, auth_required=True, auth_require_tls=False)
    say({"plain": plain_port, "tls": safe_port})
    await loop.run_in_executor(None, sys.stdin.read)
    plain.close()
    safe.close()


asyncio.run(main())
