// A program gets an API key from a user who decides in the browser.

import assert from "node:assert/strict";

import { ask, assertAccessible, call, heading, play, shows, step } from "./helpers.mjs";

await play(async ({ open, input }) => {
  const user = await open();
  const { page } = user;

  await step("allow a program", async () => {
    const { user_code: code } = await ask("start", "assay on node-7");
    // The program shows this address. The user signs in first, and returns to the page.
    await page.goto(`/device?code=${code}`);
    await heading(page, "Sign in");
    await user.signIn(input.email);
    await heading(page, "Connect a program");
    await shows(page, `the program shows the code ${code}`);
    await shows(page, "assay on node-7");
    assert.equal((await ask("poll")).status, "pending");
    await page.getByLabel("Name of the key").fill("node-7");
    await page.getByText("Restrict what the key may do").click();
    await page.getByLabel("jobs:read").check();
    await page.getByRole("button", { name: "Allow" }).click();
    await heading(page, "The program is connected");
    await assertAccessible(page);
  });

  await step("use the key of the program", async () => {
    const { status, api_key: key } = await ask("poll");
    assert.equal(status, "granted");
    const me = await call("/v1/me", key.key);
    assert.deepEqual([me.status, me.body.org_id], [200, input.org]);
    assert.deepEqual(key.scopes, ["jobs:read"], "the user has restricted the key");
    assert.equal((await call("/v1/suites", key.key)).status, 403);
    await page.goto("/keys");
    await page.getByRole("row", { name: /node-7/ }).getByText(key.id).waitFor();
  });

  await step("use a code only once", async () => {
    await page.goto("/device");
    const { user_code: code } = await ask("start", "another program");
    // As a user types it.
    await page.getByLabel("Code").fill(code.toLowerCase().replace("-", " "));
    await page.getByRole("button", { name: "Continue" }).click();
    await shows(page, "another program");
    await page.getByRole("button", { name: "Deny" }).click();
    await heading(page, "The login was denied");
    await assertAccessible(page);
    assert.deepEqual(await ask("poll"), { status: "denied", api_key: null });
    await page.goto(`/device?code=${code}`);
    await page.getByRole("alert").waitFor();
    assert.equal(await page.getByRole("button", { name: "Allow" }).count(), 0);
  });

  await step("reject a wrong code", async () => {
    await page.getByLabel("Code").fill("<b>AAAA-AAAA</b>");
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByRole("alert").waitFor();
    assert.equal(await page.getByLabel("Code").inputValue(), "<b>AAAA-AAAA</b>", "the typed code is kept");
  });
});
