// An OpenID Connect provider for the tests: the package oidc-provider, with a page on which the user chooses what it confirms, and
// with the faults that hostile and broken providers have.
//
// The first line on standard output is the issuer. The provider runs until standard input is closed.

import { createServer } from "node:http";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { Provider } from "oidc-provider";

// The arguments are the id and the secret of the client, and the path to which browsers are sent back.
const [clientId, clientSecret, callbackPath] = process.argv.slice(2);

async function key(kid) {
  const { publicKey, privateKey } = await generateKeyPair("RS256", { extractable: true });
  const common = { kid, alg: "RS256", use: "sig" };
  return { privateKey, common, secret: { ...(await exportJWK(privateKey)), ...common }, open: { ...(await exportJWK(publicKey)), ...common } };
}

const [first, second, unknown] = [await key("first"), await key("second"), await key("first")];

// The accounts that have signed in, by their ids.
const accounts = new Map();

// The next token response's fault.
let fault = "none";

const server = createServer();
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [{ client_id: clientId, client_secret: clientSecret, redirect_uris: [`${issuer}${callbackPath}`] }],
  claims: { openid: ["sub"], email: ["email", "email_verified"] },
  cookies: { keys: ["key of the cookies"] },
  jwks: { keys: [first.secret] },
  pkce: { required: () => true },
  features: { devInteractions: { enabled: false } },
  interactions: { url: (_, interaction) => `/choose/${interaction.uid}` },
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, ...accounts.get(sub) }) }),
});

// The client's port is known only after this process has started.
provider.Client.prototype.redirectUriAllowed = (uri) => {
  const { hostname, pathname, search } = new URL(uri);
  return hostname === "127.0.0.1" && pathname === callbackPath && search === "";
};

const PAGE = `<!doctype html><html lang="en"><title>Provider</title><main><h1>Who are you?</h1><form>
<p><label>Account <input name="sub"></label></p><p><label>Address <input name="email"></label></p>
<p><label><input type="checkbox" name="verified"> Verified</label></p><p><label>Fault <input name="fault" value="none"></label></p>
<button name="act" value="confirm">Confirm</button><button name="act" value="refuse">Refuse</button></form></main>`;

// Shows the page, and continues with what the user has chosen there.
async function choose(context) {
  const { sub, email, verified, fault: chosen, act } = context.query;
  const [request, response] = [context.req, context.res];
  context.respond = false;
  if (!act) return response.setHeader("content-type", "text/html").end(PAGE);
  if (act === "refuse") {
    return provider.interactionFinished(request, response, { error: "access_denied" }, { mergeWithLastSubmission: false });
  }
  accounts.set(sub, { ...(email && { email, email_verified: verified === "on" }) });
  fault = chosen;
  const grant = new provider.Grant({ accountId: sub, clientId });
  grant.addOIDCScope("openid email");
  const result = { login: { accountId: sub, remember: false }, consent: { grantId: await grant.save() } };
  return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}

// Returns the token with one claim replaced, or signed by another key.
async function forged(token, chosen) {
  const claims = JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
  const forgeries = {
    nonce: [{ nonce: "of another sign-in" }, first],
    audience: [{ aud: "another client" }, first],
    issuer: [{ iss: "https://login.example.org" }, first],
    expiry: [{ exp: claims.iat - 1 }, first],
    signature: [{}, unknown],
    "new key": [{}, second],
    "text as verified": [{ email: "owner@example.org", email_verified: "true" }, first],
    "issued tomorrow": [{ iat: claims.iat + 86_400, exp: claims.exp + 86_400 }, first],
    "valid from tomorrow": [{ nbf: claims.iat + 86_400, exp: claims.exp + 86_400 }, first],
    "secret of the client": [{}, null],
  };
  const [changed, signer] = forgeries[chosen];
  if (!signer) {
    const secret = new TextEncoder().encode(clientSecret);
    return new SignJWT(claims).setProtectedHeader({ alg: "HS256" }).sign(secret);
  }
  const { privateKey, common } = signer;
  return new SignJWT({ ...claims, ...changed }).setProtectedHeader(common).sign(privateKey);
}

provider.use(async (context, next) => {
  if (context.path.startsWith("/choose/")) return choose(context);
  await next();
  const callback = context.response.get("location");
  if (context.path.startsWith("/auth/") && fault === "no issuer" && callback?.includes(callbackPath)) {
    const url = new URL(callback);
    url.searchParams.delete("iss");
    context.redirect(url.href);
  }
  if (context.path === "/jwks") context.body = { keys: [first.open, second.open].slice(0, fault === "new key" ? 2 : 1) };
  if (context.path !== "/token" || fault === "none" || !context.body?.id_token) return undefined;
  if (fault === "no answer") {
    context.status = 500;
    context.body = "broken";
  } else if (fault === "no token") {
    delete context.body.id_token;
  } else {
    context.body = { ...context.body, id_token: await forged(context.body.id_token, fault) };
  }
  return undefined;
});

server.on("request", provider.callback());
process.stdin.resume().on("close", () => process.exit());
console.log(JSON.stringify({ issuer }));
