// From the sign-in to a score in a browser that runs no scripts.

import assert from "node:assert/strict";

import { ask, call, file, heading, play, shows, step } from "./helpers.mjs";

await play(async ({ open, input }) => {
  const { suite, predictions, sealed } = input;
  const user = await open({ javaScriptEnabled: false });
  const { page } = user;

  await step("sign in", async () => {
    await page.goto("/keys");
    await heading(page, "Sign in");
    await user.signIn("ada@example.org");
    await heading(page, "Create an organization");
    await page.getByLabel("Name", { exact: true }).fill("Scriptless");
    await page.getByRole("button", { name: "Create" }).click();
    await heading(page, "Scriptless");
  });

  const key = await step("create a key", async () => {
    await page.goto("/keys");
    await page.getByLabel("Name", { exact: true }).fill("laptop");
    await page.getByRole("button", { name: "Create" }).click();
    const secret = await page.getByLabel("the secret", { exact: true }).innerText();
    assert.equal((await call("/v1/me", secret)).status, 200);
    assert.equal(await page.getByRole("button", { name: "Copy the secret" }).count(), 0, "a button that needs a script");
    return secret;
  });

  await step("upload a broken file", async () => {
    await page.goto(`/suites/${suite}/submit`);
    await page.getByLabel("Label").fill("plain");
    await page.getByLabel("File with predictions").setInputFiles(file("broken.ndjson", ["{}"]));
    await page.getByRole("button", { name: "Upload and check" }).click();
    await shows(page, "The file cannot be scored");
    await shows(page, /\bline 1\b/);
    await page.getByRole("link", { name: "Choose another file" }).click();
  });

  await step("upload a file", async () => {
    assert.equal(await page.getByLabel("Label").inputValue(), "plain");
    await page.getByLabel("File with predictions").setInputFiles(file("plain.ndjson", predictions));
    await page.getByRole("button", { name: "Upload and check" }).click();
    await shows(page, `${predictions.length} of ${predictions.length} items`);
  });

  await step("wait for the score", async () => {
    await ask("hold");
    await page.getByRole("button", { name: "Submit", exact: true }).click();
    await heading(page, "plain");
    await page.locator(".status", { hasText: /queued|running/ }).waitFor();
    await ask("release");
    // The browser loads the page again by itself.
    await page.locator(".status.succeeded").waitFor();
    const { body } = await call(page.url().replace(/^.*(?=\/jobs\/)/, "/v1"), key);
    assert.equal(await page.locator(".value").innerText(), Number(body.result.value.toFixed(4)).toString());
  });

  await step("enter the board of a sealed suite", async () => {
    await page.goto(`/suites/${sealed.suite}/submit`);
    await page.getByLabel("Label").fill("sealed");
    await page.getByLabel("File with predictions").setInputFiles(file("sealed.ndjson", sealed.predictions));
    await page.getByRole("button", { name: "Upload and check" }).click();
    await shows(page, "The file is checked");
    await page.getByRole("button", { name: "Submit", exact: true }).click();
    await heading(page, "sealed");
    await page.locator(".status.succeeded").waitFor();
    const job = new URL(page.url()).pathname.replace("/jobs/", "");
    await page.getByRole("link", { name: "Enter the board", exact: true }).click();
    await page.getByLabel("Name on the board").fill("without scripts");
    await page.getByLabel("Mark the job as final").check();
    await page.getByRole("button", { name: "Mark as final and enter" }).click();
    await shows(page, "without scripts has entered the board.");
    const { body } = await call("/v1/entries", key);
    assert.deepEqual(body.entries.map((entry) => [entry.name, entry.job_id]), [["without scripts", job]]);
    assert.equal((await call(`/v1/jobs/${job}`, key)).body.final, true);
  });

  await step("sign out", async () => {
    // The address is shown by a summary, which opens without scripts.
    await page.locator("summary", { hasText: "ada@example.org" }).click();
    await page.getByRole("button", { name: "Sign out" }).click();
    await heading(page, "Sign in");
    await page.goto("/jobs");
    await heading(page, "Sign in");
  });
});
