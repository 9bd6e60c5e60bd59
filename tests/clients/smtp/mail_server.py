"""A mail server for tests. Prints its ports, then one JSON line for each email, until its standard input closes."""

import asyncio
import json
import logging
import ssl
import sys
import warnings

import trustme
from aiosmtpd.smtp import SMTP, AuthResult

# aiosmtpd warns about authentication without STARTTLS, which is normal with implicit TLS.
logging.disable()
warnings.simplefilter("ignore")

folder = sys.argv[1]
authority = trustme.CA()
authority.cert_pem.write_to_path(f"{folder}/authority.pem")
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
authority.issue_cert("localhost").configure_cert(tls)


def report(line):
    print(json.dumps(line), flush=True)


class Handler:
    def __init__(self):
        self.deferred = set()

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("never"):
            report({"refused": address})
            return "550 no such mailbox"
        # Like servers that use greylisting.
        if address.startswith("later") and address not in self.deferred:
            self.deferred.add(address)
            return "451 try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        report({
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
    handler = Handler()

    async def listen(tls, **options):
        server = await loop.create_server(lambda: SMTP(handler, hostname="localhost", **options), "127.0.0.1", 0, ssl=tls)
        return server, server.sockets[0].getsockname()[1]

    plain, plain_port = await listen(None)
    safe, safe_port = await listen(tls, authenticator=check, auth_required=True, auth_require_tls=False)
    report({"plain": plain_port, "tls": safe_port})
    await loop.run_in_executor(None, sys.stdin.read)
    plain.close()
    safe.close()


asyncio.run(main())
