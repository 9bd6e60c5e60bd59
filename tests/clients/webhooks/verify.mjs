// Verifies requests with the libraries standardwebhooks and svix: see verify.py.
import { readFileSync } from "node:fs";
import * as standard from "standardwebhooks";
import * as svix from "svix";

const libraries = [standard, svix];

function accepts(library, request) {
  try {
    new library.Webhook(request.secret).verify(request.body, request.headers);
  } catch (error) {
    if (error instanceof library.WebhookVerificationError) return false;
    throw error;
  }
  return true;
}

const requests = JSON.parse(readFileSync(process.argv[2], "utf8"));
console.log(JSON.stringify(requests.map((request) => libraries.map((library) => accepts(library, request)))));
