"""Verifies requests with the libraries standardwebhooks and svix.

Reads a JSON array of {secret, headers, body} from the file argument, and prints for each request what the libraries say.
"""

import json
import sys

import standardwebhooks
import svix.webhooks


def accepts(library, request):
    try:
        library(request["secret"]).verify(request["body"], request["headers"])
    except (standardwebhooks.WebhookVerificationError, svix.webhooks.WebhookVerificationError):
        return False
    return True


with open(sys.argv[1], encoding="utf-8") as file:
    requests = json.load(file)
libraries = [standardwebhooks.Webhook, svix.webhooks.Webhook]
print(json.dumps([[accepts(library, request) for library in libraries] for request in requests]))
