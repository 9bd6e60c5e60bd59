// Users sign in with an OpenID Connect provider, and providers that confirm nothing sign nobody in.

import assert from "node:assert/strict";

import { ask, assertAccessible, eventually, heading, play, shows, step } from "./helpers.mjs";

const CALLBACK = "/sign-in/oidc/uni/callback";
const TITLE = "Example University";

await play(async ({ base, open, input }) => {
  const { issuer, owner, invited } = input;
  const signedOut = () => open({ origins: [issuer] });

  // Opens the provider's page, from the sign-in page that asks for `next`.
  async function leave(page, next = "/") {
    // Otherwise the provider would not ask again.
    await page.context().clearCookies({ name: /^_session/ });
    await page.goto(next);
    await heading(page, "Sign in");
    await page.getByRole("link", { name: `Sign in with ${TITLE}` }).click();
    await heading(page, "Who are you?");
  }

  // Confirms an account on the provider's page, and returns the address to which it sends the browser.
  async function confirm(page, { sub, email = "", verified = true, fault = "none" }) {
    await page.getByLabel("Account").fill(sub);
    await page.getByLabel("Address").fill(email);
    await page.getByLabel("Verified").setChecked(verified);
    await page.getByLabel("Fault").fill(fault);
    const [callback] = await Promise.all([
      page.waitForRequest((request) => request.url().startsWith(`${base}${CALLBACK}?`)),
      page.getByRole("button", { name: "Confirm" }).click(),
    ]);
    await page.waitForURL((url) => url.origin === base);
    return callback.url();
  }

  async function signOut(page) {
    await page.goto("/account");
    await page.getByRole("button", { name: "Sign out everywhere" }).click();
    await heading(page, "Sign in");
  }

  // Checks that nobody is signed in, and that the page says why.
  async function assertRefused(page, text) {
    await heading(page, "Sign in");
    await page.getByRole("alert").getByText(text).waitFor();
    await page.goto("/account");
    await heading(page, "Sign in");
  }

  const first = await signedOut();
  const { page } = first;

  await step("sign in to the account with the verified address", async () => {
    await page.goto("/jobs?label=a");
    await heading(page, "Sign in");
    await assertAccessible(page);
    await leave(page, "/jobs?label=a");
    await confirm(page, { sub: "owner", email: owner });
    await heading(page, "Jobs");
    assert.equal(page.url(), `${base}/jobs?label=a`);
    await page.goto("/account");
    await shows(page, `You are signed in as ${owner}.`);
    const names = (await first.context.cookies(base.replace("http:", "https:"))).map(({ name }) => name);
    assert.ok(!names.includes("__Host-assay_flow"), `the flow is removed: ${names}`);
  });

  await step("keep the account when the address changes", async () => {
    await signOut(page);
    // An invite is for the address's owner, who may be somebody else by now.
    await ask("invite");
    await leave(page, "/account");
    await confirm(page, { sub: "owner", email: "married@example.org", verified: false });
    await shows(page, `You are signed in as ${owner}.`);
    assert.equal(await page.getByText("Acme").count(), 1, "the invite of the other organization is still open");
    await signOut(page);
  });

  await step("accept an invite", async () => {
    await leave(page, "/account");
    await confirm(page, { sub: "invited", email: invited.toUpperCase() });
    await shows(page, `You are signed in as ${invited}.`);
    await page.goto("/");
    await heading(page, "Acme");
    await signOut(page);
  });

  await step("refuse an address that is not verified, absent or unknown", async () => {
    for (const [account, reason] of [
      [{ sub: "eve", email: owner, verified: false }, "has not verified an email address"],
      [{ sub: "eve" }, "has not verified an email address"],
      [{ sub: "eve", email: "not an address" }, "has not verified an email address"],
      [{ sub: "eve", email: "stranger@example.org" }, "stranger@example.org has no account here"],
    ]) {
      await leave(page);
      await confirm(page, account);
      await assertRefused(page, reason);
    }
  });

  await step("refuse what the provider does not confirm", async () => {
    await leave(page);
    await page.getByRole("button", { name: "Refuse" }).click();
    await page.waitForURL((url) => url.origin === base);
    await assertRefused(page, `${TITLE} did not confirm who you are.`);
    const faults = ["nonce", "audience", "issuer", "expiry", "signature", "no token", "text as verified", "issued tomorrow",
      "valid from tomorrow", "secret of the client", "no issuer"];
    for (const fault of faults) {
      await leave(page);
      await confirm(page, { sub: "owner", email: owner, fault });
      await assertRefused(page, `The confirmation by ${TITLE} is not valid`);
    }
    await leave(page);
    await confirm(page, { sub: "owner", email: owner, fault: "no answer" });
    await assertRefused(page, `${TITLE} does not respond.`);
  });

  await step("accept a key that the provider has replaced", async () => {
    await eventually("a sign-in with the new key", async () => {
      await leave(page, "/account");
      await confirm(page, { sub: "owner", email: owner, fault: "new key" });
      return (await page.getByText(`You are signed in as ${owner}.`).count()) > 0;
    }, 90_000);
    await signOut(page);
  });

  await step("use a sign-in once, and only in its browser", async () => {
    await leave(page);
    const flow = (await first.context.cookies(base.replace("http:", "https:"))).find(({ name }) => name === "__Host-assay_flow");
    const callback = await confirm(page, { sub: "owner", email: owner });
    await heading(page, "Acme");
    await signOut(page);
    await page.goto(callback);
    await assertRefused(page, "This sign-in was not started in this browser, or it has ended.");

    // Someone who steals the address cannot use it.
    const thief = await signedOut();
    await thief.page.goto(callback);
    await assertRefused(thief.page, "This sign-in was not started in this browser, or it has ended.");
    // Nor can the victim's browser flow redeem the code again.
    await thief.store(flow.name, flow.value);
    await thief.page.goto(callback);
    await assertRefused(thief.page, "This sign-in was finished before.");

    // Nobody is signed in to an attacker's account, whose address a victim opens.
    const attacker = await signedOut();
    await leave(attacker.page);
    const { request } = attacker.context;
    const target = async (url) => (await request.get(url, { maxRedirects: 0 })).headers().location;
    const stolen = await target(await target(`${attacker.page.url()}?sub=invited&fault=none&act=confirm`));
    assert.ok(stolen.startsWith(`${base}${CALLBACK}?code=`), stolen);
    await leave(page);
    await page.goto(stolen);
    await assertRefused(page, "This sign-in was not started in this browser, or it has ended.");
  });

  await step("remove an account", async () => {
    await leave(page, "/account");
    await confirm(page, { sub: "owner", email: "married@example.org", verified: false });
    await shows(page, `You are signed in as ${owner}.`);
    await assertAccessible(page);
    await page.getByRole("button", { name: `Remove the account owner of ${issuer}` }).click();
    await shows(page, "The account no longer signs you in.");
    await signOut(page);
    await leave(page);
    await confirm(page, { sub: "owner", email: "married@example.org", verified: false });
    await assertRefused(page, "has not verified an email address");
  });
});
